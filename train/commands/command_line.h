// The command line: verbs, their options, and the words that fill them. It wraps CLI11. Only command_line.cpp
// includes CLI11, because CLI11 takes ten seconds to compile.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/core/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ripstop {

/// Words of a command line.
using Arguments = std::vector<std::string>;

/// An error in the words after the program's name. All ranks get the same words, so only rank 0 prints it.
class CommandLineError : public Error {
 public:
  explicit CommandLineError(const std::string& what, const std::string& hint)
      : Error(ExitCode::kUsage, what, hint) {}
};

/// An option or a positional argument of a verb. The functions restrict it and return it, to be chained.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  /// The command line must give it.
  Option required();
  /// Accepts only integers > 0.
  Option positive();
  /// Accepts only integers from `least` to `most`.
  Option range(int64_t least, int64_t most);
  /// Accepts only these words. Another one is refused with the nearest of them (bfloat16 for bf16).
  Option choices(const Arguments& words);
  /// Shows the variable's present value in the help text, as the default.
  Option show_default();

  /// Whether the command line gives it. To be called in the verb's action.
  bool is_given() const;
  /// The name as people type it: "--name", or the name of a positional argument.
  std::string name() const;

 private:
  CLI::Option* option_;
};

class CommandLine;

/// One verb: its options, its example, its action. Variables given to option() and flag() must live until the
/// action is done; the action usually holds them (see commands.h).
class Verb {
 public:
  Verb(CommandLine& line, CLI::App& app) : line_(&line), app_(&app) {}

  /// Binds `value` to "--name", or to a positional argument if `name` has no dashes. `value` keeps what it
  /// has if the command line does not give the option. A vector takes several words. T: std::string, int64_t,
  /// uint64_t, double or Arguments.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& help);
  /// Sets `value` if the command line has "--name". A flag takes no word.
  Option flag(const std::string& name, bool& value, const std::string& help);

  /// Adds a verb below this one, as in `checkpoint list`. The command line must then name one of them.
  Verb verb(const std::string& name, const std::string& summary);
  /// Leaves the verb out of the program's list of verbs.
  void hide();
  /// Adds lines to the verb's own help text, below the summary.
  void add_details(const std::string& text);
  /// Says that "overrides" takes keys of this section of the config alone: hints then name no others.
  void set_override_section(const std::string& section);
  /// Command lines that show how the verb is used, at the end of its help text. Every verb has one.
  void set_example(const std::string& text);
  /// The work of the verb. CommandLine::run() calls it after all variables are filled.
  void set_action(std::function<ExitCode()> action);

 private:
  CommandLine* line_;
  CLI::App* app_;
};

/// Texts of the program itself.
struct ProgramTexts {
  std::string name;     ///< "ripstop"
  std::string title;    ///< the first line of the help text
  std::string version;  ///< the line of --version
  std::string closing;  ///< the last lines of the help text
};

/// All verbs of the program.
class CommandLine {
 public:
  explicit CommandLine(ProgramTexts texts);
  ~CommandLine();

  /// Adds a verb; `summary` is its line in the help text.
  Verb verb(const std::string& name, const std::string& summary);

  /// Fills the variables of the verb that `words` name, does its action and returns the action's exit code.
  /// Answers --help, `help VERB` and --version on rank 0. Throws CommandLineError, with the nearest verb or
  /// option in the hint, if the words do not fit; then no action is done.
  ExitCode run(const Arguments& words);

 private:
  friend class Verb;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
