// How a failed command tells what went wrong.
#pragma once
#include <cstdint>
#include <string>

#include "model/core/error.h"
#include "train/report/terminal.h"

namespace ripstop {

/// The machine's form, for logs and files: one line without the line end,
/// `FATAL code=64 rank=0 step=- what="..." hint="..."`. `hint` is left out if there is none. Texts are quoted
/// and escaped as in JSON, so the line stays one line. Bytes that are no UTF-8 become U+FFFD.
std::string fatal_line(const Error& error, int64_t rank);

/// The form for people at `terminal`, without the last line end:
///   error: step 12, rank 3: no progress for 600 s
///   hint: ...
/// Rank 0 is not named, a hint only if there is one.
std::string error_text(const Error& error, int64_t rank, const Terminal& terminal);

}  // namespace ripstop
