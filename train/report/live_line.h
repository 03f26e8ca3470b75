// LiveLine: the last line of a terminal, which is rewritten in place, and the lines above it, which stay.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "train/report/terminal.h"

namespace ripstop {

/// The lines of one stream. In a log or a file there is no live line, and every line is kept as it is. A
/// failed write is no error here, as a run outlives its terminal; main() looks at the stream before the
/// program ends. Not thread-safe. At a terminal one object at a time may have a live line, or they overwrite
/// each other.
class LiveLine {
 public:
  /// `stream` must outlive this.
  explicit LiveLine(std::FILE* stream);
  /// Clears the live line.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  /// Whether the stream can show a live line.
  bool is_live() const { return terminal_.rewrites; }
  /// Whether the live line is old enough to be rewritten: who shows something often asks this first.
  bool is_due() const;
  /// In columns; 0: no limit.
  int64_t width() const { return terminal_.width; }

  /// Shows `text` as the live line, cut to the width. Does nothing if the stream has none.
  void show(const std::string& text);
  /// Removes the live line.
  void clear();
  /// Prints a line that stays, above the live line. At a terminal long lines are broken at spaces.
  void print(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::string& text);

  std::FILE* stream_;
  Terminal terminal_;
  std::string shown_;  ///< the live line; empty: none
  Clock::time_point last_shown_;
};

}  // namespace ripstop
