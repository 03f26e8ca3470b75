// Reads TOML. Only this file includes toml++.
#include "train/config/config_entries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <ranges>
#include <sstream>

#include "data/process/shell_word.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

// A config has about a hundred lines: far larger files are refused before toml++ spends time on them.
constexpr size_t kLargestFileBytes = size_t{1} << 20;
// Also limits the depth of dotted keys: toml++ recurses into them.
constexpr size_t kLongestLineBytes = 4096;
constexpr size_t kShown = 80;                         // bytes of a value or line in a message
constexpr const char* kCommandLine = "command line";  // ConfigEntry::where of an override
// Finding a hint takes a millisecond, and a damaged file may have many problems.
constexpr size_t kMostHints = 1000;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (const auto line : std::views::split(text, '\n')) lines.emplace_back(line.begin(), line.end());
  return lines;
}

void check_text(std::string_view text, const std::string& name) {
  // ">" of Windows PowerShell writes UTF-16.
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    throw Error(ExitCode::kUsage, fmt::format("{}: UTF-16, expected UTF-8", name),
                fmt::format("iconv -f UTF-16 -t UTF-8 {} > NEW.toml, and give NEW.toml", shell_word(name)));
  if (text.size() > kLargestFileBytes)
    throw Error(ExitCode::kUsage,
                fmt::format("{}: larger than {} bytes, the limit for a config", name, kLargestFileBytes),
                "is it another file? give a TOML file, as in ripstop train CONFIG.toml");
  size_t number = 0;
  for (const std::string_view line : lines_of(text))
    if (++number; line.size() > kLongestLineBytes)
      fail(ExitCode::kUsage, "{}:{}: line of {} bytes, at most {} are accepted", name, number, line.size(),
           kLongestLineBytes);
}

// The first line that assigns `key` in the section of `last_line`; 0 if none before `last_line` does. toml++
// reports only the second line of a key that is given twice.
size_t first_line_of(std::string_view text, const std::string& key, size_t last_line) {
  size_t found = 0, number = 0;
  for (const std::string_view line : lines_of(text)) {
    if (++number == last_line) break;
    const std::vector<std::string_view> words = words_in(line, " \t=");
    if (!words.empty() && words[0].starts_with('[')) found = 0;
    if (!words.empty() && words[0] == key && found == 0) found = number;
  }
  return found;
}

// Line `number` for a message; "" if it has unprintable characters. Names the first character that is not
// ASCII, because a round quote or a long dash looks like a plain one.
std::string shown_line(std::string_view text, size_t number) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::string line(number <= lines.size() ? lines[number - 1] : "");
  line.erase(line.find_last_not_of(" \t\r") + 1);
  if (invalid_utf8(line) ||
      std::ranges::any_of(line, [](unsigned char c) { return c != '\t' && (c < 0x20 || c == 0x7f); }))
    return "";
  std::string note;
  const auto at = std::ranges::find_if(line, [](unsigned char c) { return c > 0x7f; });
  if (const std::string_view odd(at, line.end()); !odd.empty())
    note = fmt::format(" (with U+{:04X}: quotes, minus and space are plain \" - and space in TOML)",
                       code_point(odd.substr(0, sequence_bytes(odd))));
  return begin_of(line, kShown) + note;
}

// `word` as a TOML value: unchanged if it is one; True, and numbers such as .003, 3. and 03, in TOML's
// spelling; any other word, such as runs/first, in quotes.
std::string as_value(std::string word) {
  if (word == "True" || word == "False") word[0] = static_cast<char>(word[0] + 'a' - 'A');
  try {
    static_cast<void>(toml::parse("value = " + word));
    return word;
  } catch (const toml::parse_error&) {
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    if (*end != '\0' || !std::isfinite(number)) return toml_string(word);
    std::string text = toml_number(number);
    if (text.ends_with(".0")) text.resize(text.size() - 2);  // without ".0" it also fits integer keys
    return text;
  }
}

// The hint for a line as in YAML, JSON or Python, or a text without quotes; "" for other lines.
std::string foreign_line_hint(std::string_view line) {
  line = line.substr(0, line.find(" #"));
  const std::string all = trimmed(line, " \t\r");
  if (all.starts_with("//") || all.starts_with(';')) return "a comment begins with #";
  if (all.starts_with('{') || all == "---")
    return "a config is TOML: [run], and directory = \"runs/first\" below it";
  const size_t sign = line.find_first_of(":=");
  if (sign == std::string_view::npos || all.starts_with('[')) return "";
  const std::string name = trimmed(line.substr(0, sign), " \t-\""),
                    word = trimmed(line.substr(sign + 1), " \t\r,");
  const bool is_yaml = line[sign] == ':';
  if (word.empty()) return is_yaml ? fmt::format("a config is TOML: [{}]", name) : "";
  const std::string value = as_value(word);
  if (!is_yaml && value[0] == '"' && std::isalpha(static_cast<unsigned char>(word[0])) == 0 &&
      std::string_view("/.~").find(word[0]) == std::string_view::npos)
    return "";
  if (is_yaml) return fmt::format("a config is TOML: {} = {}", name, value);
  if (value == word) return "";
  return fmt::format("write {} = {}{}", name, value, value[0] == '"' ? ": a text needs quotes" : "");
}

