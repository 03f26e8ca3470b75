#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// `text` as one word of a POSIX shell, in single quotes if it has special characters.
std::string shell_word(std::string_view text);

}  // namespace ripstop
