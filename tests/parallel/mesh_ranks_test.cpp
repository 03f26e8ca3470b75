// Tests of the mesh over real ranks, and of agreement at start-up.
#include <algorithm>
#include <new>

#include "parallel/agreement.h"
#include "parallel/device_mesh.h"
#include "tests/expect_error.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

TEST(DeviceMeshRanks, AxesJoinTheRanksThatDifferAlongThem) {
  const int64_t ranks = test_world().communicator().size();
  for (const MeshSizes& sizes : meshes_of(ranks)) {
    const DeviceMesh mesh(test_world(), sizes);
    const auto [r, f, t, p] = mesh.coordinates();
    const auto [replicate, fsdp, tensor, pipeline] = mesh.sizes();
    const auto position = [&](int64_t of_r, int64_t of_p, int64_t of_f, int64_t of_t) {
      return ((of_r * pipeline + of_p) * fsdp + of_f) * tensor + of_t;
    };
    EXPECT_EQ(replicate * pipeline * fsdp * tensor, ranks);
    EXPECT_EQ(mesh.position(), position(r, p, f, t));
    const auto positions = [&](Communicator& axis) { return of_all_ranks(axis, mesh.position()); };
    std::vector<int64_t> along_replicate, along_pipeline, along_fsdp, along_tensor;
    for (int64_t k = 0; k < replicate; ++k) along_replicate.push_back(position(k, p, f, t));
    for (int64_t k = 0; k < pipeline; ++k) along_pipeline.push_back(position(r, k, f, t));
    for (int64_t k = 0; k < fsdp; ++k) along_fsdp.push_back(position(r, p, k, t));
    for (int64_t k = 0; k < tensor; ++k) along_tensor.push_back(position(r, p, f, k));
    EXPECT_EQ(positions(mesh.replicate()), along_replicate);
    EXPECT_EQ(positions(mesh.pipeline()), along_pipeline);
    EXPECT_EQ(positions(mesh.fsdp_gather()), along_fsdp);
    EXPECT_EQ(positions(mesh.fsdp_reduce()), along_fsdp);
    EXPECT_EQ(positions(mesh.tensor()), along_tensor);
    EXPECT_EQ(static_cast<int64_t>(mesh.hosts().size()), ranks);
  }
}

// Sends this rank's stage over a link, and expects `stage` of the neighbour.
Pending start_swap(Communicator& link, const Stream& stream, std::vector<float>& own,
                   std::vector<float>& other) {
  const int64_t peer = 1 - link.rank();
  const Exchange swap{tensor_of(own), peer, tensor_of(other), peer};
  return link.start_exchanges(stream, {&swap, 1});
}

