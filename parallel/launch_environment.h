// Reads the environment variables by which mpirun, srun and other launchers describe the launch. They can be
// read before MPI starts, or without MPI.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Whether a launcher started this process.
bool was_launched();

/// The number of this process in its launch; 0 if this process is alone or the launcher does not tell the
/// number.
int64_t launch_rank();

/// The number of processes in the launch; 1 if this process is alone or the launcher does not tell the
/// number.
int64_t launch_size();

/// If ranks of Open MPI `major_version` cannot find each other through the interface that srun offers,
/// returns the name of this interface ("pmi2"): MPI_Init would then end the process with a page of text that
/// does not say what to type. Returns "" if they can find each other, if srun did not start this process, or
/// if this process is alone. Open MPI 5 needs PMIx. Open MPI 4 may instead be built for Slurm's own PMI; the
/// plugins beside `library`, which is its libmpi, show whether it is. Reads directories.
std::string useless_to_open_mpi(int major_version, const std::filesystem::path& library);

/// A unique name of this launch, equal on all its processes, of letters, digits, '.', '-' and '_'; "" if the
/// launcher gives none. A requeued job has a new name.
std::string launch_name();

/// The names of the nodes of a launch by Slurm; empty for another launcher.
std::vector<std::string> launch_nodes();

/// Expands a Slurm node list: "n[1-3,07],gpu" gives n1 n2 n3 n07 gpu. Returns no name if the list stands for
/// more than 100,000 names, or if the text is not such a list. Pure.
std::vector<std::string> expand_node_list(std::string_view list);

}  // namespace ripstop
