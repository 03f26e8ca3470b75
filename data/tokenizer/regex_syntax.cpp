#include "data/tokenizer/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <utility>

#include "data/text/utf8.h"
#include "model/core/error.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

constexpr int kMostGroups = 50;     // depth of nested groups
constexpr int kMostRepeats = 1000;  // n or m in {n,m}

/// Translates in one pass. Members named for a part of the syntax take it from the front of `left_`, and
/// append its translation to `out_` or return it.
class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern), left_(pattern) {}

  std::string run() {
    alternatives(0);
    if (!left_.empty()) refuse("a ')' without '('");
    return std::move(out_);
  }

 private:
  /// A character, or a set of them in PCRE2's syntax for the inside of a class.
  struct Item {
    uint32_t letter = 0;
    std::string set;
    std::string negated_set;  // the complement, if `set` cannot express it
  };

  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(ExitCode::kInputData,
                fmt::format("the regular expression '{}' has {}, which is not supported",
                            in_one_line(begin_of(pattern_, 200)), what));
  }
  bool take(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  uint32_t letter() {
    const size_t bytes = sequence_bytes(left_);
    if (left_.empty() || bytes == 0) refuse("an end in the middle");
    const uint32_t value = code_point(left_.substr(0, bytes));
    left_.remove_prefix(bytes);
    return value;
  }
  void put(uint32_t letter) {
    if (caseless_ && letter >= 0x80) refuse("a letter outside ASCII in (?i:)");
    if (letter < 0x80 && std::isalnum(static_cast<int>(letter)) != 0)
      out_ += static_cast<char>(letter);
    else
      out_ += fmt::format("\\x{{{:x}}}", letter);
  }

  /// alternatives() to quantifier() return whether the part that they took can match the empty text.
  bool alternatives(int depth) {
    if (depth > kMostGroups) refuse("too many groups inside one another");
    bool empty = sequence(depth);
    while (take("|")) {
      out_ += '|';
      if (sequence(depth)) empty = true;
    }
    return empty;
  }
  bool sequence(int depth) {
    bool empty = true;
    last_ = 0;
    while (!left_.empty() && left_.front() != '|' && left_.front() != ')') {
      if (!repeated_atom(depth)) empty = false;
    }
    return empty;
  }
  bool repeated_atom(int depth) {
    const char first = left_.front();
    if (std::string_view("*+?{").find(first) != std::string_view::npos) refuse("nothing to repeat");
    bool looks = false, empty = false;
    if (first == '(') {
      empty = group(depth, looks);
    } else if (take("[")) {
      character_class();
    } else if (first == '^' || first == '$') {
      out_ += first;
      left_.remove_prefix(1);
      looks = empty = true;
    } else if (take(".")) {
      out_ += '.';
    } else {
      single();
      return quantifier(false, false);
    }
    last_ = 0;
    return quantifier(looks, empty);
  }

  bool group(int depth, bool& looks) {
    left_.remove_prefix(1);
    const bool outer = caseless_;
    std::string_view kind = "(?:";
    if (take("?")) {
      kind = {};
      for (const std::string_view known : {":", "i:", "=", "!", ">", "<=", "<!"})
        if (kind.empty() && take(known)) kind = known;
      if (kind.empty()) refuse("a group of an unknown kind");
      looks = kind.find_first_of("=!") != std::string_view::npos;
      if (kind == "i:") caseless_ = true;
      out_ += "(?";
    }
    out_ += kind;
    const bool empty = alternatives(depth + 1);
    if (!take(")")) refuse("a '(' without ')'");
    out_ += ')';
    caseless_ = outer;
    return empty || looks;
  }

  bool quantifier(bool looks, bool empty) {
    int64_t least = 1, most = 1;
    bool interval = false;
    if (take("*")) {
      least = 0, most = -1, out_ += '*';
    } else if (take("+")) {
      most = -1, out_ += '+';
    } else if (take("?")) {
      least = 0, out_ += '?';
    } else if (take("{")) {
      interval = true;
      const auto first = number();
      const bool range = take(",");
      const auto second = range ? number() : first;
      if (!take("}") || (!first && !second)) refuse("a '{' that begins no interval");
      least = first.value_or(0), most = second.value_or(-1);
      if (most >= 0 && least > most) refuse("an interval from more to less");
      out_ += second ? fmt::format("{{{},{}}}", least, most) : fmt::format("{{{},}}", least);
      if (!range && left_.starts_with("?")) refuse("a '?' behind {n}");
    } else {
      return empty;
    }
    last_ = 0;
    if (looks || (empty && most != 1)) refuse("a repeated part that can be empty");
    if (take("?"))
      out_ += '?';
    else if (!interval && take("+"))
      out_ += '+';
    if (!left_.empty() && std::string_view("*+?{").find(left_.front()) != std::string_view::npos)
      refuse("a repeat behind a repeat");
    return empty || least == 0;
  }
  std::optional<int64_t> number() {
    int64_t value = 0;
    size_t digits = 0;
    while (digits < left_.size() && left_[digits] >= '0' && left_[digits] <= '9' && value <= kMostRepeats)
      value = 10 * value + (left_[digits++] - '0');
    if (value > kMostRepeats) refuse("an interval of more than 1000");
    left_.remove_prefix(digits);
    return digits == 0 ? std::nullopt : std::optional(value);
  }

  /// A letter, an escape or a property outside of a class.
  void single() {
    if (left_.front() == '\\') {
      const Item item = escape();
      if (!item.negated_set.empty())
        out_ += "[^" + item.negated_set + "]";
      else if (!item.set.empty())
        out_ += "[" + item.set + "]";
      else
        put(item.letter);
      last_ = item.set.empty() && item.negated_set.empty() ? item.letter : 0;
      return;
    }
    if (std::string_view("]}").find(left_.front()) != std::string_view::npos) refuse("a bare ']' or '}'");
    const uint32_t here = letter();
    put(here);
    // In (?i:) Oniguruma also matches these pairs with one letter, such as ss with U+00DF.
    const auto small = [](uint32_t c) { return c < 0x80 ? std::tolower(static_cast<int>(c)) : 0; };
    const std::string pair{static_cast<char>(small(last_)), static_cast<char>(small(here))};
    if (caseless_ && (pair == "ss" || pair == "st" || pair == "ff" || pair == "fi" || pair == "fl"))
      refuse("the letters " + pair + " in (?i:)");
    last_ = here;
  }

  void character_class() {
    const bool negated = take("^");
    if (negated && caseless_) refuse("a negated class in (?i:)");
    out_ += negated ? "[^" : "[";
    if (left_.starts_with("]")) refuse("a ']' at the start of a class");
    for (bool first = true; !take("]"); first = false) {
      const bool minus = left_.starts_with("-");
      const Item item = class_item();
      if (minus && !first && !left_.starts_with("]")) refuse("a '-' inside a class");
      if (!item.set.empty()) {
        if (caseless_) refuse("a set in a class in (?i:)");
        out_ += item.set;
        if (left_.starts_with("-") && !left_.starts_with("-]")) refuse("a range from a set");
        continue;
      }
      put(item.letter);
      if (minus || !left_.starts_with("-") || left_.starts_with("-]")) continue;
      left_.remove_prefix(1);
      const Item last = class_item();
      if (!last.set.empty() || last.letter < item.letter) refuse("a range from more to less");
      out_ += '-';
      put(last.letter);
    }
    out_ += ']';
  }
  Item class_item() {
    if (left_.empty()) refuse("a '[' without ']'");
    if (left_.front() == '[') refuse("a class in a class");
    if (left_.starts_with("&&")) refuse("an intersection of classes");
    if (left_.front() != '\\') return {letter(), "", ""};
    Item item = escape();
    if (!item.negated_set.empty()) {
      if (item.negated_set != kSpaceRanges) refuse("a negated set in a class");
      item = {0, R"(\P{White_Space})", ""};
    }
    return item;
  }

  Item escape() {
    left_.remove_prefix(1);
    const uint32_t kind = letter();
    constexpr std::array<std::pair<char, uint32_t>, 7> kControls{
        {{'t', 9}, {'n', 10}, {'v', 11}, {'f', 12}, {'r', 13}, {'a', 7}, {'e', 27}}};
    for (const auto& [name, value] : kControls)
      if (kind == static_cast<uint32_t>(name)) return {value, "", ""};
    switch (kind) {
      case 's':
        return {0, std::string(kSpaceRanges), ""};
      case 'S':
        return {0, "", std::string(kSpaceRanges)};
      case 'd':
        return {0, R"(\p{Nd})", ""};
      case 'D':
        return {0, R"(\P{Nd})", ""};
      case 'p':
      case 'P':
        return {0, property(kind == 'P'), ""};
      default:
        break;
    }
    if (kind >= 0x80 || std::isalnum(static_cast<int>(kind)) != 0)
      refuse(fmt::format("the escape '\\{}'", kind < 0x80 ? std::string(1, static_cast<char>(kind)) : "?"));
    return {kind, "", ""};
  }
  /// Takes what follows \p: a general category or a script.
  std::string property(bool negated) {
    if (caseless_) refuse("a property in (?i:)");
    if (!take("{")) refuse("a property without '{'");
    if (take("^")) negated = !negated;
    const std::string name(left_.substr(0, left_.find('}')));
    left_.remove_prefix(std::min(left_.size(), name.size()));
    // No Mn and Mc: Unicode 15 moved a letter between them. No C and Cn: each version changes them.
    constexpr std::string_view kCategories =
        " L Lu Ll Lt Lm Lo M Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp Cc Cf Co ";
    const bool is_word = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return std::isalpha(c) != 0 || c == '_';
    });
    const bool category = is_word && kCategories.find(" " + name + " ") != std::string_view::npos;
    constexpr std::string_view kScripts =
        " Arabic Armenian Bengali Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul "
        "Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Tamil "
        "Telugu "
        "Thai Tibetan ";
    const bool script = is_word && kScripts.find(" " + name + " ") != std::string_view::npos;
    if (!take("}") || (!category && !script)) refuse("the property '" + name + "'");
    return fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', script ? "sc:" : "", name);
  }
  std::string_view pattern_, left_;
  std::string out_;
  bool caseless_ = false;
  uint32_t last_ = 0;  // the letter just taken; 0 after anything else
};

}  // namespace

std::string pcre2_syntax(std::string_view pattern) {
  return Translation(pattern).run();
}

}  // namespace ripstop
