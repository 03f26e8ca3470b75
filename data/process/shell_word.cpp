#include "data/process/shell_word.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace ripstop {
namespace {

bool is_plain_in_shell(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 ||
         std::string_view("_-./:=@%+,").find(c) != std::string_view::npos;
}

}  // namespace

std::optional<std::string> with_home(std::string path) {
  if (!path.starts_with('~')) return path;
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0' || (path.size() > 1 && path[1] != '/')) return std::nullopt;
  return path.replace(0, 1, home);
}

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
