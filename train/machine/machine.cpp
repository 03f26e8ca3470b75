#include "train/machine/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/files/whole_file.h"
#include "model/core/number.h"
#include "model/kernels/cpu/processor.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// 16384 for "16384 kB".
std::optional<int64_t> leading_number(const std::string& text) {
  return parse_integer(text.substr(0, text.find(' ')));
}

// The value of the first line with one of `keys` in a file of lines "Key<spaces>: value", such as
// /proc/cpuinfo; "" if no line has one.
std::string proc_value(const char* path, std::initializer_list<std::string> keys) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string key = line.substr(0, colon);
    key.erase(key.find_last_not_of(" \t") + 1);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// /proc/meminfo counts in KiB.
int64_t meminfo_bytes(const std::string& key) {
  return leading_number(proc_value("/proc/meminfo", {key})).value_or(0) * 1024;
}

// This process's control group and all groups above it, because each level may set a limit. Control groups
// version 1 have a tree for each controller `name`; version 2 has one unified tree. In a container, the
// tree's root may be this process's group.
std::vector<fs::path> cgroup_folders(const std::string& name) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "hierarchy:controllers:path". The unified tree has no controllers.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find("," + name + ",") == std::string::npos) continue;
    const fs::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + name;
    if (!fs::exists(unified ? root / "cgroup.controllers" : root)) continue;
    std::vector<fs::path> folders;
    for (fs::path path = line.substr(second + 1); path.has_relative_path(); path = path.parent_path())
      folders.push_back(root / path.relative_path());
    folders.push_back(root);
    return folders;
  }
  return {};
}

void read_memory_limit(Machine& machine) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // cgroup version 1 writes a huge number for "no limit"
  for (const fs::path& folder : cgroup_folders("memory")) {
    for (const auto& [limit_file, used_file] :
         {std::pair{"memory.max", "memory.current"},
          std::pair{"memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
      const std::optional<int64_t> limit = leading_number(first_line(folder / limit_file));
      if (!limit || *limit >= kNoLimit || *limit >= machine.memory_limit_bytes.value_or(kNoLimit)) continue;
      machine.memory_limit_bytes = limit;
      machine.memory_limit_used_bytes = leading_number(first_line(folder / used_file));
    }
  }
}

void read_core_quota(Machine& machine) {
  for (const fs::path& folder : cgroup_folders("cpu")) {
    // "200000 100000": quota and period in microseconds. "max 100000": no quota.
    std::istringstream unified(first_line(folder / "cpu.max"));
    double quota = 0;
    double period = 0;
    if (!(unified >> quota >> period)) {
      quota = static_cast<double>(leading_number(first_line(folder / "cpu.cfs_quota_us")).value_or(-1));
      period = static_cast<double>(leading_number(first_line(folder / "cpu.cfs_period_us")).value_or(0));
    }
    if (quota > 0 && period > 0)
      machine.cores_quota = std::min(quota / period, machine.cores_quota.value_or(quota / period));
  }
}

std::optional<int64_t> free_bytes(const char* path) {
  // f_bfree would include blocks reserved for root.
  struct statvfs status {};
  if (statvfs(path, &status) != 0) return std::nullopt;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

// The variables that explain most wrong launches. Other variables may hold secrets, and people pass on the
// reports of `doctor`.
std::vector<std::pair<std::string, std::string>> launch_environment() {
  std::vector<std::pair<std::string, std::string>> found;
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU",
        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMP_NUM_THREADS", "OMP_PROC_BIND",
        "OMP_PLACES", "TMPDIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) found.emplace_back(name, value);
  }
  return found;
}

// A variable of `machine`, not of this process, because tests make machines; "" if it is not set.
std::string variable(const Machine& machine, const std::string& name) {
  for (const auto& [key, value] : machine.environment)
    if (key == name) return value;
  return "";
}

}  // namespace

Machine read_machine() {
  Machine machine;
  utsname names{};
  if (uname(&names) == 0) {
    machine.host = names.nodename;
    machine.system = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
  }
  // x86 has "model name", ARM has "Model" or only the part's number.
  machine.processor = proc_value("/proc/cpuinfo", {"model name", "Model", "CPU part"});
  machine.instruction_set = cpu_instruction_set();
  machine.fast_bfloat16 = cpu_has_fast_bfloat16();
  machine.cores = std::max<int64_t>(0, sysconf(_SC_NPROCESSORS_ONLN));
  machine.cores_allowed = allowed_cores();
  machine.cores_allowed_list = proc_value("/proc/self/status", {"Cpus_allowed_list"});
  machine.memory_bytes = meminfo_bytes("MemTotal");
  machine.memory_available_bytes = meminfo_bytes("MemAvailable");
  // A sandbox may have no /proc: then sysinfo() tells the memory.
  if (struct sysinfo facts{}; machine.memory_bytes == 0 && sysinfo(&facts) == 0) {
    machine.memory_bytes = static_cast<int64_t>(facts.totalram * facts.mem_unit);
    machine.memory_available_bytes = static_cast<int64_t>(facts.freeram * facts.mem_unit);
  }
  read_memory_limit(machine);
  read_core_quota(machine);
  // "0.20 0.18 0.12 1/80 11206". Source: proc(5).
  double of_5_minutes = 0, of_15_minutes = 0;
  std::istringstream(first_line("/proc/loadavg")) >> machine.load >> of_5_minutes >> of_15_minutes >>
      machine.running;
  machine.shared_memory_free_bytes = free_bytes("/dev/shm");
  machine.disk_free_bytes = free_bytes(".");
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
    machine.open_files_limit = static_cast<int64_t>(files.rlim_cur);
  machine.environment = launch_environment();
  return machine;
}

