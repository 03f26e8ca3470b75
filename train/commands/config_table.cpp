// The table of config keys in docs/config.md.

#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/config/run_config.h"
#include "train/report/standard_streams.h"

namespace ripstop {

void add_config_table(CommandLine& line) {
  Verb verb = line.verb("config-table", "every config key as a Markdown table, for docs/config.md");
  verb.hide();
  verb.set_example("ripstop config-table");
  verb.set_action([] {
    print_out("{}", config_table_markdown());
    return ExitCode::kOk;
  });
}

}  // namespace ripstop
