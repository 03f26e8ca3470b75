#include "train/machine/link_speed.h"

#include <chrono>
#include <cstdint>

namespace ripstop {
namespace {

// Small enough for latency alone, and large enough for full bandwidth.
constexpr int64_t kSmallBytes = 8;
constexpr int64_t kLargeBytes = int64_t{4} << 20;
constexpr int kMostRounds = 1000;
constexpr double kSecondsEach = 0.05;

// A part of the buffer as a tensor. `bytes` is a multiple of four.
Tensor bytes_of(const Buffer& buffer, int64_t offset, int64_t bytes) {
  return tensor_in(buffer, offset, DType::kFloat32, Shape{bytes / element_bytes(DType::kFloat32)});
}

// The largest `value` of all ranks. All ranks must decide alike whether to measure again.
double largest(Communicator& group, const Stream& stream, double value) {
  MemoryLedger ledger;
  const int64_t bytes = group.all_reduce_scratch_bytes(1, DType::kFloat64);
  const Buffer scratch(Device::cpu(), ledger, MemoryCategory::kCommunication, bytes);
  const Tensor x{&value, DType::kFloat64, Shape{1}, Device::cpu()};
  group.all_reduce(stream, x, Reduce::kMax, bytes_of(scratch, 0, bytes));
  return value;
}

// Seconds that one round of messages of `bytes` bytes takes. Doubles the number of rounds until they take
// long enough for the clock.
double seconds_a_round(Communicator& group, const Stream& stream, int64_t bytes) {
  MemoryLedger ledger;
  const Buffer buffer(Device::cpu(), ledger, MemoryCategory::kCommunication, 2 * bytes);
  const Tensor send = bytes_of(buffer, 0, bytes);
  const Tensor receive = bytes_of(buffer, bytes, bytes);
  const int64_t next = (group.rank() + 1) % group.size();
  const int64_t before = (group.rank() + group.size() - 1) % group.size();
  for (int rounds = 1;; rounds *= 2) {
    // All ranks start together. Else a rank that comes late would look like a slow link.
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < rounds; ++round) group.exchange(stream, send, next, receive, before);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    const double seconds = largest(group, stream, elapsed.count());
    if (seconds >= kSecondsEach || rounds >= kMostRounds) return seconds / rounds;
  }
}

}  // namespace

LinkSpeed measure_ring(Communicator& group) {
  const Stream stream{Device::cpu()};
  LinkSpeed speed;
  speed.latency_seconds = seconds_a_round(group, stream, kSmallBytes);
  speed.bytes_per_second = static_cast<double>(kLargeBytes) / seconds_a_round(group, stream, kLargeBytes);
  return speed;
}

}  // namespace ripstop
