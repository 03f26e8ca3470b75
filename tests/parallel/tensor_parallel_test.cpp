// Tests both tensor axes over real ranks, against plain sums on one rank.
#include "parallel/tensor_parallel.h"

#include <algorithm>

#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

class TensorParallelTest : public testing::Test {
 protected:
  Communicator& group = test_world().communicator();
  const int64_t count = group.size(), index = group.rank(), n = 6, columns = 50;
  const int64_t rows_bytes = n * columns * 4;  // of one rank's float32 rows
  const Stream stream{Device::cpu()};
  MemoryLedger ledger;

  // Runs `work` on kMeta with an axis that `make` makes over a planned group of this shape, then for real in
  // an arena of the planned size. Expects equal memory and bytes. Returns the bytes that this rank sent.
  template <class Make, class Work>
  int64_t run(Make make, Work work) {
    MemoryLedger none;
    const Stream meta(Device::meta(DeviceKind::kCpu));
    Arena planned_arena(meta.device(), none);
    const auto planned = make_planned_communicator("tensor", index, count);
    const std::unique_ptr<TensorAxis> planned_axis = make(*planned);
    Context planned_context{meta, planned_arena, *planned_axis};
    work(planned_context);
    Arena arena(Device::cpu(), ledger, planned_arena.peak());
    const std::unique_ptr<TensorAxis> axis = make(group);
    Context context{stream, arena, *axis};
    const int64_t before = group.bytes_sent();
    work(context);
    EXPECT_EQ(arena.peak(), planned_arena.peak());
    EXPECT_EQ(group.bytes_sent() - before, planned->bytes_sent());
    return group.bytes_sent() - before;
  }

  // `elements` as [rows, columns] on the context's device.
  template <class T>
  Tensor matrix(const Context& context, std::vector<T>& elements) const {
    Tensor t = tensor_of(elements).viewed({std::ssize(elements) / columns, columns});
    t.device = context.device();
    return t;
  }
};

auto sequence_axis(bool overlap) {
  return [overlap](Communicator& group) { return make_sequence_axis(group, overlap); };
}

bool is_planned(const Context& context) {
  return context.device().kind == DeviceKind::kMeta;
}

TEST_F(TensorParallelTest, GatherSequenceShowsAllRowsOnceOwnFirst) {
  std::vector<float> rows(static_cast<size_t>(n * columns));
  for (int64_t i = 0; i < n * columns; ++i) rows[static_cast<size_t>(i)] = sample(index, i);
  for (const bool overlap : {false, true}) {
    const int64_t sent = run(sequence_axis(overlap), [&](Context& context) {
      const Frame frame(context.arena);
      EXPECT_EQ(context.tensor.local_rows(n * count), n);
      const Tensor x = matrix(context, rows);
      std::vector<int> seen(static_cast<size_t>(n * count));
      int64_t calls = 0;
      const auto expect_rows = [&](const Tensor& part, int64_t first) {
        if (is_planned(context)) return;
        for (int64_t i = 0; i < part.count(); ++i) {
          const int64_t at = first * columns + i;
          ASSERT_EQ(part.as<float>()[i], sample(at / x.count(), at % x.count())) << at;
        }
      };
      const Tensor whole = context.tensor.gather_sequence(context, x, [&](const Tensor& part, int64_t first) {
        const Frame inner(context.arena);  // like an operation's workspace
        context.arena.allocate(DType::kFloat32, {100}, MemoryCategory::kWorkspace);
        if (calls++ == 0 && overlap) {
          EXPECT_EQ(first, index * n);
        }
        for (int64_t r = 0; r < part.rows(); ++r) ++seen[static_cast<size_t>(first + r)];
        expect_rows(part, first);
      });
      EXPECT_EQ(whole.rows(), n * count);
      expect_rows(whole, 0);
      // Own rows, the rows of each half of the peers, and one part more if the ring closes within a half.
      const int64_t halves = std::min<int64_t>(count - 1, 2), middle = 1 + count / 2;
      const bool closes = index > 0 && index + 1 < count && (index + middle) % count != 0;
      EXPECT_EQ(calls, overlap ? 1 + halves + (closes ? 1 : 0) : 1);
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
      EXPECT_EQ(whole.data == x.data, count == 1);
    });
    EXPECT_EQ(sent, rows_bytes * (count - 1));
  }
}

