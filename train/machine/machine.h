// The facts of the machine that this process runs on, and the problems that follow from them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ripstop {

/// The facts of the machine, and of the part that this process may use. An unknown fact is 0, empty or none.
struct Machine {
  std::string host;
  std::string system;                 ///< "Linux 6.1.0 x86_64"
  std::string processor;              ///< "AMD EPYC 9654 96-Core Processor"
  std::string instruction_set;        ///< of the kernels: "avx512_bf16, oneDNN 2.6.3 isa 0x7e7"
  bool fast_bfloat16 = false;         ///< the processor multiplies bfloat16 in hardware
  int64_t cores = 0;                  ///< hardware threads online
  int64_t cores_allowed = 0;          ///< hardware threads in this process's affinity mask
  std::optional<double> cores_quota;  ///< CPU time that the control group grants, in cores
  int64_t memory_bytes = 0;
  int64_t memory_available_bytes = 0;               ///< free memory and cache that the kernel can give up
  std::optional<int64_t> memory_limit_bytes;        ///< of the control group
  std::optional<int64_t> memory_limit_used_bytes;   ///< use by the control group now
  std::optional<int64_t> shared_memory_free_bytes;  ///< of /dev/shm, through which ranks of a node talk
  std::optional<int64_t> disk_free_bytes;           ///< of the current directory's disk
  std::optional<int64_t> open_files_limit;          ///< none: unlimited
  std::vector<std::pair<std::string, std::string>>
      environment;  ///< variables of Slurm, Open MPI and OpenMP that are set
};

/// Reads the facts now. Does not throw for missing facts, because containers hide many.
Machine read_machine();

/// The memory that this process uses; 0 if unknown.
struct ResidentMemory {
  int64_t now_bytes = 0;
  int64_t peak_bytes = 0;  ///< since the process began
};
ResidentMemory resident_memory();

/// The time of `clock`, such as CLOCK_BOOTTIME.
double clock_seconds(int clock);

/// Seconds since the kernel started this process, to a hundredth; 0 if unknown.
double process_age_seconds();

/// The machine's memory, or the control group's limit if that is less.
int64_t usable_memory_bytes(const Machine& machine);

/// Problems that will make a run fail or slow, one sentence each. `ranks`: the ranks of this launch on all
/// machines; `ranks_here`: on this machine; `threads`: of each rank.
std::vector<std::string> machine_problems(const Machine& machine, int64_t ranks, int64_t ranks_here,
                                          int64_t threads);

}  // namespace ripstop