int64_t allowed_cores() {
  // sched_getaffinity fails if the mask is too small. The largest machines need more than 1,024 bits.
  for (int count = 1024; count <= (1 << 18); count *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(count));
    if (set == nullptr) return 0;
    const size_t size = CPU_ALLOC_SIZE(static_cast<size_t>(count));
    const bool done = sched_getaffinity(0, size, set) == 0;
    const int64_t cores = done ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (done) return cores;
  }
  return 0;
}

ResidentMemory resident_memory() {
  const auto bytes = [](const char* key) {
    return leading_number(proc_value("/proc/self/status", {key})).value_or(0) * 1024;
  };
  return {bytes("VmRSS"), bytes("VmHWM")};
}

double clock_seconds(int clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double process_age_seconds() {
  // "PID (NAME) STATE ...": NAME may have any character, so fields count from the last bracket. Field 22 is
  // the start in clock ticks since boot. Source: proc(5).
  constexpr int kFieldsBehindName = 20;
  const std::string line = first_line("/proc/self/stat");
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string field;
  for (int i = 0; i < kFieldsBehindName; ++i) fields >> field;
  const std::optional<int64_t> ticks = parse_whole_number(field);
  if (!ticks) return 0;
  const double started = static_cast<double>(*ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::max(0.0, clock_seconds(CLOCK_BOOTTIME) - started);
}

int64_t usable_memory_bytes(const Machine& machine) {
  return std::min(machine.memory_bytes, machine.memory_limit_bytes.value_or(machine.memory_bytes));
}

std::vector<std::string> machine_problems(const Machine& machine, int64_t ranks, int64_t ranks_here,
                                          int64_t threads) {
  std::vector<std::string> found;
  const int64_t slurm_tasks = leading_number(variable(machine, "SLURM_STEP_NUM_TASKS")).value_or(1);
  // Without PMI every process believes that it is the only rank, and all would train the same run.
  if (ranks == 1 && slurm_tasks > 1)
    found.push_back(
        fmt::format("srun started {} processes, but MPI sees one alone: MPI was built without Slurm's "
                    "process management; try srun --mpi=pmix, or mpirun",
                    slurm_tasks));
  // Slurm binds each rank to its own cores, so the threads of one rank share `cores_allowed`.
  if (machine.cores_allowed > 0 && threads > machine.cores_allowed)
    found.push_back(fmt::format("{} threads a rank on {} cores that this rank may use: set OMP_NUM_THREADS",
                                threads, machine.cores_allowed));
  if (machine.cores > 0 && ranks_here * threads > machine.cores)
    found.push_back(fmt::format("{} ranks x {} threads on {} cores: they will wait for each other",
                                ranks_here, threads, machine.cores));
  // The smaller number, because other programs may have ended, or run for a moment only.
  const double others = std::min(machine.load, static_cast<double>(machine.running - ranks_here));
  if (const auto idle = static_cast<double>(std::max<int64_t>(machine.cores - ranks_here * threads, 0));
      others > idle + 0.5)
    found.push_back(fmt::format(
        "other programs keep {:.1f} of {} cores busy: speeds measured now are lower than on an idle machine",
        others, machine.cores));
  // 0.01 allows for rounding, because cores_quota is a quotient.
  if (machine.cores_quota && *machine.cores_quota + 0.01 < static_cast<double>(ranks_here * threads))
    found.push_back(fmt::format("the control group grants {:.1f} cores to {} ranks x {} threads",
                                *machine.cores_quota, ranks_here, threads));
  if (machine.cores_allowed == 1 && machine.cores > 1 && ranks_here == 1)
    found.push_back(
        fmt::format("this process may use 1 of {} cores: mpirun binds to a core unless told --bind-to none",
                    machine.cores));
  if (!machine.fast_bfloat16)
    found.push_back(
        "the processor has no bfloat16 products: precision.compute = \"bfloat16\" computes in float32");
  // MPI's buffers of one rank. Docker's default, 64 MiB, is enough for 8 ranks.
  constexpr int64_t kSharedMemoryARank = int64_t{8} << 20;
  if (machine.shared_memory_free_bytes && *machine.shared_memory_free_bytes < kSharedMemoryARank * ranks_here)
    found.push_back(
        fmt::format("/dev/shm has {} MiB free, ranks of a node talk through it (docker run --shm-size=1g)",
                    *machine.shared_memory_free_bytes >> 20));
  // A rank opens its data, its checkpoint, and several files and sockets for each other rank of its node.
  constexpr int64_t kFewFiles = 256;
  if (machine.open_files_limit && *machine.open_files_limit < kFewFiles)
    found.push_back(fmt::format("only {} open files are allowed: ulimit -n 4096", *machine.open_files_limit));
  constexpr int64_t kLittleDisk = int64_t{1} << 30;
  if (machine.disk_free_bytes && *machine.disk_free_bytes < kLittleDisk)
    found.push_back(fmt::format("{} MiB free on this disk", *machine.disk_free_bytes >> 20));
  return found;
}

}  // namespace ripstop
