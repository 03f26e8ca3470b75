#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ripstop {

/// The machine, and the part that this process may use. An unknown fact is 0, empty or nullopt.
struct Machine {
  std::string host;
  std::string system;                 ///< "Linux 6.1.0 x86_64"
  std::string processor;              ///< "AMD EPYC 9654 96-Core Processor"
  std::string instruction_set;        ///< used by the kernels: "avx512_bf16, oneDNN 2.6.3 isa 0x7e7"
  bool fast_bfloat16 = false;         ///< the processor multiplies bfloat16 in hardware
  int64_t cores = 0;                  ///< hardware threads online
  int64_t cores_allowed = 0;          ///< hardware threads in this process's affinity mask
  std::string cores_allowed_list;     ///< the mask, such as "0-3,8"
  std::optional<double> cores_quota;  ///< CPU time that the control group grants, in cores
  double load = 0;                    ///< threads that run, are ready or wait for a disk: mean of a minute
  int64_t running = 0;                ///< threads that run or are ready now, with this one
  int64_t memory_bytes = 0;
  int64_t memory_available_bytes = 0;               ///< free memory, and cache that the kernel can give up
  std::optional<int64_t> memory_limit_bytes;        ///< limit of the control group
  std::optional<int64_t> memory_limit_used_bytes;   ///< memory that the control group uses now
  std::optional<int64_t> shared_memory_free_bytes;  ///< free in /dev/shm, through which ranks of a node talk
  std::optional<int64_t> disk_free_bytes;           ///< free on the current directory's disk
  std::optional<int64_t> open_files_limit;          ///< nullopt: unlimited
  std::vector<std::pair<std::string, std::string>>
      environment;  ///< variables of Slurm, Open MPI and OpenMP that are set
};

/// Reads the facts. A missing fact is no error, because containers hide many facts.
Machine read_machine();

/// Machine::cores_allowed: cores in the affinity mask, which launchers set to bind ranks; 0 if unknown.
int64_t allowed_cores();

/// The memory of this process; 0 if unknown.
struct ResidentMemory {
  int64_t now_bytes = 0;
  int64_t peak_bytes = 0;  ///< peak since the process began
};
ResidentMemory resident_memory();

/// The time of a clock, such as CLOCK_BOOTTIME.
double clock_seconds(int clock);

/// Seconds since the kernel started this process, to about 0.01; 0 if unknown.
double process_age_seconds();

/// The machine's memory, or the limit of the control group if that is smaller.
int64_t usable_memory_bytes(const Machine& machine);

/// Problems that may end a run or slow it down, one sentence each. `ranks`: all ranks of this launch;
/// `ranks_here`: this machine's ranks; `threads`: the threads of each rank.
std::vector<std::string> machine_problems(const Machine& machine, int64_t ranks, int64_t ranks_here,
                                          int64_t threads);

}  // namespace ripstop
