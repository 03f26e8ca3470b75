// Terminals behind standard streams, and text that is fit for them.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace ripstop {

/// The terminal behind a stream, as far as text depends on it.
struct Terminal {
  bool is_terminal = false;
  bool rewrites = false;  ///< a line can be overwritten: $TERM is not "dumb"
  bool colors = false;    ///< `rewrites`, and $NO_COLOR is not set
  int64_t width = 0;      ///< in columns; 0: not known, or no terminal
};

/// Looks at `stream`. A launcher puts pipes and pseudo-terminals between a rank and the user, so
/// slurm/launch.sh tells in $RIPSTOP_TERMINAL which of the streams 0, 1 and 2 end at a terminal, as in "012",
/// and in $COLUMNS its width. Under a launcher that tells nothing no stream is a terminal: its output may go
/// to a log.
Terminal terminal_of(std::FILE* stream);

/// `bytes` with nothing in them that a terminal would obey. Line ends stay; other control characters and
/// those that turn the direction of writing become \t, \x1b or \u202e; bytes that are no UTF-8 become <0xE6>.
std::string visible_text(std::string_view bytes);

/// visible_text() as one line of at most `width` columns; the rest is cut. No cut if `width` is 0.
std::string cut_to_width(std::string_view text, int64_t width);

}  // namespace ripstop
