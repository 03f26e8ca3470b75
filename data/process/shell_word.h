// Quotes text for a shell, for messages with a command to type.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// `text` as one word of a POSIX shell: in single quotes if it has characters that are special in a shell.
std::string shell_word(std::string_view text);

}  // namespace ripstop
