#include "train/plan/measured_rates.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "model/device/cuda_machine.h"
#include "model/kernels/cpu/processor.h"
#include "model/ops/kernel_work.h"
#include "parallel/agreement.h"
#include "parallel/rank_device.h"
#include "train/machine/energy.h"
#include "train/machine/machine.h"
#include "train/machine/rank_speed.h"
#include "train/machine/slow_ranks.h"
#include "train/plan/rank_plan.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

// Sizes of the timed models, `hidden` two to four times apart: PlannedClock interpolates between them.
struct Sample {
  int64_t hidden, intermediate, heads, vocabulary, sequences, positions;
};
constexpr Sample kCpuSamples[] = {{64, 172, 4, 1024, 2, 128},
                                  {128, 344, 4, 32000, 4, 256},
                                  {384, 1024, 6, 8192, 4, 512},
                                  {1024, 2752, 16, 2048, 1, 1024}};
constexpr Sample kCudaSamples[] = {
    {512, 1376, 8, 32000, 8, 512}, {2048, 5632, 16, 8192, 4, 2048}, {4096, 11008, 32, 32000, 2, 4096}};

// Collects the time of each call of each kernel, by the kernel's sizes.
class KernelTimes final : public KernelObserver {
 public:
  using Key = std::tuple<std::string, DType, std::array<int64_t, 3>, int64_t>;  // last: FLOP, else bytes

  void run(const KernelWork& work, FunctionRef<void()> kernel) override {
    const Clock::time_point begin = Clock::now();
    kernel();
    if (stream != nullptr) stream->synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const int64_t amount = work.flops > 0 ? work.flops : work.bytes;
    if (is_on && amount > 0) times[{work.kernel, work.dtype, work.sizes, amount}].push_back(seconds);
  }

  const Stream* stream = nullptr;
  bool is_on = false;
  std::map<Key, std::vector<double>> times;
};

PlanRequest request_of(const Sample& sample, DType compute, const Device& device) {
  PlanRequest request{.model = {.hidden_size = sample.hidden,
                                .intermediate_size = sample.intermediate,
                                .num_hidden_layers = 1,
                                .num_attention_heads = sample.heads,
                                .num_key_value_heads = sample.heads,
                                .vocab_size = sample.vocabulary,
                                .max_position_embeddings = sample.positions},
                      .step = {},
                      .mesh = kMeshOfOne,
                      .device = device.kind,
                      .validates = false};
  request.step.sharding.compute = compute;
  request.step.sharding.sequence_count = sample.sequences;
  request.step.sharding.sequence_length = sample.positions;
  return request;
}

// Trains a model of one layer on each rank alone. Collective, so that the ranks begin steps together.
void time_kernels(Communicator& all, const Device& device, const PlanRequest& request, KernelTimes& times) {
  constexpr int64_t kSteps = 3;
  const ShardingOptions& sharding = request.step.sharding;
  DeviceMesh mesh = DeviceMesh::alone();
  const Stream stream(device, /*urgent=*/false, &times);
  times.stream = &stream;
  MemoryLedger ledger;
  TrainingStep step(request.model, request.step, mesh, stream, ledger, plan_rank(request, {}).arena);
  step.model().initialize(1);
  const auto rows = static_cast<size_t>(sharding.sequence_count * sharding.sequence_length);
  std::vector<int32_t> token(rows), position(rows), offset;
  for (size_t row = 0; row < rows; ++row) {
    token[row] = static_cast<int32_t>(static_cast<int64_t>(row) * 7919 % request.model.vocab_size);
    position[row] = static_cast<int32_t>(static_cast<int64_t>(row) % sharding.sequence_length);
  }
  for (int64_t sequence = 0; sequence <= sharding.sequence_count; ++sequence)
    offset.push_back(static_cast<int32_t>(sequence * sharding.sequence_length));
  for (int64_t number = 0; number <= kSteps; ++number) {
    times.is_on = number > 0;  // skips the first step, in which libraries make kernels
    all.barrier();
    step.run(
        1,
        [&](int64_t) {
          return HostTokens{token, position, token, offset};
        },
        1e-4, {number + 1}, [] { return false; });
  }
  times.stream = nullptr;
}

// The mean over ranks of each number in `own`, which has the same length on all ranks. Collective.
std::vector<double> mean_of_ranks(Communicator& all, const std::vector<double>& own) {
  std::vector<double> sums(own.size());
  for (const std::vector<double>& theirs : lists_of_all_ranks(all, own))
    for (size_t i = 0; i < own.size(); ++i) sums[i] += theirs[i] / static_cast<double>(all.size());
  return sums;
}

std::vector<KernelRate> measure_kernels(Communicator& all, const Device& device) {
  KernelTimes times;
  for (const DType compute : {DType::kFloat32, DType::kBFloat16})
    for (const Sample& sample : device.kind == DeviceKind::kCuda ? std::span<const Sample>(kCudaSamples)
                                                                 : std::span<const Sample>(kCpuSamples))
      time_kernels(all, device, request_of(sample, compute, device), times);
  std::vector<double> medians;
  for (const auto& [key, seconds] : times.times) medians.push_back(std::max(median(seconds), 1e-9));
  medians = mean_of_ranks(all, medians);
  std::vector<KernelRate> rates;
  for (size_t i = 0; const auto& [key, seconds] : times.times) {
    const auto& [kernel, dtype, sizes, amount] = key;
    rates.push_back({kernel, std::string(to_string(dtype)), sizes[0], sizes[1], sizes[2],
                     static_cast<double>(amount) / medians[i++]});
  }
  return rates;
}

}  // namespace

Rates measure_rates(MpiWorld& world, const Device& device) {
  Communicator& all = world.communicator();
  Rates rates;
  const bool cuda = device.kind == DeviceKind::kCuda;
  rates.device = cuda ? "cuda" : "cpu";
  rates.model = read_machine().processor;
  std::vector<std::string> gpus;
  if (cuda) {
    const CudaGpu gpu = look_at_cuda().gpus.at(static_cast<size_t>(device.index));
    rates.model = gpu.name;
    gpus.push_back(gpu.bus);
  }
  for (const RankHost& place : world.places())
    if (std::ranges::count(rates.hosts, place.host) == 0) rates.hosts.push_back(place.host);
  rates.ranks_per_node = world.ranks_here();
  rates.threads = cpu_threads();
  EnergyMeter meter(posix_io(), EnergyMeter::kPowercap, energy_share(world, gpus));
  rates.kernels = measure_kernels(all, device);
  double watts = 0;
  for (const NodePower& node : power_of_nodes(world, meter, cuda)) watts += node.watts.total();
  if (watts > 0) rates.watts_per_rank = watts / static_cast<double>(all.size());  // not if NaN: unreadable
  std::vector<double> memory;
  for (const RankSpeed& each : measure_ranks(world, device)) memory.push_back(each.memory_bytes_per_second);
  rates.memory_bytes_per_second = mean_of_ranks(all, memory).front();
  const std::unique_ptr<Communicator> on_device = make_device_communicator(world, device);
  const LinkRates links = measure_links(world, on_device == nullptr ? all : *on_device, device);
  rates.inside_node = links.inside_node;
  rates.between_nodes = links.between_nodes;
  return rates;
}

}  // namespace ripstop
