// The stems of English words, as the common ROUGE implementations use them.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// The stem of one English word by Porter's algorithm with the extensions of NLTK: a short list of irregular
/// forms, "dies" -> "die" (not "di"), "enjoy" kept (not "enjoi"), "-fulli" and "-ogi". Published scores by
/// Google's rouge-score use these stems, so this follows them exactly, with their oddities. `word` is lower
/// case; characters other than a-z count as consonants. Returns words of one or two letters unchanged. Throws
/// nothing but std::bad_alloc. Source: M. Porter, An algorithm for suffix
/// stripping, Program 14(3), 1980; NLTK, PorterStemmer in its default mode.
std::string porter_stem(std::string_view word);

}  // namespace ripstop
