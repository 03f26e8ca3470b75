// A wrapper around CLI11. Only command_line.cpp includes CLI11, which takes ten seconds to compile.
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

/// Words of the command line, without the program's name.
using Arguments = std::vector<std::string>;

/// A wrong command line. Ranks usually have the same words, so only rank 0 prints the error.
class CommandLineError : public Error {
 public:
  explicit CommandLineError(const std::string& what, const std::string& hint)
      : Error(ExitCode::kUsage, what, hint) {}
};

/// An option or a positional argument. Calls of its functions can be chained.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option required();
  /// Accepts only integers > 0.
  Option positive();
  /// Accepts only integers from `least` to `most`.
  Option range(int64_t least, int64_t most);
  /// Accepts only these words. The hint for another word names the nearest: bfloat16 for bf16.
  Option choices(const Arguments& words);
  /// Shows the variable's present value as the default in the help text.
  Option show_default();

  /// Whether the command line has this option. Valid after the parse, for example in the verb's action.
  bool is_given() const;
  /// "--name", or the name of a positional argument.
  std::string name() const;

 private:
  CLI::Option* option_;
};

class CommandLine;

/// One verb: its options, its example, its action. The variables of its options must live until the action is
/// done; usually the action holds them in a shared_ptr.
class Verb {
 public:
  Verb(CommandLine& line, CLI::App& app) : line_(&line), app_(&app) {}

  /// Adds an option "--name", or a positional argument if `name` has no dashes. `value` changes only if the
  /// option is given. T: std::string, int64_t, uint64_t, double, or Arguments, which takes several words.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& help);
  /// Adds an option for a path, or for several. "~" or "~/" at the start of a word becomes the home
  /// directory, as in a shell. T: std::string or Arguments.
  template <class T>
  Option path(const std::string& name, T& value, const std::string& help);
  /// Adds a flag, an option without a value, that sets `value` to true.
  Option flag(const std::string& name, bool& value, const std::string& help);

  /// Adds a subverb, as `list` in `checkpoint list`. The command line must then name one of the subverbs.
  Verb verb(const std::string& name, const std::string& summary);
  /// Leaves the verb out of the program's help text.
  void hide();
  /// Adds lines to the verb's own help text, below the summary.
  void add_details(const std::string& text);
  /// The verb's "overrides" take only keys of this section of the config, so hints suggest no other keys.
  void set_override_section(const std::string& section);
  /// Sets the command lines at the end of the verb's help text. Every verb has at least one line.
  void set_example(const std::string& text);
  /// Sets the function that CommandLine::run() calls after all variables are set.
  void set_action(std::function<ExitCode()> action);

 private:
  CommandLine* line_;
  CLI::App* app_;
};

struct ProgramTexts {
  std::string name;     ///< "ripstop"
  std::string title;    ///< the first line of the help text
  std::string version;  ///< the line of --version
  std::string closing;  ///< the last lines of the help text
};

/// The command line of a program with verbs: add the verbs, then call run().
class CommandLine {
 public:
  explicit CommandLine(ProgramTexts texts);
  ~CommandLine();

  /// `summary`: the verb's line in the help text.
  Verb verb(const std::string& name, const std::string& summary);

  /// Runs the action of the verb that `words` name, and returns its exit code. Answers --help, `help VERB`
  /// and --version on rank 0. Throws CommandLineError before any action if the words are no valid command
  /// line; the hint may name the nearest verb or option.
  ExitCode run(const Arguments& words);

 private:
  friend class Verb;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
