#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace ripstop {

/// `text` as one word of a POSIX shell, in single quotes if it has special characters.
std::string shell_word(std::string_view text);

/// `path` with $HOME in place of "~" at its start, as a shell expands it; nullopt for "~USER", or for "~" if
/// $HOME is unset or empty. A path that does not start with "~" is unchanged.
std::optional<std::string> with_home(std::string path);
/// The hint for a path for which with_home() returns nullopt.
inline constexpr const char* kNoHomeHint =
    "write the whole path; a file of this name in the folder here is ./~...";

}  // namespace ripstop
