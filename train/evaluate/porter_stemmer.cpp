#include "train/evaluate/porter_stemmer.h"

#include <cstdint>
#include <span>

namespace ripstop {
namespace {

struct Rule {
  std::string_view suffix;
  std::string_view replacement;
};

// Words for which the rules below would give a wrong stem.
constexpr Rule kIrregular[] = {
    {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
    {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
    {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
    {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"},
};

// Steps 1a, 2, 3 and 4 of Porter's algorithm. Only the first suffix that matches is replaced, so a longer
// suffix comes before its own endings.
constexpr Rule kPlural[] = {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};

constexpr Rule kDoubleSuffix[] = {
    {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"},   {"izer", "ize"},
    {"bli", "ble"},     {"entli", "ent"},   {"eli", "e"},     {"ousli", "ous"},   {"ization", "ize"},
    {"ation", "ate"},   {"ator", "ate"},    {"alism", "al"},  {"iveness", "ive"}, {"fulness", "ful"},
    {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"}, {"biliti", "ble"},  {"fulli", "ful"},
};

constexpr Rule kAdjective[] = {
    {"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
    {"ical", "ic"},  {"ful", ""},   {"ness", ""},
};

constexpr Rule kLastSuffix[] = {
    {"al", ""},   {"ance", ""}, {"ence", ""},  {"er", ""},   {"ic", ""},  {"able", ""},
    {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""}, {"ent", ""}, {"ou", ""},
    {"ism", ""},  {"ate", ""},  {"iti", ""},   {"ous", ""},  {"ive", ""}, {"ize", ""},
};

// c for each consonant and v for each vowel. y is a vowel after a consonant.
std::string shape(std::string_view word) {
  std::string shape;
  for (const char c : word) {
    const bool is_vowel =
        c == 'y' ? shape.ends_with('c') : std::string_view("aeiou").find(c) != std::string_view::npos;
    shape += is_vowel ? 'v' : 'c';
  }
  return shape;
}

// Porter's m: the number of runs of vowels that consonants follow.
int64_t measure(std::string_view stem) {
  const std::string letters = shape(stem);
  int64_t count = 0;
  for (size_t at = letters.find("vc"); at != std::string::npos; at = letters.find("vc", at + 1)) ++count;
  return count;
}

bool ends_double_consonant(std::string_view word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && shape(word).ends_with('c');
}

// Whether the word ends with a consonant, a vowel and a consonant other than w, x or y, or is a vowel and a
// consonant.
bool ends_short_syllable(std::string_view word) {
  const std::string letters = shape(word);
  return letters == "vc" ||
         (letters.ends_with("cvc") && std::string_view("wxy").find(word.back()) == std::string_view::npos);
}

std::string_view without(std::string_view word, size_t letters) {
  return word.substr(0, word.size() - letters);
}

void replace_end(std::string& word, size_t letters, std::string_view replacement) {
  word.resize(word.size() - letters);
  word += replacement;
}

// Applies the first rule whose suffix the word has, if the measure of the stem before the suffix is at least
// `least_measure`.
void apply_first(std::string& word, std::span<const Rule> rules, int64_t least_measure) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    if (measure(without(word, rule.suffix.size())) >= least_measure)
      replace_end(word, rule.suffix.size(), rule.replacement);
    return;
  }
}

// Step 1a. NLTK's extension: "ties" becomes "tie", but "flies" becomes "fli".
void remove_plural(std::string& word) {
  if (word.size() == 4 && word.ends_with("ies"))
    replace_end(word, 3, "ie");
  else
    apply_first(word, kPlural, 0);
}

// Repairs a word after -ed or -ing was removed: conflat -> conflate, hopp -> hop, fil -> file.
void repair_verb(std::string& word) {
  if (word.ends_with("at") || word.ends_with("bl") || word.ends_with("iz")) {
    word += 'e';
  } else if (ends_double_consonant(word)) {
    if (word.back() != 'l' && word.back() != 's' && word.back() != 'z') word.pop_back();
  } else if (measure(word) == 1 && ends_short_syllable(word)) {
    word += 'e';
  }
}

// Removes -ed and -ing only if the rest has a vowel: not from "sing" and "bed".
void remove_verb_ending(std::string& word) {
  if (word.ends_with("ied")) {
    replace_end(word, 3, word.size() == 4 ? "ie" : "i");
  } else if (word.ends_with("eed")) {
    if (measure(without(word, 3)) > 0) word.pop_back();
  } else {
    for (std::string_view suffix : {"ed", "ing"}) {
      if (!word.ends_with(suffix) || shape(without(word, suffix.size())).find('v') == std::string::npos)
        continue;
      replace_end(word, suffix.size(), "");
      repair_verb(word);
      return;
    }
  }
}

// Step 1c: "happy" gets the stem of "happiness". y stays after a vowel ("enjoy").
void turn_y_to_i(std::string& word) {
  if (word.size() > 2 && word.back() == 'y' && shape(without(word, 1)).ends_with('c')) word.back() = 'i';
}

void shorten_double_suffix(std::string& word) {
  // -li is removed from -alli first, so that the rules below apply to the -ational or -tional that is left.
  if (word.ends_with("alli") && measure(without(word, 4)) > 0) replace_end(word, 2, "");
  if (word.ends_with("logi")) {
    if (measure(without(word, 3)) > 0) word.pop_back();
  } else {
    apply_first(word, kDoubleSuffix, 1);
  }
}

void remove_last_suffix(std::string& word) {
  if (word.ends_with("ion")) {
    const std::string_view stem = without(word, 3);
    if (measure(stem) > 1 && (stem.back() == 's' || stem.back() == 't')) replace_end(word, 3, "");
  } else {
    apply_first(word, kLastSuffix, 2);
  }
}

void tidy_end(std::string& word) {
  if (word.ends_with('e')) {
    const std::string_view stem = without(word, 1);
    const int64_t m = measure(stem);
    if (m > 1 || (m == 1 && !ends_short_syllable(stem))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(without(word, 1)) > 1) word.pop_back();
}

}  // namespace

std::string porter_stem(std::string_view word) {
  for (const Rule& form : kIrregular)
    if (word == form.suffix) return std::string(form.replacement);
  std::string stem(word);
  if (stem.size() <= 2) return stem;
  remove_plural(stem);
  remove_verb_ending(stem);
  turn_y_to_i(stem);
  shorten_double_suffix(stem);
  apply_first(stem, kAdjective, 1);
  remove_last_suffix(stem);
  tidy_end(stem);
  return stem;
}

}  // namespace ripstop
