// Tests that the emulator finds barriers that not all threads reach, and that every barrier in the kernels is
// necessary: without it, a result changes in some order of threads.
#include <gtest/gtest.h>

#include <random>

#include "tests/emulation/cuda/cuda_runtime.h"
#include "tests/emulation/emulated_kernels.h"
#include "tests/emulation/emulator.h"

namespace ripstop {
namespace {

using emulation::Order;
using emulation::Place;

constexpr Order kOrders[] = {Order::kForward, Order::kReversed, Order::kShuffled};

template <class Body>
void run(unsigned threads, Body body) {
  emulation::run({}, {threads, 1, 1}, body);
}

TEST(Emulator, RunsEveryThreadOfEveryBlockOnce) {
  for (const Order order : kOrders) {
    emulation::set_order(order);
    std::vector<int> runs(3 * 2 * 64);
    emulation::run({3, 2, 1}, {64, 1, 1},
                   [&] { ++runs[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x]; });
    EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
  }
}

TEST(Emulator, ThreadsWaitForEachOther) {
  for (const Order order : kOrders) {
    emulation::set_order(order);
    std::vector<int> first(96), second(96);
    run(96, [&] {
      first[threadIdx.x] = 1;
      __syncthreads();
      for (const int x : first) second[threadIdx.x] += x;
    });
    EXPECT_EQ(second, std::vector<int>(96, 96));
  }
}

TEST(Emulator, ShufflesExchangeLanes) {
  for (const Order order : kOrders) {
    emulation::set_order(order);
    run(64, [&] {
      double x = threadIdx.x;
      for (int mask = 1; mask < 32; mask *= 2) x += __shfl_xor_sync(0xffffffffU, x, mask);
      EXPECT_EQ(x, threadIdx.x < 32 ? 496 : 1520);
    });
  }
}

TEST(Emulator, RefusesBarriersThatNotAllComeTo) {
  const auto lanes = [] {
    if (threadIdx.x != 7) __syncwarp();
  };
  const auto warps = [] {
    if (threadIdx.x < 32) __syncthreads();
  };
  const auto places = [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  const auto part = [] { __shfl_xor_sync(0x0000ffffU, 1, 1); };
  EXPECT_THROW(run(32, lanes), Error);
  EXPECT_THROW(run(64, warps), Error);
  EXPECT_THROW(run(64, places), Error);
  EXPECT_THROW(run(32, part), Error);
  run(32, [] { __syncwarp(); });  // the emulator still works after an error
}

/// Inputs and outputs of all kernels that have barriers, with shapes for which each barrier is necessary.
class AllKernels {
 public:
  /// The bytes of every output.
  std::vector<std::byte> run() {
    memory_.clear();
    outputs_.clear();
    norms();
    sums();
    vocabulary();
    attention();
    std::vector<std::byte> result;
    for (const Tensor& t : outputs_) {
      const auto* bytes = static_cast<const std::byte*>(t.data);
      result.insert(result.end(), bytes, bytes + t.bytes());
    }
    return result;
  }

 private:
  Tensor room(DType dtype, const Shape& shape) {
    memory_.emplace_back(static_cast<size_t>(shape.count() * element_bytes(dtype)) / 16 + 1);
    return {memory_.back().data(), dtype, shape, Device::cpu()};
  }
  Tensor output(DType dtype, const Shape& shape) {
    outputs_.push_back(room(dtype, shape));
    return outputs_.back();
  }
  Tensor random(const Shape& shape) {
    std::mt19937 generator(static_cast<unsigned>(memory_.size()));
    std::normal_distribution<float> normal;
    const Tensor t = room(DType::kFloat32, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.as<float>()[i] = normal(generator);
    return t;
  }
  Tensor ids(const std::vector<int32_t>& values) {
    const Tensor t = room(DType::kInt32, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t.as<int32_t>());
    return t;
  }
  KernelCall call(int64_t bytes) { return {stream_, room(DType::kFloat32, {bytes / 4 + 1}).data}; }

  void norms() {
    // More rows than blocks, two warps, and both variants of the kernel.
    for (const int64_t columns : {512, 258}) {
      const int64_t rows = 600;
      const Tensor x = random({rows, columns}), weight = random({columns});
      const Tensor inverse = output(DType::kFloat32, {rows});
      kernels_.add_rmsnorm(call(0), x, {}, weight, 1e-5, x, output(DType::kFloat32, {rows, columns}),
                           inverse);
      const Tensor dresidual = output(DType::kFloat32, {rows, columns});
      kernels_.add_rmsnorm_backward(call(workspaces_.add_rmsnorm_backward(rows, columns)),
                                    random({rows, columns}), x, weight, inverse, dresidual,
                                    output(DType::kFloat32, {columns}), Accumulate::kNo);
    }
  }
  void sums() {
    const Tensor x = random({20000});
    kernels_.add_sum(call(workspaces_.add_sum(20000)), x, output(DType::kFloat64, {1}));
    kernels_.add_squared_norm(call(workspaces_.add_sum(20000)), x, output(DType::kFloat64, {1}));
  }
  void vocabulary() {
    const Tensor logits = random({3, 1000}), target = ids({1, 500, 999});
    kernels_.cross_entropy_statistics(call(0), logits, target, {0, 1000}, output(DType::kFloat32, {3, 3}));
    kernels_.argmax_rows(call(0), logits, {0, 1000}, output(DType::kFloat32, {3}),
                         output(DType::kInt32, {3}));
  }
  void attention() {
    const Heads heads{2, 1, 40};
    const int64_t rows = 200;
    const Documents documents{ids({0, 70, 200}), 2, 130};
    const Tensor qkv = random({rows, heads.row()}), out = output(DType::kFloat32, {rows, 80});
    const Tensor log_sum_exp = output(DType::kFloat32, {rows, 2});
    kernels_.attention(call(0), qkv, documents, heads, out, log_sum_exp);
    kernels_.attention_backward(
        call(workspaces_.attention_backward(rows, documents.longest, heads, DType::kFloat32, false)),
        random({rows, 80}), qkv, out, log_sum_exp, documents, heads,
        output(DType::kFloat32, {rows, heads.row()}));
    kernels_.attention_cached(call(0), random({2, heads.row()}), ids({1, 0}), ids({299, 40}),
                              random({2, 300, 2, 40}), heads, {}, output(DType::kFloat32, {2, 80}));
    // Positions 295 and 35 and those behind lie in places that another row has, too.
    kernels_.attention_cached(call(0), random({2, heads.row()}), ids({1, 1}), ids({299, 299}),
                              random({2, 300, 2, 40}), heads,
                              {ids({295, 295}), ids({295, 7, 9, 11, 13, 295, 8, 9, 12, 14}).viewed({2, 5})},
                              output(DType::kFloat32, {2, 80}));
  }

  struct alignas(16) Unit {
    std::byte bytes[16] = {};
  };
  const KernelTable& kernels_ = emulation::kernels();
  const WorkspaceTable& workspaces_ = cuda_workspaces();
  Stream stream_{Device::cpu()};
  std::vector<std::vector<Unit>> memory_;
  std::vector<Tensor> outputs_;
};

/// Whether in one of the orders a result changes or the emulator throws.
bool noticed(AllKernels& all, const std::vector<std::byte>& expected) {
  for (const Order order : kOrders) {
    emulation::set_order(order);
    try {
      if (all.run() != expected) return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

TEST(Kernels, EveryBarrierIsNeeded) {
  AllKernels all;
  emulation::set_order(Order::kForward);
  const auto expected = all.run();
  ASSERT_FALSE(noticed(all, expected)) << "results depend on the order of threads";
  int tried = 0;
  for (const Place& place : emulation::barriers()) {
    if (std::string_view(place.file).find("model/kernels/cuda/") == std::string_view::npos) continue;
    ++tried;
    emulation::remove_barrier(place);
    EXPECT_TRUE(noticed(all, expected)) << place.file << ":" << place.line << " is not missed";
    emulation::remove_barrier({});
  }
  EXPECT_GE(tried, 10);
}

TEST(Kernels, LargerHeadsAreRefused) {
  const Stream stream{Device::cpu()};
  const Tensor any{nullptr, DType::kFloat32, {0, 0}, Device::cpu()};
  const Documents documents{any, 0, 0};
  EXPECT_THROW(emulation::kernels().attention({stream, nullptr}, any, documents, {1, 1, 514}, any, any),
               Error);
}

}  // namespace
}  // namespace ripstop
