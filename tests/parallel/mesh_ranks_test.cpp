// The mesh over real ranks, start-up agreement, and tensor parallelism against one rank.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "parallel/agreement.h"
#include "parallel/device_mesh.h"
#include "parallel/tensor_parallel.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

TEST(DeviceMeshRanks, AxesJoinTheRanksThatDifferAlongThem) {
  const int64_t ranks = test_world().communicator().size();
  for (int64_t tensor = 1; tensor <= ranks; ++tensor)
    for (int64_t replicate = 1; replicate <= ranks / tensor; ++replicate) {
      if (ranks % (tensor * replicate) != 0) continue;
      const DeviceMesh mesh(test_world(), {.replicate = replicate, .tensor = tensor});
      const auto [r, f, t] = mesh.coordinates();
      const int64_t fsdp = mesh.sizes().fsdp;
      EXPECT_EQ(replicate * fsdp * tensor, ranks);
      EXPECT_EQ(mesh.position(), (r * fsdp + f) * tensor + t);
      const auto positions = [&](Communicator& axis) { return all_gather_number(axis, mesh.position()); };
      std::vector<int64_t> along_replicate, along_fsdp, along_tensor;
      for (int64_t k = 0; k < replicate; ++k) along_replicate.push_back((k * fsdp + f) * tensor + t);
      for (int64_t k = 0; k < fsdp; ++k) along_fsdp.push_back((r * fsdp + k) * tensor + t);
      for (int64_t k = 0; k < tensor; ++k) along_tensor.push_back((r * fsdp + f) * tensor + k);
      EXPECT_EQ(positions(mesh.replicate()), along_replicate);
      EXPECT_EQ(positions(mesh.fsdp_gather()), along_fsdp);
      EXPECT_EQ(positions(mesh.fsdp_reduce()), along_fsdp);
      EXPECT_EQ(positions(mesh.tensor()), along_tensor);
      EXPECT_EQ(static_cast<int64_t>(mesh.hosts().size()), ranks);
    }
}

TEST(DeviceMeshRanks, GathersAndReductionsMayCross) {
  const DeviceMesh mesh(test_world(), {});
  const Stream stream(Device::cpu());
  const int64_t n = 700, size = mesh.sizes().fsdp, rank = mesh.coordinates().fsdp;
  std::vector<float> own(n, static_cast<float>(rank)), all(static_cast<size_t>(n * size)), scratch;
  std::vector<float> whole(all.size(), 1.0F), sum(n);
  const Tensor room =
      scratch_of(scratch, mesh.fsdp_reduce().reduce_scatter_scratch_bytes(n * size, DType::kFloat32));
  Pending gather = mesh.fsdp_gather().all_gather(stream, tensor_of(own), tensor_of(all));
  Pending reduction = mesh.fsdp_reduce().reduce_scatter(stream, tensor_of(whole), tensor_of(sum),
                                                        DType::kFloat32, Accumulate::kNo, room);
  if (rank % 2 == 0) {
    gather.wait();
    reduction.wait();
  } else {
    reduction.wait();
    gather.wait();
  }
  EXPECT_EQ(all.back(), static_cast<float>(size - 1));
  EXPECT_EQ(sum.back(), static_cast<float>(size));
  EXPECT_EQ(mesh.bytes_sent(), (DeviceMesh::AxisBytes{.fsdp = 2 * n * 4 * (size - 1)}));
}

TEST(StartUp, EqualTextsPass) {
  require_equal(test_world().communicator(), ExitCode::kUsage, "the config", "same", "here", "");
}

TEST(StartUp, UnequalTextsAreTold) {
  Communicator& world = test_world().communicator();
  if (world.size() == 1) GTEST_SKIP() << "one rank differs from nobody";
  const bool odd = world.rank() == world.size() - 1;
  std::string what;
  try {
    require_equal(world, ExitCode::kUsage, "the config", odd ? "abc" : "def",
                  "node" + std::to_string(world.rank()), "a hint");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_EQ(error.hint(), "a hint");
    what = error.what();
  }
  EXPECT_NE(what.find("the config differs between ranks: rank"), std::string::npos) << what;
  EXPECT_NE(what.find(fmt::format("rank {} (node{}): abc", world.size() - 1, world.size() - 1)),
            std::string::npos)
      << what;
}

