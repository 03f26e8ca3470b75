#include "train/commands/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "train/nearest_name.h"

namespace ripstop {
namespace {

// The first of the variables that holds a whole number, or `otherwise`.
int64_t number_from_environment(std::initializer_list<const char*> names, int64_t otherwise) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view digits(text);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc{} && end == digits.data() + digits.size() && value >= 0) return value;
  }
  return otherwise;
}

std::string nearest_option(const CLI::App& app, const Arguments& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.rfind("--", 0) != 0 || std::find(known.begin(), known.end(), name) != known.end()) continue;
    return nearest_name(name, known);
  }
  return "";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

void parse(CLI::App& app, const Arguments& arguments) {
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));  // CLI11 takes the words from the back
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& error) {
    const std::string nearest = nearest_option(app, arguments);
    throw Error(
        ExitCode::kUsage, error.what(),
        nearest.empty() ? app.get_name() + " --help shows an example" : "did you mean " + nearest + "?");
  }
}

void set_example(CLI::App& app, const std::string& example) {
  app.footer("Example:\n  " + example + "\n");
}

int64_t launch_rank() {
  return number_from_environment({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
}

int64_t launch_size() {
  return number_from_environment({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);
}

std::string fatal_line(const Error& error, int64_t rank) {
  return fmt::format("FATAL code={} rank={} step={} what=\"{}\" hint=\"{}\"", static_cast<int>(error.code()),
                     rank, error.step() ? std::to_string(*error.step()) : "-", escaped(error.what()),
                     escaped(error.hint()));
}

}  // namespace ripstop
