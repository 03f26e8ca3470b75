// Reads TOML. Only this file includes toml++.
#include "train/config/config_entries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "data/process/shell_word.h"
#include "model/core/error.h"
#include "train/config/config_problems.h"

namespace ripstop {
namespace {

// A config has about a hundred lines. Refuse anything far larger before toml++ spends time and memory on it.
constexpr size_t kLargestFileBytes = size_t{1} << 20;
constexpr size_t kLongestLineBytes =
    4096;  // also limits how deep dotted keys can nest, because toml++ recurses

// All errors of a config begin with the place in the file, as compilers write it.
// Checks the limits above and says which line is too long.
void check_text(std::string_view text, const std::string& name) {
  if (text.size() > kLargestFileBytes)
    throw Error(ExitCode::kUsage,
                fmt::format("{}: larger than {} bytes, the limit for a config", name, kLargestFileBytes),
                "is it another file? give a TOML file, as in ripstop train CONFIG.toml");
  size_t line = 1;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > kLongestLineBytes)
      fail(ExitCode::kUsage, "{}:{}: line of {} bytes, at most {} are accepted", name, line, end - begin,
           kLongestLineBytes);
    begin = end + 1;
  }
}

// The number of the first line that assigns `key` in the section of line `last_line`; 0 if there is none.
// toml++ tells only the second place of a key that is given twice.
size_t first_line_of(std::string_view text, const std::string& key, size_t last_line) {
  size_t found = 0;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; number < last_line && std::getline(lines, line); ++number) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    if (line[begin] == '[') found = 0;
    if (line.compare(begin, key.size(), key) != 0) continue;
    const size_t after = line.find_first_not_of(" \t", begin + key.size());
    if (found == 0 && after != std::string::npos && line[after] == '=') found = number;
  }
  return found;
}

// The text of line `number`, for a message of one line; "" if it would not be readable there.
std::string shown_line(std::string_view text, size_t number) {
  constexpr size_t kShown = 80;
  size_t begin = 0;
  for (size_t line = 1; line < number; ++line) {
    begin = text.find('\n', begin);
    if (begin++ == std::string_view::npos) return "";
  }
  std::string line(text.substr(begin, text.find('\n', begin) - begin));
  const size_t last = line.find_last_not_of(" \t\r");
  line.erase(last == std::string::npos ? 0 : last + 1);
  const bool is_plain = std::ranges::all_of(
      line, [](char c) { return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f); });
  // Half a character would be no UTF-8.
  const bool is_ascii =
      std::ranges::all_of(line, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (!is_plain || !is_ascii) return "";
  return line.size() > kShown ? line.substr(0, kShown) + "..." : line;
}

[[noreturn]] void refuse_syntax(const toml::parse_error& error, std::string_view text,
                                const std::string& name) {
  const std::string description(error.description());
  const uint32_t line = error.source().begin.line;
  // toml++ names a key that is given twice, but not its first line. People need both lines to choose one.
  const size_t quote = description.find('\'');
  if (description.find("cannot redefine") != std::string::npos && quote != std::string::npos) {
    const std::string key = description.substr(quote + 1, description.rfind('\'') - quote - 1);
    const size_t first = first_line_of(text, key, line);
    const std::string lines = first != 0 ? fmt::format(" (lines {} and {})", first, line) : "";
    refuse(fmt::format("{}:{}", name, line), fmt::format("'{}' is given twice{}", key, lines),
           "keep one of the two");
  }
  const std::string shown = shown_line(text, line);
  refuse(fmt::format("{}:{}:{}", name, line, error.source().begin.column), description,
         shown.empty() ? "" : fmt::format("the line is: {}", shown));
}

// A value as an error shows it.
std::string shown(const toml::node& value) {
  if (value.is_table()) return "a table";
  // A message is one line: do not print long values.
  if (value.is_array() && value.as_array()->size() > 4) return "an array";
  std::ostringstream text;
  if (const auto string = value.value_exact<std::string>())
    text << toml_string(*string);
  else
    value.visit([&](const auto& concrete) { text << concrete; });
  const std::string result = text.str();
  return result.size() > 80 ? result.substr(0, 77) + "..." : result;
}