TEST_F(TensorParallelTest, ScatterSumAddsInRankOrder) {
  // Large terms cancel, so another order of the sum gives another result.
  const auto term = [&](int64_t rank, int64_t i) {
    return sample(rank, i) + (rank == 0 ? 1e8F : rank == count - 1 ? -1e8F : 0.0F);
  };
  for (const bool overlap : {false, true}) {
    std::vector<float> sum(static_cast<size_t>(n * columns));
    const int64_t sent = run(sequence_axis(overlap), [&](Context& context) {
      const auto produce = [&](const Tensor& part, int64_t first) {
        if (is_planned(context)) return;
        for (int64_t i = 0; i < part.count(); ++i) part.as<float>()[i] = term(index, first * columns + i);
      };
      context.tensor.scatter_sum(context, matrix(context, sum), produce, TensorAxis::Parts::kAny);
    });
    for (int64_t i = 0; i < n * columns; ++i) {
      float expected = term(0, index * n * columns + i);
      for (int64_t r = 1; r < count; ++r) expected += term(r, index * n * columns + i);
      ASSERT_EQ(sum[static_cast<size_t>(i)], expected) << i;
    }
    EXPECT_EQ(sent, rows_bytes * (count - 1));
  }
}

TEST_F(TensorParallelTest, ScatterSumRoundsBFloat16Once) {
  for (const bool overlap : {false, true}) {
    std::vector<BFloat16> sum(static_cast<size_t>(n * columns));
    const int64_t sent = run(sequence_axis(overlap), [&](Context& context) {
      const auto produce = [&](const Tensor& part, int64_t first) {
        if (is_planned(context)) return;
        for (int64_t i = 0; i < part.count(); ++i)
          part.as<BFloat16>()[i] = BFloat16(sample(index, first * columns + i));
      };
      context.tensor.scatter_sum(context, matrix(context, sum), produce, TensorAxis::Parts::kAny);
    });
    for (int64_t i = 0; i < n * columns; ++i) {
      float expected = 0;
      for (int64_t r = 0; r < count; ++r)
        expected += static_cast<float>(BFloat16(sample(r, index * n * columns + i)));
      ASSERT_EQ(sum[static_cast<size_t>(i)].bits, BFloat16(expected).bits) << i;
    }
    EXPECT_EQ(sent, rows_bytes / 2 * (count - 1));
  }
}

// NCCL needs one piece of scratch to sum float32, but overlap needs a piece for each peer.
TEST_F(TensorParallelTest, ScatterSumHasRoomForThePartsOfEveryPeer) {
  const Stream stream(Device::meta(DeviceKind::kCuda));
  for (int64_t size = 2; size <= 8; ++size)
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      std::vector<MemoryUse> peaks;
      for (const bool overlap : {false, true}) {
        const auto planned = make_planned_communicator("tensor", 1, size, DeviceKind::kCuda);
        const std::unique_ptr<TensorAxis> axis = make_sequence_axis(*planned, overlap);
        Arena arena(stream.device(), ledger);
        Context context{stream, arena, *axis};
        const Tensor out{nullptr, dtype, {n, columns}, stream.device()};
        const auto nothing = [](const Tensor&, int64_t) {};
        EXPECT_NO_THROW(context.tensor.scatter_sum(context, out, nothing, TensorAxis::Parts::kAny)) << size;
        peaks.push_back(arena.peak());
      }
      EXPECT_EQ(peaks[0], peaks[1]);
    }
}

