// Quotes text for a shell, in commands that a message gives people to type.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// `text` as one word of a POSIX shell: as it stands if no shell reads more into it, else in single quotes.
std::string shell_word(std::string_view text);

}  // namespace ripstop
