// Facts of the machine that this process runs on, and problems that they foretell.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ripstop {

/// Facts of the machine, and of the part of it that this process may use. A fact that the system does not
/// tell is 0, empty or none.
struct Machine {
  std::string host;
  std::string system;                 ///< "Linux 6.1.0 x86_64"
  std::string processor;              ///< "AMD EPYC 9654 96-Core Processor"
  std::string instruction_set;        ///< of the kernels: "avx512_bf16, oneDNN 2.6.3 isa 0x7e7"
  bool fast_bfloat16 = false;         ///< the processor multiplies bfloat16 in hardware
  int64_t cores = 0;                  ///< hardware threads that are switched on
  int64_t cores_allowed = 0;          ///< of them, those in this process's affinity mask
  std::optional<double> cores_quota;  ///< cores whose time the control group grants
  int64_t memory_bytes = 0;
  int64_t memory_available_bytes = 0;               ///< free, or cache that the kernel can give up
  std::optional<int64_t> memory_limit_bytes;        ///< of the control group
  std::optional<int64_t> memory_limit_used_bytes;   ///< counted against that limit now
  std::optional<int64_t> shared_memory_free_bytes;  ///< of /dev/shm; ranks of a node talk through it
  std::optional<int64_t> disk_free_bytes;           ///< of the current directory
  std::optional<int64_t> open_files_limit;          ///< none: unlimited
  std::vector<std::pair<std::string, std::string>>
      environment;  ///< variables of Slurm, Open MPI and OpenMP that are set
};

/// Reads the facts now. Does not throw if some are missing, because containers hide many.
Machine read_machine();

/// Bytes of memory that this process uses; 0 if the system does not tell.
struct ResidentMemory {
  int64_t now_bytes = 0;
  int64_t peak_bytes = 0;  ///< since the process began
};
ResidentMemory resident_memory();

/// Seconds since the kernel started this process, to a hundredth; 0 if the system does not tell.
double process_age_seconds();

/// The most bytes that this process may come to use: the machine's memory, or the control group's limit if
/// that is less.
int64_t usable_memory_bytes(const Machine& machine);

/// Finds problems that will make a run fail or slow, one sentence each. `ranks` is the number of processes
/// that this launch started on all machines, `ranks_here` on this machine, `threads` the threads of each
/// process.
std::vector<std::string> machine_problems(const Machine& machine, int64_t ranks, int64_t ranks_here,
                                          int64_t threads);

}  // namespace ripstop
