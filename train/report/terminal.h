#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace ripstop {

/// The properties of the terminal at which a stream ends.
struct Terminal {
  bool is_terminal = false;
  bool rewrites = false;  ///< can overwrite a line: $TERM is set, and not "dumb"
  bool colors = false;    ///< `rewrites` is true, and $NO_COLOR is not set
  int64_t width = 0;      ///< width in columns; 0: not known, or no terminal
};

/// The terminal of `stream`. Launchers put pipes and pseudo-terminals between a rank and the user, so
/// slurm/launch.sh lists in $RIPSTOP_TERMINAL the streams that end at a terminal ("012") and sets $COLUMNS to
/// the terminal's width. Under other launchers no stream counts as a terminal: its output may go to a log.
Terminal terminal_of(std::FILE* stream);

/// `bytes` with escapes, such as \t, \x1b or \u202e, for the characters that a terminal may take as commands:
/// control characters but line ends, separators of lines and paragraphs, and characters that change the
/// direction of writing. A byte that is no UTF-8 becomes its value, such as <0xE6>.
std::string visible_text(std::string_view bytes);

/// visible_text() as one line, cut to `width` columns; not cut if `width` is 0.
std::string cut_to_width(std::string_view text, int64_t width);

}  // namespace ripstop
