// The end of a failed process, which prints its error and cleans up nothing.
#pragma once
#include <cstdint>
#include <string>

#include "model/core/error.h"
#include "parallel/mpi_world.h"
#include "train/report/terminal.h"

namespace ripstop {

/// The error for logs and files, without the line end: `FATAL code=64 rank=0 step=- what="..." hint="..."`.
/// Texts are quoted and escaped as in JSON; bytes that are no UTF-8 become U+FFFD. An empty hint is left out.
std::string fatal_line(const Error& error, int64_t rank);

/// The error for people at `terminal`, without the last line end:
///   error: step 12, rank 3: no progress for 600 s
///   hint: ...
/// Rank 0 is not named. An empty hint is left out.
std::string error_text(const Error& error, int64_t rank, const Terminal& terminal);

/// Prints `error` to standard error if `speaks`, and ends the process with the error's code; with several
/// ranks, after kSecondsToEnd. Skips MPI_Finalize and destructors, which could hang. Any thread may call it.
[[noreturn]] void end_failed(const Error& error, bool speaks = true);

/// The options of the MPI world for the verb `command`. A process that hangs inside MPI then ends by
/// end_failed().
MpiOptions world_options(const std::string& command);

}  // namespace ripstop
