#include "data/process/shell_word.h"

#include <algorithm>
#include <cctype>

namespace ripstop {
namespace {

bool is_plain_in_shell(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 ||
         std::string_view("_-./:=@%+,").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain_in_shell)) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    // Inside single quotes, only the single quote is special.
    word += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return word + "'";
}

}  // namespace ripstop
