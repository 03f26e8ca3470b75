// Keeps closed or full standard streams, and those without a reader, from ending a run.
#pragma once
#include <fmt/core.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace ripstop {

/// Opens /dev/null for closed standard streams, because the next file would get their number; writes to a
/// closed standard output still fail. Ignores SIGPIPE and SIGXFSZ: a write without a reader, or beyond the
/// file size limit, then fails with an error. Call it first in main, before any file is open.
void secure_standard_streams();

/// Writes `text`, or a first part of it, to `descriptor`. Returns the number of bytes written. Waits at most
/// `seconds` for a reader that does not read. errno is 0 after the whole text, EAGAIN if the reader did not
/// read; otherwise the errno of write(2) or poll(2).
size_t write_patiently(int descriptor, std::string_view text, double seconds);

/// Flushes `stream` and writes `text` for people to it. Ignores all failures; waits at most a second for a
/// reader that does not read.
void print_text(std::FILE* stream, const std::string& text);
/// print_text() of a formatted text.
template <class... Values>
void print_to(std::FILE* stream, fmt::format_string<Values...> format, const Values&... values) {
  print_text(stream, fmt::vformat(format, fmt::make_format_args(values...)));
}

/// Writes a part of the verb's result to standard output, buffered. A failure shows in require_output().
template <class... Values>
void print_out(fmt::format_string<Values...> format, const Values&... values) {
  const std::string text = fmt::vformat(format, fmt::make_format_args(values...));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// Flushes standard output. If not all of print_out() could be written, throws Error(kStorage), or, if the
/// reader of the output is gone, ends the process by SIGPIPE: half a result must not pass for a whole one.
void require_output();

}  // namespace ripstop
