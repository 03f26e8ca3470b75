// shell_word: quotes text for a shell, for messages that contain a command to type.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// `text` as one word of a POSIX shell: in single quotes if it contains characters that a shell treats
/// specially.
std::string shell_word(std::string_view text);

}  // namespace ripstop
