// The energy that a launch takes, by counters of the machine: RAPL (Linux's powercap) for processors and
// their memory, NVML for GPUs. A counter counts whatever runs on its node or GPU.
#pragma once
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/files/io.h"
#include "model/core/function_ref.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// Joules or watts. A number that cannot be read is NaN, as are sums that include it; JSON has null.
struct Energy {
  double host = 0;  ///< processors and their memory
  double gpus = 0;
  double total() const { return host + gpus; }
  Energy& operator+=(const Energy& other) {
    host += other.host;
    gpus += other.gpus;
    return *this;
  }
};

/// The counters that a rank reads, so that a launch counts each node and each GPU once.
struct EnergyShare {
  bool host = true;               ///< whether the rank is the lowest of its node
  std::vector<std::string> gpus;  ///< PCI addresses that no lower rank of the node has given
};

/// The share of `rank`. `gpus`: PCI addresses that each rank gives. Both lists are indexed by rank. Pure.
EnergyShare energy_share(const std::vector<RankHost>& places,
                         const std::vector<std::vector<std::string>>& gpus, size_t rank);
/// The share of this rank, which gives `gpus` (CudaGpu::bus). Collective.
EnergyShare energy_share(MpiWorld& world, const std::vector<std::string>& gpus);

/// Counts energy from the construction on. If there are counters, a thread reads them every few seconds,
/// because the counters of RAPL wrap around.
class EnergyMeter {
 public:
  static constexpr const char* kPowercap = "/sys/class/powercap";
  /// A counter of a package may wrap around after 60 s. Source: Intel's Software Developer's Manual, volume
  /// 3B, "RAPL Interfaces", MSR_PKG_ENERGY_STATUS.
  static constexpr std::chrono::milliseconds kReadEvery{5000};

  /// Does not throw if a counter cannot be read (problem()). `io` must outlive this object. Not collective.
  EnergyMeter(Io& io, const std::filesystem::path& powercap, const EnergyShare& share,
              std::chrono::milliseconds read_every = kReadEvery);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  /// Reads the counters. Returns joules since the construction; each member is NaN from its first failure on.
  Energy read();
  double seconds() const;  ///< since the construction

  /// The readable counters, such as "package-0", "package-0 dram", "GPU 0000:1b:00.0".
  std::vector<std::string> counters();
  /// Why counters cannot be read; "" if all can.
  std::string problem();

 private:
  struct Counter {
    std::string name;
    std::filesystem::path zone;   ///< folder of a RAPL zone; empty for a GPU
    std::string gpu;              ///< PCI address
    int64_t range = 0, last = 0;  ///< microjoules
  };
  /// Counters that are useful only if all can be read. A failure clears `counters`.
  struct Source {
    std::vector<Counter> counters;
    double joules = 0;
    std::string problem;
  };

  std::string text(const std::filesystem::path& path);
  int64_t number(const std::filesystem::path& path);
  std::vector<Counter> rapl_counters(const std::filesystem::path& powercap);
  int64_t now(const Counter& counter);
  void try_to(Source& source, FunctionRef<void()> body);
  void read(Source& source);
  void run();

  Io& io_;
  const std::chrono::milliseconds read_every_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  ///< guards host_, gpus_ and stops_
  Source host_, gpus_;
  bool stops_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

/// The power of a node over a measurement, as `doctor --json` shows it.
struct NodePower {
  Energy watts;
  bool has_gpus = false;  ///< whether a rank there sees GPUs
  double seconds = 0;     ///< length of the measurement
  std::vector<std::string> counters;
  std::string problem;
  static void fields(auto& self, auto& field) {
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    field("watts", self.watts.total());
    field("gpu_watts", self.has_gpus ? self.watts.gpus : unknown);
    field("seconds", self.seconds);
    field("counters", self.counters);
    field("problem", self.problem);
  }
};

/// Each node's mean power since the meters were made, in the order of the nodes' lowest ranks. If this rank
/// has counters, waits until its meter is half a second old. Collective.
std::vector<NodePower> power_of_nodes(MpiWorld& world, EnergyMeter& meter, bool has_gpus);

/// "212.4 W of processors and memory over 1.3 s (package-0, package-0 dram)", or "not readable: ...".
std::string power_text(const NodePower& power);

}  // namespace ripstop
