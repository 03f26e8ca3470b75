// Stems of English words, for ROUGE.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// The stem of one English word by Porter's algorithm with the extensions of NLTK: a short list of irregular
/// forms, "dies" -> "die" (not "di"), "enjoy" kept (not "enjoi"), "-fulli" and "-ogi". Google's rouge-score
/// gives the same stems, with the same oddities. `word` is lower case; characters other than a-z count as
/// consonants. Words of one or two letters stay unchanged. Source: M. Porter, An algorithm for suffix
/// stripping, Program 14(3), 1980; NLTK, PorterStemmer in its default mode.
std::string porter_stem(std::string_view word);

}  // namespace ripstop