[[noreturn]] void refuse_syntax(const toml::parse_error& error, std::string_view text,
                                const std::string& name) {
  const std::string description(error.description());
  const uint32_t line = error.source().begin.line;
  // Names both lines of a key that is given twice, so that people can choose one.
  const size_t quote = description.find('\'');
  if (description.find("cannot redefine") != std::string::npos && quote != std::string::npos) {
    const std::string key = description.substr(quote + 1, description.rfind('\'') - quote - 1);
    const size_t first = first_line_of(text, key, line);
    const std::string lines = first != 0 ? fmt::format(" (lines {} and {})", first, line) : "";
    refuse(fmt::format("{}:{}", name, line), fmt::format("'{}' is given twice{}", key, lines),
           "keep one of the two");
  }
  const std::string shown = shown_line(text, line);
  // foreign_line_hint() repeats the value: it gets only a line that is shown whole and unchanged.
  const bool is_whole = !shown.ends_with("...") && shown.find(" (with U+") == shown.npos;
  std::string hint = is_whole ? foreign_line_hint(shown) : "";
  if (hint.empty() && !shown.empty()) hint = fmt::format("the line is: {}", shown);
  refuse(fmt::format("{}:{}:{}", name, line, error.source().begin.column), description, hint);
}

// The value as text, shortened to fit into a line of a message.
std::string shown(const toml::node& value) {
  if (value.is_table()) return "a table";
  if (value.is_array() && value.as_array()->size() > 4) return "an array";
  std::ostringstream text;
  if (const toml::array* array = value.as_array()) {
    for (const toml::node& element : *array) text << (text.tellp() > 0 ? ", " : "[") << shown(element);
    text << (array->empty() ? "[]" : "]");
  } else if (const auto string = value.value_exact<std::string>()) {
    text << toml_string(*string);
  } else if (const auto number = value.value_exact<double>()) {
    text << toml_number(*number);  // toml++ writes 0.03 as 0.029999999999999999
  } else {
    value.visit([&](const auto& concrete) { text << concrete; });
  }
  return begin_of(text.str(), kShown);
}

ConfigValue plain_value(const toml::node& node) {
  // value_exact does not convert: 1 must not become true.
  if (const auto value = node.value_exact<bool>()) return *value;
  if (const auto value = node.value_exact<int64_t>()) return *value;
  if (const auto value = node.value_exact<double>()) return *value;
  if (const auto value = node.value_exact<std::string>()) return *value;
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::monostate{};
  std::vector<double> numbers;
  std::vector<std::string> words;
  // Numbers may mix integers and floats: people write [0, 0.95].
  for (const toml::node& element : *array) {
    if (element.is_number()) numbers.push_back(*element.value<double>());
    if (element.is_string()) words.push_back(*element.value<std::string>());
  }
  if (!words.empty() && words.size() == array->size()) return words;
  if (numbers.size() == array->size()) return numbers;
  return std::monostate{};
}

bool is_section(std::string_view name) {
  return std::ranges::find(config_keys(), name, &ConfigKey::section) != config_keys().end();
}

void add_unknown(ConfigProblems& problems, const std::string& where, int64_t line, const std::string& section,
                 const std::string& key) {
  const std::string path = section.empty() ? key : section + "." + key;
  problems.push_back({line, fmt::format("{}: unknown key '{}'", where, path),
                      problems.size() < kMostHints ? suggest_config_key(section, key) : ""});
}

void read_section(const std::string& section, const toml::table& table, const std::string& name,
                  std::vector<ConfigEntry>& entries, ConfigProblems& problems) {
  for (const auto& [key_node, value] : table) {
    const std::string key_name(key_node.str());
    const uint32_t line = value.source().begin.line;
    const std::string where = fmt::format("{}:{}", name, line);
    if (const ConfigKey* key = find_config_key(section, key_name); key != nullptr)
      entries.push_back({key, plain_value(value), shown(value), where, line});
    else
      add_unknown(problems, where, line, section, key_name);
  }
}