TEST(StartUp, AFailureOfOneRankReachesAll) {
  Communicator& world = test_world().communicator();
  const int64_t bad = world.size() / 2;
  std::string what, hint;
  try {
    do_and_agree(world, [&] {
      if (world.rank() == bad) throw Error(ExitCode::kStorage, "cannot read 'x\x1fy'", "look: there");
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
    what = error.what();
    hint = error.hint();
  }
  EXPECT_EQ(what, (world.size() == 1 ? "" : fmt::format("rank {}: ", bad)) + "cannot read 'x\x1fy'");
  EXPECT_EQ(hint, "look: there");
  EXPECT_NO_THROW(do_and_agree(world, [] {}));
}

class TensorParallelTest : public testing::Test {
 protected:
  Communicator& group = test_world().communicator();
  const int64_t count = group.size(), index = group.rank(), n = 6, columns = 50;
  const Stream stream{Device::cpu()};
  MemoryLedger ledger;

  // Runs `work` with an axis that `make` makes on kMeta over a planned group of this shape, then for real in
  // an arena of the planned size: plan and reality must agree.
  template <class Make, class Work>
  void run(Make make, Work work) {
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
  }
};

auto sequence_axis(bool overlap) {
  return [overlap](Communicator& group) { return make_sequence_axis(group, overlap); };
}

float element(const Tensor& t, int64_t row, int64_t column) {
  return t.as<float>()[row * t.cols() + column];
}

TEST_F(TensorParallelTest, GatherSequenceShowsAllRowsOnceOwnFirst) {
  for (const bool overlap : {false, true}) {
    std::vector<float> rows(static_cast<size_t>(n * columns));
    for (int64_t i = 0; i < n * columns; ++i) rows[static_cast<size_t>(i)] = sample(index, i);
    run(sequence_axis(overlap), [&](Context& context) {
      const Frame frame(context.arena);
      Tensor x = tensor_of(rows).viewed({n, columns});
      x.device = context.device();
      std::vector<int> seen(static_cast<size_t>(n * count));
      int64_t calls = 0;
      const Tensor whole = context.tensor.gather_sequence(context, x, [&](const Tensor& part, int64_t first) {
        const Frame inner(context.arena);  // as operations take their workspace
        context.arena.allocate(DType::kFloat32, {100}, MemoryCategory::kWorkspace);
        if (calls++ == 0 && overlap) {
          EXPECT_EQ(first, index * n);
        }
        for (int64_t r = 0; r < part.rows(); ++r) {
          ++seen[static_cast<size_t>(first + r)];
          if (context.device().kind == DeviceKind::kMeta) continue;
          ASSERT_EQ(element(part, r, 3), sample((first + r) / n, (first + r) % n * columns + 3));
        }
      });
      EXPECT_EQ(whole.rows(), n * count);
      EXPECT_EQ(calls, overlap ? count : 1);
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
      EXPECT_EQ(whole.data == x.data, count == 1);
    });
  }
}

TEST_F(TensorParallelTest, ScatterSumAddsInRankOrder) {
  std::vector<std::vector<float>> results;
  for (const bool overlap : {false, true}) {
    std::vector<float> sum(static_cast<size_t>(n * columns));
    run(sequence_axis(overlap), [&](Context& context) {
      Tensor out = tensor_of(sum).viewed({n, columns});
      out.device = context.device();
      const auto produce = [&](const Tensor& part, int64_t first) {
        if (context.device().kind == DeviceKind::kMeta) return;
        for (int64_t i = 0; i < part.count(); ++i) part.as<float>()[i] = sample(index, first * columns + i);
      };
      context.tensor.scatter_sum(context, out, produce, TensorAxis::Parts::kAny);
    });
    for (int64_t i = 0; i < n * columns; ++i) {
      float expected = sample(0, index * n * columns + i);
      for (int64_t r = 1; r < count; ++r) expected += sample(r, index * n * columns + i);
      ASSERT_EQ(sum[static_cast<size_t>(i)], expected) << i;
    }
  }
}

TEST_F(TensorParallelTest, ScatterSumCallsOnceWhereAskedTo) {
  std::vector<float> sum(static_cast<size_t>(n * columns));
  run(sequence_axis(true), [&](Context& context) {
    Tensor out = tensor_of(sum).viewed({n, columns});
    out.device = context.device();
    int calls = 0;
    const auto produce = [&](const Tensor& part, int64_t first) {
      ++calls;
      EXPECT_EQ(part.rows(), n * count);
      EXPECT_EQ(first, 0);
    };
    context.tensor.scatter_sum(context, out, produce, TensorAxis::Parts::kWhole);
    EXPECT_EQ(calls, 1);
  });
}

TEST_F(TensorParallelTest, ReplicatedAxisKeepsAllRows) {
  std::vector<BFloat16> sum(static_cast<size_t>(columns));
  run(make_replicated_axis, [&](Context& context) {
    EXPECT_EQ(context.tensor.local_rows(5), 5);
    Tensor out = tensor_of(sum).viewed({1, columns});
    out.device = context.device();
    const Tensor whole = context.tensor.gather_sequence(context, out, [](const Tensor&, int64_t) {});
    EXPECT_EQ(whole.data, out.data);
    context.tensor.scatter_sum(
        context, out,
        [&](const Tensor& part, int64_t) {
          if (context.device().kind == DeviceKind::kMeta) return;
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