// Both ways of a link and all links of a rank are groups of their own, for which it may wait in any order.
TEST(DeviceMeshRanks, StagesReachTheirNeighboursOverLinks) {
  const int64_t ranks = test_world().communicator().size();
  const Stream stream(Device::cpu());
  for (const MeshSizes& sizes : meshes_of(ranks)) {
    const DeviceMesh mesh(test_world(), sizes);
    const int64_t stage = mesh.coordinates().pipeline, last = sizes.pipeline - 1, n = 700;
    const int64_t beside = sizes.fsdp * sizes.tensor;  // positions between a stage and the next
    const auto at = [&](int64_t position) { return std::vector(n, static_cast<float>(position)); };
    std::vector<float> own = at(mesh.position());
    std::vector<std::vector<float>> received, expected;
    received.reserve(4);
    std::vector<Pending> pending;
    mesh.links().for_each([&](Communicator& link) {
      pending.push_back(start_swap(link, stream, own, received.emplace_back(n)));
      expected.push_back(at(mesh.position() + (link.rank() == 0 ? beside : -beside)));
    });
    EXPECT_EQ(std::ssize(received), 2 * ((stage > 0 ? 1 : 0) + (stage < last ? 1 : 0)));
    if (stage % 2 == 1) std::ranges::reverse(pending);
    for (Pending& each : pending) each.wait();
    EXPECT_EQ(received, expected);
    EXPECT_EQ(mesh.bytes_sent(), (AxisBytes{.pipeline = 4 * n * std::ssize(received)}));
    double waited = 0;
    mesh.links().for_each([&](Communicator& link) { waited += link.seconds_waited(); });
    EXPECT_EQ(mesh.seconds_waited(), (AxisSeconds{.pipeline = waited}));
    if (sizes.pipeline == 1) continue;
    const DeviceMesh alone = mesh.along(MeshAxis::kPipeline);
    EXPECT_EQ(alone.position(), stage);
    EXPECT_EQ(alone.links().activations_in != nullptr, stage > 0);
    EXPECT_EQ(alone.links().activations_out != nullptr, stage < last);
    const DeviceMesh closed = mesh.along(MeshAxis::kPipeline, /*stages_per_rank=*/2);
    EXPECT_NE(closed.links().activations_in, nullptr);
    EXPECT_NE(closed.links().activations_out, nullptr);
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
  EXPECT_EQ(mesh.bytes_sent(), (AxisBytes{.fsdp = 2 * n * 4 * (size - 1)}));
}

TEST(DeviceMeshRanks, WaitsForBothGroupsOfTheFsdpAxisCount) {
  const DeviceMesh mesh(test_world(), {});
  if (mesh.sizes().fsdp == 1) return;  // one rank waits for nobody
  const Stream stream(Device::cpu());
  std::vector<float> whole(static_cast<size_t>(mesh.sizes().fsdp)), own(1), scratch;
  Communicator& reduce = mesh.fsdp_reduce();
  const Tensor room =
      scratch_of(scratch, reduce.reduce_scatter_scratch_bytes(mesh.sizes().fsdp, DType::kFloat32));
  Pending sum =
      reduce.reduce_scatter(stream, tensor_of(whole), tensor_of(own), DType::kFloat32, Accumulate::kNo, room);
  const double posted = reduce.seconds_waited();
  sum.poll();
  const double polled = reduce.seconds_waited();
  sum.wait();
  EXPECT_GT(posted, 0);
  EXPECT_GT(polled, posted);
  EXPECT_GT(reduce.seconds_waited(), polled);
  EXPECT_EQ(mesh.seconds_waited().fsdp, mesh.fsdp_gather().seconds_waited() + reduce.seconds_waited());
}

TEST(StartUp, EqualTextsPass) {
  require_equal(test_world().communicator(), ExitCode::kUsage, "the config", "same", "here", "");
}

TEST(StartUp, UnequalTextsAreTold) {
  Communicator& world = test_world().communicator();
  const bool odd = world.rank() == world.size() - 1;
  const Error error = error_of([&] {
    require_equal(world, ExitCode::kUsage, "the config", odd ? "abc" : "def",
                  "node" + std::to_string(world.rank()), "a hint");
  });
  const std::string what = error.what();
  if (world.size() == 1) {
    EXPECT_EQ(what, "");  // one rank differs from nobody
    return;
  }
  EXPECT_EQ(error.code(), ExitCode::kUsage);
  EXPECT_EQ(error.hint(), "a hint");
  EXPECT_HAS(what, "the config differs between ranks: rank");
  EXPECT_HAS(what, fmt::format("rank {} (node{}): abc", world.size() - 1, world.size() - 1));
}

TEST(StartUp, AFailureOfOneRankReachesAll) {
  Communicator& world = test_world().communicator();
  const int64_t bad = world.size() / 2;
  const Error error = error_of([&] {
    do_and_agree(world, [&] {
      if (world.rank() == bad) throw Error(ExitCode::kStorage, "cannot read 'x\x1fy'", "look: there");
    });
  });
  EXPECT_EQ(error.code(), ExitCode::kStorage);
  EXPECT_EQ(error.what(), (world.size() == 1 ? "" : fmt::format("rank {}: ", bad)) + "cannot read 'x\x1fy'");
  EXPECT_EQ(error.hint(), "look: there");
  EXPECT_NO_THROW(do_and_agree(world, [] {}));
}

// A job script may start such a job again on larger nodes; 70 would blame the program.
TEST(StartUp, LackOfMemoryKeepsItsCode) {
  expect_error([&] { do_and_agree(test_world().communicator(), [] { throw std::bad_alloc(); }); },
               ExitCode::kResources);
}

}  // namespace
}  // namespace ripstop
