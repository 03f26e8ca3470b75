// Environment variables by which mpirun, srun and other launchers describe the launch. Readable before MPI
// starts, or without MPI.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Whether a launcher started this process.
bool was_launched();

/// The number of this process in its launch; 0 if it is alone or the launcher does not tell.
int64_t launch_rank();

/// The number of processes in the launch; 1 if this one is alone or the launcher does not tell.
int64_t launch_size();

/// The interface that srun offers ("pmi2") if ranks of Open MPI `major_version` cannot find each other
/// through it: MPI_Init would then end the process with a page that does not say what to type. Empty if they
/// can, if srun did not start this process, or if it is alone. Open MPI 5 needs PMIx; Open MPI 4 may also be
/// built for Slurm's own PMI, which the plugins beside `library`, its libmpi, show. Reads directories.
std::string useless_to_open_mpi(int major_version, const std::filesystem::path& library);

/// A unique name of this launch, equal on all its processes, of letters, digits, '.', '-' and '_'; "" if the
/// launcher gives none. A requeued job has a new name.
std::string launch_name();

/// The nodes of a launch by Slurm; else empty.
std::vector<std::string> launch_nodes();

/// Expands a node list of Slurm: "n[1-3,07],gpu" gives n1 n2 n3 n07 gpu. Returns nothing for more than
/// 100,000 names, or for a text that is no such list. Pure.
std::vector<std::string> expand_node_list(std::string_view list);

}  // namespace ripstop
