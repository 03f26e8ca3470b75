// Messages from one rank to another over NCCL on the emulated GPU.
#include "tests/emulated_device/nccl_fixture.h"
#include "tests/emulated_device/scheduler.h"
#include "tests/expect_error.h"

namespace ripstop {

void NcclRanks::send_along(int64_t step, bool behind_event) {
  const Copy<float> zeros = copy_of(std::vector<float>(90000));
  const int64_t to = rank + step, from = rank - step;
  const auto is_there = [&](int64_t r) { return r >= 0 && r < size; };
  std::vector<Copy<float>> sent, received;
  for (const int64_t n : kCounts) {
    sent.push_back(copy_of(samples<float>(rank + n, n)));
    received.push_back(copy_of(samples<float>(rank, n)));
  }
  // A receive that does not wait for this would be overwritten.
  for (const Copy<float>& each : received)
    copy_bytes(stream, each.tensor.data, zeros.tensor.data, each.tensor.bytes());
  Event written(device);
  written.record(stream);
  std::vector<Pending> pending;
  const int64_t before = nccl->bytes_sent();
  int64_t bytes = 0;
  for (size_t k = 0; k < sent.size(); ++k) {
    const Tensor& message = sent[k].tensor;
    if (is_there(from))
      pending.push_back(
          nccl->start_receive(stream, received[k].tensor, from, behind_event ? &written : nullptr));
    if (!is_there(to)) continue;
    nccl->start_send(stream, message, to).wait();
    copy_bytes(stream, message.data, zeros.tensor.data, message.bytes());
    bytes += message.bytes();
  }
  EXPECT_EQ(nccl->bytes_sent() - before, bytes);
  check_gather<float>(*nccl, 1777);
  for (Pending& each : pending) each.wait();
  for (size_t k = 0; is_there(from) && k < received.size(); ++k)
    EXPECT_TRUE(same(received[k].back(stream), samples<float>(from + kCounts[k], kCounts[k]))) << k;
}

// Messages up and down a line of ranks. Each sender overwrites a message as soon as it may. A receive may be
// behind an event instead of the stream, and then begins before the stream's later work.
TEST_F(NcclRanks, MessagesArriveInTheOrderOfTheirSends) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    emulated::Scheduler::instance().set_seed(seed);
    for (const int64_t step : {1, -1}) send_along(step, /*behind_event=*/seed % 2 == 0);
  }
  const Copy<float> one = copy_of(std::vector<float>(1));
  EXPECT_THROW(nccl->start_send(stream, one.tensor, rank).wait(), Error);
}

// Each waits for room on the way to the next; a wait in vain names the call.
TEST_F(NcclRanks, RanksThatAllSendFirstStandStill) {
  if (size == 1) return;
  const Copy<float> first = copy_of(std::vector<float>(8)), long_one = copy_of(std::vector<float>(90000));
  const int64_t to = (rank + 1) % size, from = (rank - 1 + size) % size;
  nccl->exchange(stream, first.tensor.row_range(0, 4), to, first.tensor.row_range(4, 4), from);
  stream.synchronize();
  test_world().set_deadline(1);
  expect_error(
      [&] {
        nccl->start_send(stream, long_one.tensor, to).wait();
        nccl->start_receive(stream, long_one.tensor, from, nullptr).wait();
        stream.synchronize();
      },
      ExitCode::kCommunication, "send on world");
  nccl.reset();
  test_world().set_deadline(60);
  mpi.barrier();
}

}  // namespace ripstop
