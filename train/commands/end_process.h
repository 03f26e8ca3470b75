// How a failed process ends: its error is printed, and nothing is cleaned up.
#pragma once
#include <filesystem>
#include <string>

#include "model/core/error.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// Prints `error` to standard error, if this rank `speaks`, and ends the process at once with its code.
/// MPI_Finalize and destructors are left out, because they would wait for ranks that do not come. Any thread
/// may call it.
[[noreturn]] void end_failed(const Error& error, bool speaks = true);

/// The options of a world for `command`. If MPI hangs, end_failed() tells. `directory`: of the run, if there
/// is one (MpiOptions).
MpiOptions world_options(const std::string& command, const std::filesystem::path& directory = {});

}  // namespace ripstop
