#include "train/commands/command_line.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "data/process/shell_word.h"
#include "model/core/number.h"
#include "parallel/launch_environment.h"
#include "train/config/config_keys.h"
#include "train/config/nearest_name.h"
#include "train/report/standard_streams.h"

namespace ripstop {

struct CommandLine::State {
  ProgramTexts texts;
  CLI::App app;
  // run() calls an action after the parse.
  std::map<const CLI::App*, std::function<ExitCode()>> actions;
  // Sections set by Verb::set_override_section. Other verbs take keys of all sections.
  std::map<const CLI::App*, std::string> override_sections;
};

namespace {

// The verbs directly below `app`. Without a filter CLI11 would return only the verbs that it has parsed.
std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "ripstop checkpoint list".
std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

// Prints on rank 0 only, because the launcher starts the program on every rank.
void print_once(const std::string& text) {
  if (launch_rank() == 0) print_out("{}", text);
}

// The program's help text, without hidden verbs.
std::string help_text(const ProgramTexts& texts, const CLI::App& app) {
  std::string text = fmt::format("{}\n\nusage: {} VERB [arguments]\n\n", texts.title, texts.name);
  for (const CLI::App* verb : verbs_of(app)) {
    const std::string about = verb->get_description();  // the first line is the summary
    if (!verb->get_group().empty())
      text += fmt::format("  {:<12}{}\n", verb->get_name(), about.substr(0, about.find('\n')));
  }
  text += fmt::format("\n  {} VERB --help   shows its options and an example\n", texts.name);
  text += fmt::format("  {} --version     version and commit\n\n{}\n", texts.name, texts.closing);
  return text;
}

std::string names_of_verbs(const CLI::App& above) {
  Arguments names;
  for (const CLI::App* verb : verbs_of(above))
    if (!verb->get_group().empty()) names.push_back(verb->get_name());
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void refuse_verb(const CLI::App& above, const std::string& word) {
  Arguments names;
  for (const CLI::App* verb : verbs_of(above)) names.push_back(verb->get_name());
  const std::string meant = suggest(word, names);
  std::string hint = meant.empty() ? "" : fmt::format("did you mean '{}'?", meant);
  if (above.get_parent() != nullptr)
    hint += fmt::format("{}{} has {}", hint.empty() ? "" : " ", path_of(above), names_of_verbs(above));
  else if (meant.empty())  // too many verbs for one line
    hint = fmt::format("{} --help lists the verbs", path_of(above));
  throw CommandLineError(fmt::format("unknown verb '{}'", word), hint);
}

// The verb that the first words name. Throws CommandLineError for a wrong or missing verb. Called before the
// parse, because CLI11 would skip a wrong word, find a verb after it, and complain about a surplus argument.
const CLI::App& named_verb(const CLI::App& app, const Arguments& words) {
  const CLI::App* found = &app;
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> verbs = verbs_of(*found);
    if (verbs.empty() || found->get_option_no_throw(word) != nullptr) return *found;
    const auto verb = std::find_if(verbs.begin(), verbs.end(),
                                   [&](const CLI::App* each) { return each->get_name() == word; });
    if (verb == verbs.end()) {
      // Does not refuse an unknown option after a verb: the parse in run() has a better message.
      if (found != &app && word.rfind('-', 0) == 0) return *found;
      refuse_verb(*found, word);
    }
    found = *verb;
  }
  if (verbs_of(*found).empty()) return *found;
  // A person who types no verb wants to see the verbs.
  print_once(found->get_parent() == nullptr ? found->help() : found->help(path_of(*found->get_parent())));
  throw CommandLineError("a verb is required", fmt::format("one of {}", names_of_verbs(*found)));
}

// An option that the verb does not have: "--name VALUE" or "--name=VALUE".
struct UnknownOption {
  std::string name;   // without leading dashes
  std::string value;  // "..." if no value follows
};

std::vector<UnknownOption> unknown_options(const CLI::App& verb, const Arguments& words) {
  std::vector<UnknownOption> unknown;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (name.rfind("--", 0) != 0 || verb.get_option_no_throw(name) != nullptr) continue;
    const bool value_follows = i + 1 < words.size() && words[i + 1].rfind("--", 0) != 0 &&
                               words[i + 1].find('=') == std::string::npos;
    const bool has_value = name.size() + 1 < words[i].size();  // "--name=" has no value
    unknown.push_back({name.substr(2), has_value       ? words[i].substr(name.size() + 1)
                                       : value_follows ? words[i + 1]
                                                       : "..."});
  }
  return unknown;
}

// The value of `key` for an unknown option: --bf16 true becomes precision.compute=bfloat16.
std::string override_value(const UnknownOption& option, const std::string& key) {
  if (key != "precision.compute" || (option.name != "bf16" && option.name != "fp16")) return option.value;
  return suggest(option.value, {"true", "false"}) == "false" ? "float32" : "bfloat16";
}

// People type keys of the config as options, as for other trainers: --learning_rate 1e-3,
// --optimizer.lr=1e-3. The hint shows the overrides to type instead. `section`: the section that
// Verb::set_override_section has set; "": all sections.
[[noreturn]] void refuse_options(const CLI::App& verb, const std::string& section,
                                 const std::vector<UnknownOption>& unknown) {
  Arguments known, names, nearest, overrides, kept, hints;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const UnknownOption& option : unknown) {
    names.push_back("--" + option.name);
    std::string name = option.name;
    std::ranges::replace(name, '-', '_');
    if (std::string answer = answer_to(name); !answer.empty()) {
      hints.push_back(std::move(answer));
    } else if (std::string near = nearest_name(names.back(), known); !near.empty()) {
      nearest.push_back(std::move(near));
    } else if (verb.get_option_no_throw("overrides") != nullptr) {
      const size_t dot = name.find('.');
      const std::string of = dot == std::string::npos ? "generation" : name.substr(0, dot);
      const Arguments keys = suggest_keys(of, dot == std::string::npos ? name : name.substr(dot + 1));
      if (keys.empty()) continue;
      if (section.empty() || keys.front().starts_with(section + "."))
        overrides.push_back(keys.front() + "=" + override_value(option, keys.front()));
      else
        kept.push_back(keys.front());
    }
  }
  if (!nearest.empty())
    hints.insert(hints.begin(), fmt::format("did you mean {}?", fmt::join(nearest, ", ")));
  if (!overrides.empty())
    hints.push_back(fmt::format("overrides are {}.key=value: {}", section.empty() ? "section" : section,
                                fmt::join(overrides, " ")));
  if (!kept.empty())
    hints.push_back(fmt::format("a trained model keeps the {} of its config", fmt::join(kept, ", ")));
  if (hints.empty()) hints.push_back(path_of(verb) + " --help lists its options");
  throw CommandLineError(fmt::format("{} has no option{} {}", path_of(verb), unknown.size() == 1 ? "" : "s",
                                     fmt::join(names, ", ")),
                         fmt::format("{}", fmt::join(hints, " ")));
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
  const auto refuse_others = [words, name = option_->get_name()](std::string& word) {
    if (std::ranges::find(words, word) != words.end()) return std::string();
    const std::string meant = suggest(word, words);
    // A thrown error has a hint; a text returned to CLI11 would have none.
    throw CommandLineError(
        fmt::format("{}: there is no '{}', it is one of {}", name, word, fmt::join(words, ", ")),
        meant.empty() ? "" : fmt::format("did you mean {} {}?", name, meant));
  };
  option_->check(CLI::Validator(refuse_others, fmt::format("{{{}}}", fmt::join(words, ","))));
  return *this;
}
Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}

