// The communicator over NCCL (parallel/nccl_*.cpp, unchanged) on the emulated GPU and the emulated NCCL,
// beside the one over MPI. The environment chooses NCCL's version and the seed.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "model/device/cuda_device.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {

// None, one, odd, about a piece of a message, and more than the ranks' shared memory holds at once.
inline constexpr int64_t kCounts[] = {0, 1, 3, 1777, 90000};

class NcclRanks : public testing::Test {
 protected:
  // Ranks of one machine have a GPU each.
  static int index() { return static_cast<int>(test_world().communicator().rank()); }
  static std::unique_ptr<Communicator> make() {
    Communicator& world = test_world().communicator();
    return make_nccl_communicator(world.split(0, world.rank(), "world"), Device::cuda(index()));
  }

  Communicator& mpi = test_world().communicator();
  const int64_t rank = mpi.rank(), size = mpi.size();
  const Device device = Device::cuda(index());
  const Stream host{Device::cpu()};
  MemoryLedger ledger;
  std::unique_ptr<Communicator> nccl = make();
  const Stream stream{device};
  std::vector<float> mpi_scratch;

  // A vector's copy on the GPU.
  template <class T>
  struct Copy {
    Buffer memory;
    Tensor tensor;
    std::vector<T> back(const Stream& stream) const {
      std::vector<T> x(static_cast<size_t>(tensor.count()));
      if (!x.empty()) copy_bytes(stream, x.data(), tensor.data, tensor.bytes());
      stream.synchronize();
      return x;
    }
  };
  template <class T>
  Copy<T> copy_of(const std::vector<T>& x, const Stream& on) {
    const auto bytes = static_cast<int64_t>(x.size() * sizeof(T));
    Copy<T> copy{Buffer(device, ledger, MemoryCategory::kWorkspace, std::max<int64_t>(bytes, 4)), {}};
    copy.tensor = tensor_in(copy.memory, 0, DTypeOf<T>::value, {static_cast<int64_t>(x.size())});
    if (bytes > 0) copy_bytes(on, copy.tensor.data, x.data(), bytes);
    return copy;
  }
  template <class T>
  Copy<T> copy_of(const std::vector<T>& x) {
    return copy_of(x, stream);
  }
  Copy<float> scratch(int64_t bytes) {
    return copy_of(std::vector<float>(static_cast<size_t>(bytes / 4 + 1)));
  }

  template <class T>
  void check_gather(Communicator& group, int64_t n) {
    std::vector<T> own = samples<T>(group.rank(), n), expected;
    for (int64_t r = 0; r < group.size(); ++r)
      for (const T& x : samples<T>(r, n)) expected.push_back(x);
    const Copy<T> from = copy_of(own), to = copy_of(std::vector<T>(expected.size()));
    const int64_t before = group.bytes_sent();
    group.all_gather(stream, from.tensor, to.tensor).wait();
    EXPECT_TRUE(same(to.back(stream), expected)) << n << " on " << group.name();
    EXPECT_EQ(group.bytes_sent() - before, n * static_cast<int64_t>(sizeof(T)) * (group.size() - 1));
  }
  template <class T>
  void check_reduce_scatter(int64_t n, DType travel, Accumulate accumulate);
  template <class T>
  void check_all_reduce(int64_t n, double tolerance, DType travel = DTypeOf<T>::value);
  void send_along(int64_t step, bool behind_event);
};

}  // namespace ripstop
