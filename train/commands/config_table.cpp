// ripstop config-table: the table of config keys in docs/config.md.
#include <fmt/core.h>

#include "train/commands/commands.h"
#include "train/config/run_config.h"

namespace ripstop {

ExitCode run_config_table(CLI::App& app, const Arguments& arguments) {
  app.description("every config key as a Markdown table, for docs/config.md");
  set_example(app, "ripstop config-table");
  parse(app, arguments);
  fmt::print("{}", config_table_markdown());
  return ExitCode::kOk;
}

}  // namespace ripstop