// Reads the file's entries. Adds unknown keys and sections, and sections given as keys, to `problems`. Sets
// `empty_lora` to the line of a [lora] without keys, whose author wants adapters.
std::vector<ConfigEntry> read_file_entries(std::string_view text, const std::string& name,
                                           ConfigProblems& problems, std::optional<uint32_t>& empty_lora) {
  toml::table document;
  try {
    document = toml::parse(text, std::string_view(name));
  } catch (const toml::parse_error& error) {
    refuse_syntax(error, text, name);
  }
  std::vector<ConfigEntry> entries;
  for (const auto& [section_node, value] : document) {
    const std::string section(section_node.str());
    const uint32_t line = value.source().begin.line;
    const std::string where = fmt::format("{}:{}", name, line);
    const toml::table* table = value.as_table();
    if (table != nullptr && table->empty() && section == "lora") empty_lora = line;
    if (table != nullptr && is_section(section))
      read_section(section, *table, name, entries, problems);
    else if (table != nullptr)
      problems.push_back(
          {line, fmt::format("{}: unknown section [{}]", where, section), suggest_config_section(section)});
    else if (is_section(section))
      problems.push_back({line, fmt::format("{}: '{}' is a section, not a key", where, section),
                          fmt::format("[{}]", section)});
    else
      add_unknown(problems, where, line, "", section);
  }
  // Restores the order of the file: toml++ sorts sections and keys by name.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const ConfigEntry& a, const ConfigEntry& b) { return a.line < b.line; });
  return entries;
}

// Parses an override's value. Words need no quotes, because shells remove quotes; other values are TOML.
ConfigEntry parse_override_value(const ConfigKey& key, const std::string& text) {
  RunConfig any;
  const Field field = key.field(any);
  const bool is_word =
      std::holds_alternative<std::string*>(field) || std::holds_alternative<ChoiceField>(field);
  const bool is_quoted = !text.empty() && (text.front() == '"' || text.front() == '\'');
  if (!is_word || is_quoted) {
    // A list may lack its brackets: 0.9,0.95.
    const bool is_list = std::holds_alternative<std::array<double, 2>*>(field) ||
                         std::holds_alternative<std::vector<int32_t>*>(field) ||
                         std::holds_alternative<std::optional<std::vector<int64_t>>*>(field) ||
                         std::holds_alternative<std::vector<double>*>(field);
    const bool is_bare = is_list && !text.starts_with('[');
    try {
      const toml::table parsed = toml::parse(is_bare ? "value = [" + text + "]" : "value = " + text);
      const toml::node* value = parsed.get("value");
      if (parsed.size() == 1 && value != nullptr)
        return {&key, plain_value(*value), shown(*value), kCommandLine, 0};
    } catch (const toml::parse_error&) {
      // The text is a bare word such as auto, words of a list, or nonsense, which assign_value refuses.
    }
  }
  const std::string shown_text = toml_string(begin_of(text, kShown));
  const bool has_words =
      std::holds_alternative<WordsField>(field) || std::holds_alternative<std::vector<std::string>*>(field);
  if (has_words && !text.empty()) {
    // Reads a list whose quotes a shell has removed: "[q_proj, v_proj]", "q_proj,v_proj".
    std::string bare = trimmed(text, " ");
    if (bare.starts_with('[') && bare.ends_with(']')) bare = bare.substr(1, bare.size() - 2);
    std::vector<std::string> words;
    for (const auto word : std::views::split(bare, ','))
      words.push_back(trimmed(std::string_view(word.begin(), word.end()), " "));
    return {&key, std::move(words), shown_text, kCommandLine, 0};
  }
  return {&key, text, shown_text, kCommandLine, 0};
}