TEST_F(TensorParallelTest, ScatterSumOfPartsProducesPeersFirstOwnRowsLast) {
  std::vector<float> sum(static_cast<size_t>(n * columns));
  run(sequence_axis(true), [&](Context& context) {
    std::vector<int64_t> produced;
    const auto produce = [&](const Tensor& part, int64_t first) {
      EXPECT_EQ(part.rows() % n, 0);
      for (int64_t row = 0; row < part.rows(); row += n) produced.push_back((first + row) / n);
    };
    context.tensor.scatter_sum(context, matrix(context, sum), produce, TensorAxis::Parts::kAny);
    std::vector<int64_t> expected;
    for (int64_t k = 1; k <= count; ++k) expected.push_back((index + k) % count);
    EXPECT_EQ(produced, expected);
  });
}

TEST_F(TensorParallelTest, ScatterSumOfTheWholeProducesOnce) {
  std::vector<float> sum(static_cast<size_t>(n * columns));
  run(sequence_axis(true), [&](Context& context) {
    int calls = 0;
    const auto produce = [&](const Tensor& part, int64_t first) {
      ++calls;
      EXPECT_EQ(part.rows(), n * count);
      EXPECT_EQ(first, 0);
    };
    context.tensor.scatter_sum(context, matrix(context, sum), produce, TensorAxis::Parts::kWhole);
    EXPECT_EQ(calls, 1);
  });
}

TEST_F(TensorParallelTest, RowsMustDivideBetweenTheRanks) {
  const auto axis = make_sequence_axis(group, false);
  if (count == 1) {
    EXPECT_EQ(axis->local_rows(7), 7);
  } else {
    EXPECT_THROW(axis->local_rows(n * count + 1), Error);
  }
}

TEST_F(TensorParallelTest, BothAxesGatherInRankOrder) {
  std::vector<float> own(7, static_cast<float>(index) + 1), all(static_cast<size_t>(7 * count));
  const auto gather = [&](Context& context) {
    EXPECT_EQ(context.tensor.count(), count);
    EXPECT_EQ(context.tensor.index(), index);
    Tensor x = tensor_of(own), to = tensor_of(all);
    x.device = to.device = context.device();
    context.tensor.gather(context, x, to);
  };
  for (int axis = 0; axis < 2; ++axis) {
    std::fill(all.begin(), all.end(), 0.0F);
    const int64_t sent = axis == 0 ? run(sequence_axis(true), gather) : run(make_replicated_axis, gather);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i / 7) + 1);
    EXPECT_EQ(sent, 7 * 4 * (count - 1));
  }
}

TEST_F(TensorParallelTest, ReplicatedAxisKeepsAllRows) {
  std::vector<BFloat16> sum(static_cast<size_t>(columns));
  run(make_replicated_axis, [&](Context& context) {
    EXPECT_EQ(context.tensor.local_rows(5), 5);
    const Tensor out = matrix(context, sum);
    int64_t calls = 0;
    const Tensor whole = context.tensor.gather_sequence(context, out, [&](const Tensor& part, int64_t first) {
      ++calls;
      EXPECT_EQ(part.data, out.data);
      EXPECT_EQ(first, 0);
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(whole.data, out.data);
    context.tensor.scatter_sum(
        context, out,
        [&](const Tensor& part, int64_t) {
          if (is_planned(context)) return;
          for (int64_t i = 0; i < part.count(); ++i) part.as<BFloat16>()[i] = BFloat16(sample(index, i));
        },
        TensorAxis::Parts::kAny);
  });
  for (int64_t i = 0; i < columns; ++i) {
    float expected = 0;
    for (int64_t r = 0; r < count; ++r) expected += static_cast<float>(BFloat16(sample(r, i)));
    EXPECT_EQ(sum[static_cast<size_t>(i)].bits, BFloat16(expected).bits);
  }
}

}  // namespace
}  // namespace ripstop
