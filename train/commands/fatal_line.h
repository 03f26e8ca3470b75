// The line that a failed run prints.
#pragma once
#include <cstdint>
#include <string>

#include "model/core/error.h"

namespace ripstop {

/// The one line of a failed run, without the line end: `FATAL code=64 rank=0 step=- what="..." hint="..."`.
/// Texts are quoted and escaped as in JSON, so the line stays one line. Bytes that are no UTF-8 become
/// U+FFFD.
std::string fatal_line(const Error& error, int64_t rank);

}  // namespace ripstop
