#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "train/report/terminal.h"

namespace ripstop {

/// Prints lines to one stream, and at a terminal a live line below them, which is rewritten in place. While
/// the stream's reader does not read, or the disk is full, lines wait in memory (up to 1 MiB; further lines
/// are dropped). Without a reader, lines are dropped. Not thread-safe.
/// Only one LiveLine at a time may have a live line at a terminal.
class LiveLine {
 public:
  /// `stream` must outlive this object.
  explicit LiveLine(std::FILE* stream);
  /// Clears the live line.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  /// Whether the stream can show a live line.
  bool is_live() const { return terminal_.rewrites; }
  /// Whether a live line can and should be shown: none is there, or it is old. Ask before making a text.
  bool is_due() const;

  /// Shows `text` as the live line, cut to the width. Does nothing if is_live() is false, or lines wait.
  void show(const std::string& text);
  void clear();
  /// Prints a line that stays, above the live line.
  void print(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::string& text);

  std::FILE* stream_;
  Terminal terminal_;
  std::string shown_;    ///< the live line; empty: no line
  std::string waiting_;  ///< text that the stream has not taken yet
  Clock::time_point last_shown_;
};

/// The progress of work: "prepare  12000/204045 documents  5.9%  3200/s  eta 1m00s". `unit` is in the
/// singular; "byte" shows sizes. A `total` of 0 means unknown: then share and time left are absent. The rate
/// excludes `already`, the part of `done` from an earlier start.
std::string progress_line(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                          double seconds, int64_t already = 0);

/// Shows the progress of long work, one part after another: a live line at a terminal, otherwise a line every
/// 30 s. Not thread-safe.
class Progress {
 public:
  explicit Progress(std::FILE* stream) : line_(stream) {}

  /// Shows a progress_line of the part `what`. The first call for a part calls finish() for the previous part
  /// and starts a new clock. Cheap enough to call often.
  void update(const std::string& what, const std::string& unit, int64_t done, int64_t total,
              int64_t already = 0);

  /// Removes the live line until the next update. Call it before another stream writes to the same terminal.
  void clear() { line_.clear(); }

  /// Removes the live line, and prints a last line of the current part, if any.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  LiveLine line_;
  std::string what_;  ///< the current part; empty: no part
  std::string unit_;
  int64_t done_ = 0, already_ = 0;
  Clock::time_point begin_, last_shown_;
};

}  // namespace ripstop
