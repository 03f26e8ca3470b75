// Reads the variables by which mpirun, srun and other launchers describe the launch, without MPI.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

bool was_launched();  ///< whether a launcher started this process

/// The number of this process in its launch; 0 if unknown.
int64_t launch_rank();

/// The number of processes in the launch; 1 if unknown.
int64_t launch_size();

/// Returns what srun offers ("pmi2" or no process manager) if ranks of Open MPI `major_version` cannot find
/// each other through it, so that MPI_Init would end the process without advice; "" otherwise. Open MPI 5
/// needs PMIx. Open MPI 4 may instead be built for Slurm's own PMI; then plugins lie beside its libmpi
/// (`library`). Reads directories.
std::string useless_to_open_mpi(int major_version, const std::filesystem::path& library);

/// A unique name of this launch, made of letters, digits, '.', '-' and '_', equal on all its processes; "" if
/// the launcher gives no name. A requeued job has a new name.
std::string launch_name();

/// Node names of the Slurm step or job, by expand_node_list(); empty without Slurm.
std::vector<std::string> launch_nodes();

/// Expands a Slurm node list: "n[1-3,07],gpu" gives n1 n2 n3 n07 gpu. Returns no names for malformed
/// brackets, over 100,000 names in them, or text behind them ("r[1-2]n[1-8]"). Pure.
std::vector<std::string> expand_node_list(std::string_view list);

}  // namespace ripstop