// Returns nullopt and adds a problem if `text` is not section.key=value or too long, or its key is unknown.
std::optional<ConfigEntry> read_override(const std::string& text, ConfigProblems& problems) {
  const size_t equals = text.find('=');
  const bool is_long = text.size() > kLongestLineBytes;
  if (is_long || equals == std::string::npos) {
    const std::string what =
        is_long ? fmt::format("has {} bytes, at most {} are accepted", text.size(), kLongestLineBytes)
                : "is not section.key=value";
    problems.push_back(
        {0, fmt::format("{}: '{}' {}", kCommandLine, begin_of(text, kShown), what), "as in train.steps=100"});
    return std::nullopt;
  }
  std::string path = text.substr(0, equals);
  // Accepts --train.steps=100, as people type for other programs.
  path.erase(0, path.find_first_not_of('-') == std::string::npos ? 0 : path.find_first_not_of('-'));
  const size_t dot = path.find('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
  if (const ConfigKey* key = find_config_key(section, name); key != nullptr)
    return parse_override_value(*key, text.substr(equals + 1));
  add_unknown(problems, kCommandLine, 0, section, name);
  return std::nullopt;
}

// Whether an override removes the file's `entry`: both set one key, or they exclude each other.
bool displaces(const ConfigEntry& override_entry, const ConfigEntry& entry) {
  const std::string by = override_entry.key->path();
  const std::string of = entry.key->path();
  if (by == of) return true;
  if (by == "train.steps") return of == "train.epochs";
  if (by == "train.epochs") return of == "train.steps";
  if (by == "data.directory") return of == "data.directories" || of == "data.weights";
  if (by == "data.directories") return of == "data.directory";
  // A pretrained model has its own sizes, so the file's preset and sizes are removed.
  if (by == "model.pretrained") return entry.key->section == "model" && of != "model.resize_vocabulary";
  if (by == "model.preset") return of == "model.pretrained" || of == "model.resize_vocabulary";
  // With another schedule the file's keys of wsd have no meaning.
  if (by == "schedule.kind" && override_entry.value != ConfigValue("wsd")) return is_of_wsd(*entry.key);
  // Without adapters the file's other keys of [lora] have no meaning.
  if (by == "lora.rank" && override_entry.value == ConfigValue(int64_t{0}))
    return entry.key->section == "lora";
  return false;
}

std::vector<ConfigEntry> with_overrides(std::vector<ConfigEntry> entries,
                                        std::span<const std::string> overrides, ConfigProblems& problems) {
  std::vector<ConfigEntry> given;
  while (!overrides.empty()) {
    // An override with spaces, key = value, comes from a shell in up to three words.
    std::string joined = overrides.front();
    size_t count = 1;
    while (count < overrides.size() &&
           (joined.ends_with('=')
                ? overrides[count].find('=') == std::string::npos
                : joined.find('=') == std::string::npos && overrides[count].starts_with('=')))
      joined += overrides[count++];
    std::optional<ConfigEntry> entry;
    if (count == 1)
      entry = read_override(joined, problems);
    else
      problems.push_back({0,
                          fmt::format("{}: '{:.80}' has spaces", kCommandLine,
                                      fmt::format("{}", fmt::join(overrides.first(count), " "))),
                          "no spaces around =: " + shell_word(begin_of(joined, kShown))});
    overrides = overrides.subspan(count);
    if (!entry) continue;
    // The last override of a key wins, because people append to a command.
    std::erase_if(given, [&](const ConfigEntry& earlier) { return earlier.key == entry->key; });
    given.push_back(std::move(*entry));
  }
  for (const ConfigEntry& entry : given)
    std::erase_if(entries, [&](const ConfigEntry& other) { return displaces(entry, other); });
  std::move(given.begin(), given.end(), std::back_inserter(entries));
  return entries;
}

}  // namespace

void refuse(const std::string& where, const std::string& what, const std::string& hint) {
  throw Error(ExitCode::kUsage, where + ": " + what, hint);
}

void refuse_problems(ConfigProblems problems) {
  if (problems.empty()) return;
  if (problems.size() == 1) throw Error(problems[0].code, problems[0].text, problems[0].hint);
  std::ranges::stable_sort(problems, {}, [](const ConfigProblem& problem) {
    return problem.line > 0 ? problem.line : std::numeric_limits<int64_t>::max();
  });
  std::string all;
  for (size_t i = 0; i < std::min(problems.size(), kMostProblemsShown); ++i) {
    const auto& [line, text, hint, code] = problems[i];
    all += (i == 0 ? "" : ";\n") + text + (hint.empty() ? "" : " (" + hint + ")");
  }
  if (problems.size() > kMostProblemsShown)
    all += fmt::format(";\nand {} more", problems.size() - kMostProblemsShown);
  throw Error(ExitCode::kUsage, all, "docs/config.md lists every key with its values");
}

std::vector<ConfigEntry> read_config_entries(std::string_view toml, const std::string& name,
                                             std::span<const std::string> overrides,
                                             ConfigProblems& problems) {
  check_text(toml, name);
  std::optional<uint32_t> empty_lora;
  std::vector<ConfigEntry> entries =
      with_overrides(read_file_entries(toml, name, problems, empty_lora), overrides, problems);
  const auto is_of_lora = [](const ConfigEntry& entry) { return entry.key->section == "lora"; };
  if (empty_lora && std::ranges::none_of(entries, is_of_lora))
    problems.push_back(
        {*empty_lora,
         fmt::format("{}:{}: [lora] is empty, so all weights would be trained", name, *empty_lora),
         "set lora.rank, such as 16, and lora.alpha, or leave [lora] out"});
  return entries;
}

}  // namespace ripstop
