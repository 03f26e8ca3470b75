// The facts that mpirun, srun and other launchers put into a process's environment. They can be read before
// MPI is started, and if it never is.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Whether a launcher started this process.
bool was_launched();

/// This process's number among those started together; 0 if it is alone or the launcher does not tell.
int64_t launch_rank();

/// How many processes were started together; 1 if it is alone or the launcher does not tell.
int64_t launch_size();

/// The interface that srun offers to Open MPI of `major_version`, as in "pmi2", if its processes cannot find
/// each other with that; empty if they can, if somebody else started this process, or if it is alone. Open
/// MPI 5 needs PMIx. Open MPI 4 may also have been built for Slurm's own PMI, which the plugins beside
/// `library`, its libmpi, tell. Such a start ends inside MPI_Init, with a page that does not say what to
/// type. Looks at files.
std::string useless_to_open_mpi(int major_version, const std::filesystem::path& library);

/// A name that the processes of this launch share and no other launch has, of letters, digits, '.', '-' and
/// '_'; "" if the launcher gives none. A job that was requeued has another one.
std::string launch_name();

/// The nodes of the launch, as far as Slurm tells; else empty.
std::vector<std::string> launch_nodes();

/// The names that a list of Slurm's stands for: "n[1-3,07],gpu" is n1 n2 n3 n07 gpu. At most 100,000. A text
/// that is no such list gives none. Pure.
std::vector<std::string> expand_node_list(std::string_view list);

}  // namespace ripstop
