#include "train/commands/command_line.h"

#include <algorithm>
#include <string_view>

#include "train/config/nearest_name.h"

namespace ripstop {
namespace {

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
    throw CommandLineError(error.what(), nearest.empty() ? app.get_name() + " --help shows an example"
                                                         : "did you mean " + nearest + "?");
  }
}

void set_example(CLI::App& app, const std::string& example) {
  app.footer("Example:\n  " + example + "\n");
}

std::string fatal_line(const Error& error, int64_t rank) {
  return fmt::format("FATAL code={} rank={} step={} what=\"{}\" hint=\"{}\"", static_cast<int>(error.code()),
                     rank, error.step() ? std::to_string(*error.step()) : "-", escaped(error.what()),
                     escaped(error.hint()));
}

}  // namespace ripstop
