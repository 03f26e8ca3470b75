// The command line: verbs and their options, a wrapper around CLI11. Only command_line.cpp includes CLI11,
// which takes ten seconds to compile.
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

/// The words of a command line, without the program's name.
using Arguments = std::vector<std::string>;

/// An error in the words of the command line. All ranks get the same words, so only rank 0 prints it.
class CommandLineError : public Error {
 public:
  explicit CommandLineError(const std::string& what, const std::string& hint)
      : Error(ExitCode::kUsage, what, hint) {}
};

/// An option or a positional argument of a verb. Calls that restrict it return it, to be chained.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  /// Refuses a command line without this option.
  Option required();
  /// Accepts only integers > 0.
  Option positive();
  /// Accepts only integers from `least` to `most`.
  Option range(int64_t least, int64_t most);
  /// Accepts only these words. The hint for another word names the nearest of them: bfloat16 for bf16.
  Option choices(const Arguments& words);
  /// Shows the variable's present value as the default in the help text.
  Option show_default();

  /// Whether the command line gives this option. For the verb's action, after the parse.
  bool is_given() const;
  /// The name as people type it: "--name", or the name of a positional argument.
  std::string name() const;

 private:
  CLI::Option* option_;
};

class CommandLine;

/// One verb: its options, its example, its action. Variables given to option() and flag() must live until the
/// action is done; usually the action holds them in a shared_ptr.
class Verb {
 public:
  Verb(CommandLine& line, CLI::App& app) : line_(&line), app_(&app) {}

  /// Binds `value` to "--name", or to a positional argument if `name` has no dashes. `value` does not change
  /// if the command line lacks the option. T: std::string, int64_t, uint64_t, double, or Arguments, which
  /// takes several words.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& help);
  /// Sets `value` if the command line has "--name". A flag takes no word.
  Option flag(const std::string& name, bool& value, const std::string& help);

  /// Adds a verb below this one, as in `checkpoint list`. The command line must then name one of those below.
  Verb verb(const std::string& name, const std::string& summary);
  /// Leaves the verb out of the program's list of verbs.
  void hide();
  /// Adds lines to the verb's own help text, below the summary.
  void add_details(const std::string& text);
  /// Restricts hints for unknown options to keys of this section of the config: the only ones that the verb's
  /// "overrides" take.
  void set_override_section(const std::string& section);
  /// Sets the command lines at the end of the verb's help text. Every verb has at least one.
  void set_example(const std::string& text);
  /// Sets the work of the verb, which CommandLine::run() calls after all variables are filled.
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

  /// Fills the variables of the verb that `words` name, runs its action and returns the action's exit code.
  /// Answers --help, `help VERB` and --version on rank 0. Throws CommandLineError before any action if the
  /// words do not fit; the hint names the nearest verb or option.
  ExitCode run(const Arguments& words);

 private:
  friend class Verb;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
