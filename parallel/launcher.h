// The facts that mpirun, srun and other launchers put into a process's environment. They can be read before
// MPI is started, and if it never is.
#pragma once
#include <cstdint>

namespace ripstop {

/// Whether a launcher started this process.
bool was_launched();

/// This process's number among those started together; 0 if it is alone or the launcher does not tell.
int64_t launch_rank();

/// How many processes were started together; 1 if it is alone or the launcher does not tell.
int64_t launch_size();

}  // namespace ripstop