ConfigValue plain_value(const toml::node& node) {
  // value_exact does not convert. A 1 must not become true, and a true not 1.
  if (const auto value = node.value_exact<bool>()) return *value;
  if (const auto value = node.value_exact<int64_t>()) return *value;
  if (const auto value = node.value_exact<double>()) return *value;
  if (const auto value = node.value_exact<std::string>()) return *value;
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::monostate{};
  std::vector<double> numbers;
  std::vector<std::string> words;
  // Integers among numbers are fine: people write [0, 0.95].
  for (const toml::node& element : *array) {
    if (element.is_number()) numbers.push_back(*element.value<double>());
    if (element.is_string()) words.push_back(*element.value<std::string>());
  }
  if (!words.empty() && words.size() == array->size()) return words;
  if (numbers.size() == array->size()) return numbers;
  return std::monostate{};
}

// The words of a list without quotes, which a shell has removed: "[q_proj, v_proj]", "q_proj,v_proj".
std::vector<std::string> bare_words(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const size_t first = text.find_first_not_of(' ', begin);
    const size_t last = text.find_last_not_of(' ', end == 0 ? 0 : end - 1);
    words.emplace_back(first < end ? text.substr(first, last + 1 - first) : std::string_view{});
    begin = end + 1;
  }
  return words;
}

bool is_section(std::string_view name) {
  const auto sections = config_sections();
  return std::find(sections.begin(), sections.end(), name) != sections.end();
}

// Adds the section's entries, and a problem for each key that does not exist.
void read_section(const std::string& section, const toml::table& table, const std::string& name,
                  std::vector<ConfigEntry>& entries, ConfigProblems& problems) {
  for (const auto& [key_node, value] : table) {
    const std::string key_name(key_node.str());
    const uint32_t line = value.source().begin.line;
    const std::string where = fmt::format("{}:{}", name, line);
    if (const ConfigKey* key = find_config_key(section, key_name); key != nullptr)
      entries.push_back({key, plain_value(value), shown(value), where, line});
    else
      problems.add(line, fmt::format("{}: unknown key '{}.{}'", where, section, key_name),
                   [=] { return suggest_config_key(section, key_name); });
  }
}

// `empty_lora`: the line of a section [lora] without keys: who wrote it wants adapters.
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
      problems.add(line, fmt::format("{}: unknown section [{}]", where, section),
                   [=] { return suggest_config_section(section); });
    else if (is_section(section))
      problems.add(line, fmt::format("{}: '{}' is a section, not a key", where, section),
                   [=] { return fmt::format("[{}]", section); });
    else
      problems.add(line, fmt::format("{}: unknown key '{}' outside a section", where, section),
                   [=] { return suggest_config_key("", section); });
  }
  // toml++ gives sections and keys in alphabetical order, but people read from the top.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const ConfigEntry& a, const ConfigEntry& b) { return a.line < b.line; });
  return entries;
}

// The value of an override. Words need no quotes, because shells remove them. Numbers, booleans and arrays
// are read as TOML.
ConfigEntry parse_override_value(const ConfigKey& key, const std::string& text) {
  RunConfig any;
  const Field field = key.field(any);
  const bool is_word =
      std::holds_alternative<std::string*>(field) || std::holds_alternative<ChoiceField>(field);
  const bool is_quoted = !text.empty() && (text.front() == '"' || text.front() == '\'');
  if (!is_word || is_quoted) {
    try {
      const toml::table parsed = toml::parse("value = " + text);
      const toml::node* value = parsed.get("value");
      if (parsed.size() == 1 && value != nullptr)
        return {&key, plain_value(*value), shown(*value), kCommandLine, 0};
    } catch (const toml::parse_error&) {
      // A bare word such as auto, or nonsense. Keep it as text: the check of the type names the key.
    }
  }
  const std::string shown_text = toml_string(text.substr(0, 80));
  if (std::holds_alternative<WordsField>(field) && !text.empty())
    return {&key, bare_words(text), shown_text, kCommandLine, 0};
  return {&key, text, shown_text, kCommandLine, 0};
}

// The entry of an override; nullopt, and a problem, if there is no such key.
std::optional<ConfigEntry> read_override(const std::string& text, ConfigProblems& problems) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || text.size() > kLongestLineBytes) {
    problems.add(0, fmt::format("{}: '{}' is not section.key=value", kCommandLine, text.substr(0, 80)),
                 [] { return "as in train.steps=100"; });
    return std::nullopt;
  }
  std::string path = text.substr(0, equals);
  // People write --train.steps=100 too, as for other programs.
  path.erase(0, path.find_first_not_of('-') == std::string::npos ? 0 : path.find_first_not_of('-'));
  const size_t dot = path.find('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
  if (const ConfigKey* key = find_config_key(section, name); key != nullptr)
    return parse_override_value(*key, text.substr(equals + 1));
  problems.add(0, fmt::format("{}: unknown key '{}'", kCommandLine, path),
               [=] { return suggest_config_key(section, name); });
  return std::nullopt;
}

