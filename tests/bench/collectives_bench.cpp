// Measures the speed of the collectives between the ranks of this launch, and how much waiting ranks slow
// down ranks that compute.
//   slurm/launch.sh 4 build/cpu-release/tests/bench/collectives_bench [LARGEST_MIB]
// GB/s count the bytes that a rank sends, by the communicator's own count. Times are those of the slowest
// rank, in the best of several turns.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "parallel/mpi_world.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& call) {
  const Clock::time_point begin = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double slowest(Communicator& ranks, double seconds) {
  double result = 0;
  for (const std::string& text : ranks.all_gather_text(fmt::format("{:.9f}", seconds)))
    result = std::max(result, std::stod(text));
  return result;
}

void measure(Communicator& ranks, const char* name, int64_t bytes, const std::function<void()>& call) {
  const int turns = bytes < 1 << 20 ? 200 : 5;
  double best = 1e9;
  call();
  const int64_t before = ranks.bytes_sent();
  call();
  const auto sent = static_cast<double>(ranks.bytes_sent() - before);
  for (int block = 0; block < 3; ++block) {
    ranks.barrier();
    const double seconds = seconds_of([&] {
      for (int turn = 0; turn < turns; ++turn) call();
    });
    best = std::min(best, slowest(ranks, seconds) / turns);
  }
  if (ranks.rank() == 0)
    fmt::print("{:<28}{:>10.3f} MiB{:>12.1f} us{:>9.2f} GB/s\n", name, static_cast<double>(bytes) / (1 << 20),
               best * 1e6, sent / best * 1e-9);
}

// Does a fixed amount of work on one core.
double compute(int64_t turns) {
  double x = 1;
  for (int64_t i = 0; i < turns; ++i) x = x * 1.0000001 + 1e-9;
  return x;
}

// Half of the ranks compute while the others wait for them. The longer it takes, the more the waiting
// disturbs.
void measure_disturbance(Communicator& ranks) {
  volatile double sink = 0;
  constexpr int64_t kTurns = 100'000'000;
  const bool computes = ranks.rank() < ranks.size() / 2;
  const auto work = [&] { sink = sink + compute(kTurns); };
  ranks.barrier();
  const double alone = ranks.rank() == 0 ? seconds_of(work) : 0;
  ranks.barrier();
  const double together = computes ? seconds_of(work) : 0;
  ranks.barrier();
  const double worst = slowest(ranks, together);
  if (ranks.rank() == 0)
    fmt::print("{} of {} ranks compute, the others wait: {:.3f} s; one alone: {:.3f} s\n", ranks.size() / 2,
               ranks.size(), worst, alone);
}

ExitCode bench(Communicator& ranks, int64_t largest_bytes) {
  const Stream stream(Device::cpu());
  const int64_t size = ranks.size();
  MemoryLedger ledger;
  const Buffer memory(Device::cpu(), ledger, MemoryCategory::kCommunication, 3 * largest_bytes + (1 << 20));
  for (int64_t bytes = 4096; bytes <= largest_bytes; bytes *= 16) {
    const int64_t n = bytes / 4 / size;
    const Tensor whole = tensor_in(memory, 0, DType::kFloat32, {n * size});
    const Tensor own = tensor_in(memory, largest_bytes, DType::kFloat32, {n});
    const Tensor scratch = tensor_in(memory, 2 * largest_bytes, DType::kFloat32, {n * size});
    measure(ranks, "all_gather", bytes, [&] { ranks.all_gather(stream, own, whole).wait(); });
    for (const DType travel : {DType::kFloat32, DType::kBFloat16})
      measure(ranks, travel == DType::kFloat32 ? "reduce_scatter" : "reduce_scatter as bfloat16", bytes,
              [&] { ranks.reduce_scatter(stream, whole, own, travel, Accumulate::kYes, scratch).wait(); });
    measure(ranks, "all_reduce", bytes, [&] { ranks.all_reduce(stream, whole, scratch); });
  }
  measure(ranks, "barrier", 0, [&] { ranks.barrier(); });
  measure_disturbance(ranks);
  return ExitCode::kOk;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  const int64_t mebibytes = argc > 1 ? std::atoll(argv[1]) : 64;
  ripstop::MpiWorld world;
  return static_cast<int>(
      world.run([&] { return ripstop::bench(world.communicator(), std::max<int64_t>(1, mebibytes) << 20); }));
}
