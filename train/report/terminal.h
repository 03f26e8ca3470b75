// What is behind a standard stream: a terminal that people watch, or a log, a file, a program.
#pragma once
#include <cstdint>
#include <cstdio>

namespace ripstop {

/// The terminal behind a stream, as far as text depends on it.
struct Terminal {
  bool is_terminal = false;
  bool rewrites = false;  ///< a line can be overwritten: $TERM is not "dumb"
  bool colors = false;    ///< it rewrites, and $NO_COLOR is not set
  int64_t width = 0;      ///< in columns; 0: not known, or no terminal
};

/// Looks at `stream`. A launcher puts pipes and pseudo-terminals between a rank and the user, so
/// slurm/launch.sh tells in $RIPSTOP_TERMINAL which of the streams 0, 1 and 2 end at a terminal, as in "012",
/// and in $COLUMNS its width. Under a launcher that tells nothing no stream is a terminal: its output may go
/// to a log.
Terminal terminal_of(std::FILE* stream);

}  // namespace ripstop
