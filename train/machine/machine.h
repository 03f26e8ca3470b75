// What this machine gives to this process.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ripstop {

/// Facts of the machine, as far as this process may use it. What cannot be found out is 0, empty or none.
struct Machine {
  std::string host;
  std::string system;                 ///< "Linux 6.1.0 x86_64"
  std::string processor;              ///< "AMD EPYC 9654 96-Core Processor"
  std::string instruction_set;        ///< that the kernels run with: "avx512_bf16, oneDNN 2.6.3 isa 0x7e7"
  bool fast_bfloat16 = false;         ///< bfloat16 products in hardware
  int64_t cores = 0;                  ///< hardware threads that are switched on
  int64_t cores_allowed = 0;          ///< of them, in this process's affinity mask
  std::optional<double> cores_quota;  ///< cores' worth of time that the control group grants
  int64_t memory_bytes = 0;
  int64_t memory_available_bytes = 0;               ///< free, or cache that the kernel gives up
  std::optional<int64_t> memory_limit_bytes;        ///< of the control group
  std::optional<int64_t> memory_limit_used_bytes;   ///< counted against that limit now
  std::optional<int64_t> shared_memory_free_bytes;  ///< of /dev/shm, through which ranks of a node talk
  std::optional<int64_t> disk_free_bytes;           ///< of the current directory
  std::optional<int64_t> open_files_limit;          ///< none: unlimited
  std::vector<std::pair<std::string, std::string>>
      environment;  ///< Slurm's, Open MPI's and OpenMP's variables set
};

/// Looks now. Never throws for what is missing: containers hide much of it.
Machine read_machine();

/// What this process holds of the machine's memory; 0 where the system does not tell.
struct ResidentMemory {
  int64_t now_bytes = 0;
  int64_t peak_bytes = 0;  ///< since the process began
};
ResidentMemory resident_memory();

/// The most memory this process may come to hold: the machine's, or the control group's limit where that is
/// less.
int64_t usable_memory_bytes(const Machine& machine);

/// What will make a run fail or crawl, one sentence each; empty when nothing was found. `ranks` are the
/// processes that this launch started on all machines, `ranks_here` those on this one, `threads` those of
/// each.
std::vector<std::string> machine_problems(const Machine& machine, int64_t ranks, int64_t ranks_here,
                                          int64_t threads);

}  // namespace ripstop
