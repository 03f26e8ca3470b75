// ripstop doctor: what was built, what this machine has.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "train/commands/commands.h"
#include "train/version.h"

namespace ripstop {

ExitCode run_doctor(CLI::App& app, const Arguments& arguments) {
  bool json = false;
  app.add_flag("--json", json, "one JSON document");
  set_example(app, "ripstop doctor");
  parse(app, arguments);
  if (json) {
    nlohmann::ordered_json document{
        {"version", version()}, {"commit", git_commit()}, {"compiler", compiler()}};
    for (const Library& library : libraries())
      document["libraries"][std::string(library.name)] = library.version;
    fmt::print("{}\n", document.dump(2));
    return ExitCode::kOk;
  }
  fmt::print("ripstop {} ({}), {}\n", version(), git_commit(), compiler());
  for (const Library& library : libraries()) fmt::print("  {:<16}{}\n", library.name, library.version);
  return ExitCode::kOk;
}

}  // namespace ripstop
