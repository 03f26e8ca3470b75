// English words to their stems, as the common ROUGE implementations take them.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// The stem of one English word by Porter's algorithm with the extensions of NLTK: a short list of irregular
/// forms, "dies" -> "die" (not "di"), "enjoy" kept (not "enjoi"), "-fulli" and "-ogi". These are the stems
/// that scores published with Google's rouge-score rest on, so they are followed to the letter, oddities
/// included. `word` is lower case; characters other than a-z count as consonants. Words of one or two letters
/// come back as they are. Throws nothing but std::bad_alloc. Source: M. Porter, An algorithm for suffix
/// stripping, Program 14(3), 1980; NLTK, PorterStemmer in its default mode.
std::string porter_stem(std::string_view word);

}  // namespace ripstop
