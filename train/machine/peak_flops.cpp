#include "train/machine/peak_flops.h"

#include <time.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <vector>

#include "model/device/cuda_machine.h"
#include "model/kernels/cpu/processor.h"
#include "parallel/agreement.h"
#include "train/machine/machine.h"
#include "train/machine/timed_product.h"

namespace ripstop {
namespace {

// Source: NVIDIA's data sheets; for GeForce and workstation cards the architecture white papers (GA102, Ada).
// Values that a sheet lists only with sparsity are halved. The first name that matches counts, so longer
// names come first. Older GPUs are absent: ripstop needs compute capability 8.0.
constexpr DataSheet kGpus[] = {
    {"GB200", 2500, 80, 8000, 900},      {"B200", 2250, 75, 8000, 900},
    {"B100", 1750, 60, 8000, 900},       {"GH200", 989.4, 66.9, 4000, 450},
    {"H200 NVL", 835.5, 60, 4800, 450},  {"H200", 989.4, 66.9, 4800, 450},
    {"H100 NVL", 835.5, 60, 3900, 300},  {"H100 PCIe", 756, 51.2, 2000, 64},
    {"H100", 989.4, 66.9, 3350, 450},    {"H800 PCIe", 756, 51.2, 2000, 64},
    {"H800", 989.4, 66.9, 3350, 200},    {"H20", 148, 44, 4000, 450},
    {"A100-PCIE", 312, 19.5, 1555, 32},  {"A100 80GB PCIe", 312, 19.5, 1935, 32},
    {"A100", 312, 19.5, 1555, 300},      {"A800", 312, 19.5, 1555, 200},
    {"A40", 149.7, 37.4, 696, 32},       {"A30", 165, 10.3, 933, 32},
    {"A10", 125, 31.2, 600, 32},         {"RTX A6000", 154.8, 38.7, 768, 32},
    {"RTX 3090 Ti", 80, 40, 1008, 32},   {"RTX 3090", 71.2, 35.6, 936, 32},
    {"L40S", 362, 91.6, 864, 32},        {"L40", 181, 90.5, 864, 32},
    {"L4", 121, 30.3, 300, 32},          {"RTX 6000 Ada", 364.2, 91.1, 960, 32},
    {"RTX 4090", 165.2, 82.6, 1008, 32},
};

// Words in the names of cut-down models, which are slower than the table says.
constexpr std::string_view kSlower[] = {"MIG", "Laptop", "D", "Max-Q"};

// Whether `words` occur in `name` as whole words: "H20" is no part of "H200".
bool has_words(std::string_view name, std::string_view words) {
  const auto is_edge = [&](size_t at) {
    return at >= name.size() || std::isalnum(static_cast<unsigned char>(name[at])) == 0;
  };
  for (size_t at = name.find(words); at != std::string_view::npos; at = name.find(words, at + 1))
    if ((at == 0 || is_edge(at - 1)) && is_edge(at + words.size())) return true;
  return false;
}

// Collective.
int64_t sum_of_all_ranks(Communicator& world, int64_t number) {
  const std::vector<int64_t> numbers = of_all_ranks(world, number);
  return std::reduce(numbers.begin(), numbers.end());
}

// The peak of all ranks' GPUs by the data sheets. Ranks that share a GPU count equal parts of its peak.
// nullopt if any rank's GPU is unknown, because a utilization of the other GPUs would mislead. Collective.
std::optional<PeakFlops> peak_of_gpus(MpiWorld& world, const Device& device, DType compute) {
  Communicator& all = world.communicator();
  const std::vector<CudaGpu> gpus = look_at_cuda().gpus;
  const CudaGpu& gpu = gpus.at(static_cast<size_t>(device.index));
  const std::vector<std::string> taken = all.all_gather_text(gpu.identity);
  const double own = data_sheet_flops(gpu.name, compute).value_or(0);
  const auto share = static_cast<int64_t>(own / static_cast<double>(std::ranges::count(taken, gpu.identity)));
  if (least_of_all_ranks(all, share) == 0) return std::nullopt;
  return PeakFlops{static_cast<double>(sum_of_all_ranks(all, share)),
                   fmt::format("data sheet: {} in {}, dense", gpu.name, to_string(compute))};
}

// All ranks compute `times` products at once, because in a step they share caches, power and perhaps cores,
// and the slowest rank decides. Equal on all ranks. Collective.
PeakRound time_round(Communicator& all, TimedProduct& product, int64_t times, bool own_cores) {
  all.barrier();
  const double before = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  const double taken = product.run(times);
  const double cpu_seconds = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
  const double share = cpu_seconds / (taken * static_cast<double>(cpu_threads()));
  PeakRound round;
  struct Own {
    double seconds, cpu_share;
    bool own_cores;
  };
  for (const Own& each : of_all_ranks(all, Own{taken, std::min(share, 1.0), own_cores})) {
    round.seconds = std::max(round.seconds, each.seconds);
    round.cpu_share = std::min(round.cpu_share, each.cpu_share);
    own_cores = own_cores && each.own_cores;
  }
  if (!own_cores) round.cpu_share = 1;
  return round;
}

std::optional<PeakFlops> measure_cpus(MpiWorld& world, DType compute) {
  constexpr int64_t kMostProducts = 1000;
  // kMostSeconds ends the measurement on a busy machine, where more rounds would not help.
  constexpr double kRoundSeconds = 0.0125, kMostSeconds = 0.4;
  Communicator& all = world.communicator();
  TimedProduct product(Device::cpu(), compute);
  const bool own_cores = has_own_cores(world);
  const double once = time_round(all, product, 1, own_cores).seconds;
  const auto times = std::clamp<int64_t>(static_cast<int64_t>(kRoundSeconds / once), 1, kMostProducts);
  std::vector<PeakRound> rounds;
  double spent = once;
  // `rounds` is equal on all ranks, so all ranks leave the loop together.
  while (!fastest_round(rounds) && std::ssize(rounds) < kMostRounds && spent < kMostSeconds) {
    rounds.push_back(time_round(all, product, times, own_cores));
    spent += rounds.back().seconds;
  }
  const std::optional<double> fastest = fastest_round(rounds);
  if (!fastest) return std::nullopt;
  const auto flops = static_cast<double>(sum_of_all_ranks(all, product.flops() * times));
  return PeakFlops{flops / *fastest,
                   fmt::format("measured: linear in {} on all ranks at once, best of {} rounds",
                               to_string(compute), rounds.size())};
}

}  // namespace

bool has_own_cores(MpiWorld& world) {
  Communicator& all = world.communicator();
  const Machine machine = read_machine();
  const int64_t node = world.places()[static_cast<size_t>(all.rank())].node;
  const std::string cores = fmt::format("{}: {}", node, machine.cores_allowed_list);
  const int64_t sharing = std::ranges::count(all.all_gather_text(cores), cores);
  const auto threads = static_cast<double>(world.ranks_here() * cpu_threads());
  return sharing * cpu_threads() <= machine.cores_allowed && threads <= machine.cores_quota.value_or(threads);
}

const DataSheet* find_data_sheet(const std::string& name) {
  if (std::ranges::any_of(kSlower, [&](std::string_view word) { return has_words(name, word); }))
    return nullptr;
  const auto found =
      std::ranges::find_if(kGpus, [&](const DataSheet& gpu) { return has_words(name, gpu.name); });
  return found == std::end(kGpus) ? nullptr : found;
}

std::optional<double> data_sheet_flops(const std::string& name, DType compute) {
  const DataSheet* gpu = find_data_sheet(name);
  if (gpu == nullptr) return std::nullopt;
  const double peak = compute == DType::kBFloat16  ? gpu->bfloat16
                      : compute == DType::kFloat32 ? gpu->float32
                                                   : 0;
  return peak > 0 ? std::optional(1e12 * peak) : std::nullopt;
}

std::optional<double> fastest_round(std::span<const PeakRound> rounds) {
  // Other programs only slow rounds, so the fastest counts. If they slow all rounds, CPU shares are low.
  constexpr double kAlike = 1.03, kLeastShare = 0.85;
  constexpr int64_t kConfirming = 3;
  double best = std::numeric_limits<double>::infinity();
  for (const PeakRound& round : rounds)
    if (round.cpu_share >= kLeastShare) best = std::min(best, round.seconds);
  const auto alike = std::ranges::count_if(rounds, [&](const PeakRound& round) {
    return round.cpu_share >= kLeastShare && round.seconds <= kAlike * best;
  });
  return alike >= kConfirming ? std::optional(best) : std::nullopt;
}

std::optional<PeakFlops> find_peak_flops(MpiWorld& world, const Device& device, DType compute) {
  if (device.kind == DeviceKind::kCuda) return peak_of_gpus(world, device, compute);
  return measure_cpus(world, compute);
}

}  // namespace ripstop
