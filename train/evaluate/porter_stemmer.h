#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// The stem of an English word by Porter's algorithm with NLTK's extensions: a short list of irregular forms,
/// "dies" -> "die" (not "di"), "enjoy" kept (not "enjoi"), "-fulli" and "-logi". Equals the stems of Google's
/// rouge-score. `word` is lower case; characters other than a-z count as consonants. Words of one or two
/// letters stay unchanged. Source: M. Porter, An algorithm for suffix stripping, Program 14(3), 1980; NLTK,
/// PorterStemmer in its default mode.
std::string porter_stem(std::string_view word);

}  // namespace ripstop