// How many of the words that `words` begins with are one override typed with spaces, as in key = value, which
// a shell cuts into three; 0 if the first is no such beginning.
size_t words_of_spaced(std::span<const std::string> words) {
  const std::string& first = words.front();
  const auto is_there = [&](size_t index) { return index < words.size(); };
  const bool key_alone =
      !first.empty() && first.find('=') == std::string::npos && is_there(1) && words[1].rfind('=', 0) == 0;
  if (!key_alone && (first.size() < 2 || first.find('=') != first.size() - 1)) return 0;
  const size_t count = key_alone ? 2 : 1;
  const bool value_follows =
      words[count - 1].back() == '=' && is_there(count) && words[count].find('=') == std::string::npos;
  if (value_follows) return count + 1;
  return key_alone ? count : 0;
}

void add_spaced(std::span<const std::string> words, ConfigProblems& problems) {
  constexpr size_t kShownBytes = 80;
  const std::string typed = fmt::format("{}", fmt::join(words, " ")).substr(0, kShownBytes);
  const std::string meant = fmt::format("{}", fmt::join(words, "")).substr(0, kShownBytes);
  problems.add(0, fmt::format("{}: '{}' has spaces", kCommandLine, typed),
               [=] { return fmt::format("no spaces around =: {}", shell_word(meant)); });
}

// Whether an override removes an entry of the file, because a config can have only one of the two.
bool displaces(const ConfigEntry& override_entry, const ConfigEntry& entry) {
  const std::string by = override_entry.key->path();
  const std::string of = entry.key->path();
  if (by == of) return true;
  if (by == "train.steps") return of == "train.epochs";
  if (by == "train.epochs") return of == "train.steps";
  // A pretrained model brings its own sizes, so none of the file may stay.
  if (by == "model.pretrained") return entry.key->section == "model";
  if (by == "model.preset") return of == "model.pretrained";
  // Without adapters, what the file says of them has no meaning.
  if (by == "lora.rank" && override_entry.value == ConfigValue(int64_t{0}))
    return entry.key->section == "lora";
  return false;
}

// The entries of the file that no override removes, then the overrides.
std::vector<ConfigEntry> with_overrides(std::vector<ConfigEntry> entries,
                                        std::span<const std::string> overrides, ConfigProblems& problems) {
  std::vector<ConfigEntry> given;
  while (!overrides.empty()) {
    const size_t spaced = words_of_spaced(overrides);
    if (spaced > 0) add_spaced(overrides.first(spaced), problems);
    std::optional<ConfigEntry> entry;
    if (spaced == 0) entry = read_override(overrides.front(), problems);
    overrides = overrides.subspan(std::max<size_t>(spaced, 1));
    if (!entry) continue;
    // The last override of a key wins, because people append to the command that they have.
    given.erase(std::remove_if(given.begin(), given.end(),
                               [&](const ConfigEntry& earlier) { return earlier.key == entry->key; }),
                given.end());
    given.push_back(std::move(*entry));
  }
  for (const ConfigEntry& entry : given)
    entries.erase(std::remove_if(entries.begin(), entries.end(),
                                 [&](const ConfigEntry& other) { return displaces(entry, other); }),
                  entries.end());
  std::move(given.begin(), given.end(), std::back_inserter(entries));
  return entries;
}

}  // namespace

std::vector<ConfigEntry> read_config_entries(std::string_view toml, const std::string& name,
                                             std::span<const std::string> overrides,
                                             ConfigProblems& problems) {
  check_text(toml, name);
  std::optional<uint32_t> empty_lora;
  std::vector<ConfigEntry> entries =
      with_overrides(read_file_entries(toml, name, problems, empty_lora), overrides, problems);
  const auto is_of_lora = [](const ConfigEntry& entry) { return entry.key->section == "lora"; };
  if (empty_lora && std::ranges::none_of(entries, is_of_lora))
    problems.add(*empty_lora,
                 fmt::format("{}:{}: [lora] is empty, so all weights would be trained", name, *empty_lora),
                 [] { return "set lora.rank, such as 16, and lora.alpha, or leave [lora] out"; });
  return entries;
}

}  // namespace ripstop
