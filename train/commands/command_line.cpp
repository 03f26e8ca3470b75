#include "train/commands/command_line.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <utility>

#include "model/core/number.h"
#include "parallel/launcher.h"
#include "train/config/nearest_name.h"

namespace ripstop {

struct CommandLine::State {
  ProgramTexts texts;
  CLI::App app;
  // The action of each verb. It runs after the parse, so that errors of a command are not taken for errors of
  // its words.
  std::map<const CLI::App*, std::function<ExitCode()>> actions;
};

namespace {

// The filter lets all verbs through. Without one CLI11 returns only those that it has parsed.
std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "ripstop checkpoint list".
std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

// The launcher starts the program on every rank, but people want to read a text once.
void print_once(const std::string& text) {
  if (launch_rank() == 0) fmt::print("{}", text);
}

// A verb's description without the details below it.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// A list of verbs on one page. CLI11's own help prints the options of all verbs, too.
std::string help_text(const ProgramTexts& texts, const CLI::App& app) {
  std::string text = fmt::format("{}\n\nusage: {} VERB [arguments]\n\n", texts.title, texts.name);
  for (const CLI::App* verb : verbs_of(app))
    if (!verb->get_group().empty())
      text += fmt::format("  {:<12}{}\n", verb->get_name(), first_line(verb->get_description()));
  text += fmt::format("\n  {} VERB --help   shows its options and an example\n", texts.name);
  text += fmt::format("  {} --version     version and commit\n\n{}\n", texts.name, texts.closing);
  return text;
}

[[noreturn]] void refuse_verb(const CLI::App& above, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs_of(above)) names.push_back(verb->get_name());
  const std::string nearest = nearest_name(word, names);
  throw CommandLineError(fmt::format("unknown verb '{}'", word),
                         nearest.empty() ? fmt::format("{} --help lists the verbs", path_of(above))
                                         : fmt::format("did you mean '{}'?", nearest));
}

// The verb that the first words name. CLI11 would look for a verb after a wrong word too, and then complain
// about the wrong word as a surplus argument; so verbs are checked here before it parses.
const CLI::App& named_verb(const CLI::App& app, const Arguments& words) {
  const CLI::App* found = &app;
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> verbs = verbs_of(*found);
    if (verbs.empty() || found->get_option_no_throw(word) != nullptr) return *found;
    const auto verb = std::find_if(verbs.begin(), verbs.end(),
                                   [&](const CLI::App* each) { return each->get_name() == word; });
    if (verb == verbs.end()) {
      // An unknown option after a verb is CLI11's to refuse: its message says "argument", not "verb".
      if (found != &app && word.rfind('-', 0) == 0) return *found;
      refuse_verb(*found, word);
    }
    found = *verb;
  }
  if (!verbs_of(*found).empty())
    throw CommandLineError("a verb is required", fmt::format("{} --help lists the verbs", path_of(*found)));
  return *found;
}

// The known option next to the first unknown one; "" if all are known or none is near.
std::string nearest_option(const CLI::App& verb, const Arguments& words) {
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name.rfind("--", 0) != 0 || std::find(known.begin(), known.end(), name) != known.end()) continue;
    return nearest_name(name, known);
  }
  return "";
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}
Option Option::positive() {
  option_->check(CLI::Validator(
      [](std::string& text) {
        const bool fits = parse_whole_number(text).value_or(0) > 0;
        return fits ? std::string() : fmt::format("'{}' is not an integer above 0", text);
      },
      "POSITIVE"));
  return *this;
}
Option Option::range(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option Option::choices(const Arguments& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}
Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option Verb::option(const std::string& name, std::string& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Verb::option(const std::string& name, int64_t& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Verb::option(const std::string& name, uint64_t& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Verb::option(const std::string& name, double& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Verb::option(const std::string& name, Arguments& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
void Verb::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

Verb Verb::verb(const std::string& name, const std::string& summary) {
  // At most one as well: a later word that spells a verb, such as a run directory `list`, is an argument.
  app_->require_subcommand(1);
  return {*line_, *app_->add_subcommand(name, summary)};
}
void Verb::hide() {
  app_->group("");
}
void Verb::add_details(const std::string& text) {
  app_->description(app_->get_description() + "\n" + text);
}
void Verb::set_example(const std::string& text) {
  app_->footer("Example:\n  " + text + "\n");
}
void Verb::set_action(std::function<ExitCode()> action) {
  line_->state_->actions[app_] = std::move(action);
}

CommandLine::CommandLine(ProgramTexts texts) : state_(std::make_unique<State>()) {
  state_->texts = std::move(texts);
  state_->app.name(state_->texts.name);
  state_->app.set_version_flag("--version", state_->texts.version);
}

CommandLine::~CommandLine() = default;

Verb CommandLine::verb(const std::string& name, const std::string& summary) {
  return Verb(*this, state_->app).verb(name, summary);
}

ExitCode CommandLine::run(const Arguments& words) {
  CLI::App& app = state_->app;
  // Set after the verbs were added, which else would inherit it.
  app.formatter_fn([this](const CLI::App* program, const std::string&, CLI::AppFormatMode) {
    return help_text(state_->texts, *program);
  });
  if (!words.empty() && words.front() == "help") {
    print_once(app.help());
    return ExitCode::kOk;
  }
  const CLI::App& verb = named_verb(app, words);
  try {
    app.parse(Arguments(words.rbegin(), words.rend()));  // CLI11 takes the words from the back
  } catch (const CLI::CallForHelp&) {
    print_once(app.help());
    return ExitCode::kOk;
  } catch (const CLI::CallForVersion&) {
    print_once(state_->texts.version + "\n");
    return ExitCode::kOk;
  } catch (const CLI::ParseError& error) {
    const std::string nearest = nearest_option(verb, words);
    throw CommandLineError(error.what(), nearest.empty() ? path_of(verb) + " --help shows an example"
                                                         : "did you mean " + nearest + "?");
  }
  return state_->actions.at(&verb)();
}

}  // namespace ripstop
