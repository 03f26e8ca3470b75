// The facts that mpirun, srun and other launchers put into a process's environment. They can be read before
// MPI is started, and if it never is.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace ripstop {

/// Whether a launcher started this process.
bool was_launched();

/// This process's number among those started together; 0 if it is alone or the launcher does not tell.
int64_t launch_rank();

/// How many processes were started together; 1 if it is alone or the launcher does not tell.
int64_t launch_size();

/// What srun offers for Open MPI of `major_version`, as in "pmi2", if its processes cannot find each other
/// with that; empty if they can, if somebody else started this process, or if it is alone. Open MPI 5 needs
/// PMIx.
/// Open MPI 4 may also have been built for Slurm's own PMI, which the plugins beside `library`, its libmpi,
/// tell. Such a start ends inside MPI_Init, with a page that does not say what to type. Looks at files.
std::string useless_to_open_mpi(int major_version, const std::filesystem::path& library);

}  // namespace ripstop
