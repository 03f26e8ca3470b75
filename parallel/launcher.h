// What mpirun, srun and their like tell a process through its environment, before MPI is started or where it
// never is.
#pragma once
#include <cstdint>

namespace ripstop {

/// Whether a launcher started this process.
bool was_launched();

/// This process's number among those started together; 0 when alone, or where the launcher does not tell.
int64_t launch_rank();

/// How many processes were started together; 1 when alone, or where the launcher does not tell.
int64_t launch_size();

}  // namespace ripstop