bool Option::is_given() const {
  return option_->count() > 0;
}
std::string Option::name() const {
  return option_->get_name();
}

template <class T>
Option Verb::option(const std::string& name, T& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
template Option Verb::option(const std::string&, std::string&, const std::string&);
template Option Verb::option(const std::string&, int64_t&, const std::string&);
template Option Verb::option(const std::string&, uint64_t&, const std::string&);
template Option Verb::option(const std::string&, double&, const std::string&);
template Option Verb::option(const std::string&, Arguments&, const std::string&);
template <class T>
Option Verb::path(const std::string& name, T& value, const std::string& help) {
  const auto expand = [name](std::string& text) {
    const std::optional<std::string> path = with_home(text);
    if (!path)
      throw CommandLineError(fmt::format("{}: '{}' has no known home directory", name, text), kNoHomeHint);
    text = *path;
    return std::string();
  };
  return Option(*app_->add_option(name, value, help)->transform(CLI::Validator(expand, "")));
}
template Option Verb::path(const std::string&, std::string&, const std::string&);
template Option Verb::path(const std::string&, Arguments&, const std::string&);
Option Verb::flag(const std::string& name, bool& value, const std::string& help) {
  return Option(*app_->add_flag(name, value, help));
}

Verb Verb::verb(const std::string& name, const std::string& summary) {
  // Only one verb is parsed, so a later word such as `list`, perhaps a run directory, is an argument.
  app_->require_subcommand(1);
  return {*line_, *app_->add_subcommand(name, summary)};
}
void Verb::hide() {
  app_->group("");
}
void Verb::add_details(const std::string& text) {
  app_->description(app_->get_description() + "\n" + text);
}
void Verb::set_override_section(const std::string& section) {
  line_->state_->override_sections[app_] = section;
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
  // Sets the program's formatter after all verbs are added, because later verbs would inherit it.
  app.formatter_fn([this](const CLI::App* program, const std::string&, CLI::AppFormatMode) {
    return help_text(state_->texts, *program);
  });
  if (!words.empty() && words.front() == "help") {
    Arguments asked(words.begin() + 1, words.end());
    asked.emplace_back("--help");
    return run(asked);
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
    if (const auto unknown = unknown_options(verb, words); !unknown.empty())
      refuse_options(verb, state_->override_sections[&verb], unknown);
    throw CommandLineError(error.what(), path_of(verb) + " --help shows an example");
  }
  return state_->actions.at(&verb)();
}

}  // namespace ripstop
