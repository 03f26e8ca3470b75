// Tests of the mesh order, for usual and unusual maps of ranks to nodes.
#include "parallel/device_mesh.h"
#include "tests/expect_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace ripstop {
namespace {

using Ranks = std::vector<int64_t>;

TEST(ResolveMesh, FillsFsdp) {
  EXPECT_EQ(resolve_mesh({.replicate = 2, .tensor = 2}, 16), (MeshSizes{2, 4, 2}));
  EXPECT_EQ(resolve_mesh({}, 1), (MeshSizes{1, 1, 1}));
  EXPECT_EQ(resolve_mesh({1, 3, 2}, 6), (MeshSizes{1, 3, 2}));
  EXPECT_EQ(resolve_mesh({.replicate = 2, .pipeline = 4}, 16).fsdp, 2);
}

TEST(ResolveMesh, RefusesWithWhatFits) {
  const std::string six = what_and_hint_of([] { resolve_mesh({1, 4, 2}, 6); }, ExitCode::kResources);
  EXPECT_HAS(six, "mesh replicate 1 x fsdp 4 x tensor 2 needs 8 ranks, got 6");
  EXPECT_HAS(six, "replicate 1 x fsdp 3 x tensor 2");
  const std::string automatic =
      what_and_hint_of([] { resolve_mesh({.tensor = 4}, 6); }, ExitCode::kResources);
  EXPECT_HAS(automatic, "mesh replicate 1 x fsdp auto x tensor 4 needs a multiple of 4 ranks, got 6");
  // A model of four heads takes no tensor axis of 3 or 6.
  const std::string heads = what_and_hint_of(
      [] {
        resolve_mesh({1, 4, 2}, 6, {1, 2, 4});
      },
      ExitCode::kResources);
  EXPECT_HAS(heads, "replicate 1 x fsdp 3 x tensor 2");
  EXPECT_EQ(heads.find("tensor 3"), std::string::npos) << heads;
  EXPECT_EQ(heads.find("tensor 6"), std::string::npos) << heads;
  // The layers may be too few for more stages.
  const std::string stages =
      what_and_hint_of([] { resolve_mesh({.fsdp = 2, .pipeline = 5}, 12); }, ExitCode::kResources);
  EXPECT_HAS(stages,
             "mesh replicate 1 x pipeline 5 x fsdp 2 x tensor 1 needs 10 ranks, got 12 | start as many "
             "ranks, or with 12: replicate 1 x pipeline 4 x fsdp 3 x tensor 1, ");
  EXPECT_HAS(stages, "pipeline 3");
  EXPECT_EQ(stages.find("pipeline 6"), std::string::npos) << stages;
  expect_error([] { resolve_mesh({.tensor = 0}, 6); }, ExitCode::kResources);
  expect_error([] { resolve_mesh({.pipeline = 0}, 6); }, ExitCode::kResources);
  expect_error([] { resolve_mesh({.tensor = 8}, 4); }, ExitCode::kResources);
}

// Whether every tensor group of the order lies inside one node.
bool inside_nodes(const Ranks& order, const Ranks& nodes, int64_t tensor) {
  for (size_t i = 0; i < order.size(); i += static_cast<size_t>(tensor))
    for (size_t k = i; k < i + static_cast<size_t>(tensor); ++k)
      if (nodes[static_cast<size_t>(order[k])] != nodes[static_cast<size_t>(order[i])]) return false;
  return true;
}

TEST(MeshOrder, BlocksStayAsTheyAre) {
  Ranks identity(8);
  std::iota(identity.begin(), identity.end(), 0);
  EXPECT_EQ(mesh_order({0, 0, 0, 0, 4, 4, 4, 4}, {1, 4, 2}, false), identity);
  EXPECT_EQ(mesh_order({0, 0, 0, 0, 0, 0, 0, 0}, {2, 2, 2}, false), identity);
}

TEST(MeshOrder, RoundRobinIsUndone) {
  EXPECT_EQ(mesh_order({0, 1, 0, 1, 0, 1, 0, 1}, {1, 4, 2}, false), (Ranks{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(mesh_order({7, 5, 3, 7, 5, 3}, {1, 3, 2}, false), (Ranks{0, 3, 1, 4, 2, 5}));
}

TEST(MeshOrder, AnyMapGivesAPermutationThatFits) {
  for (int64_t tensor : {1, 2, 4}) {
    // Three nodes of unequal size, all multiples of 4, in a mixed order.
    Ranks nodes;
    for (int i = 0; i < 24; ++i) nodes.push_back(i * 7 % 24 < 4 ? 10 : i * 7 % 24 < 16 ? 20 : 30);
    const Ranks order = mesh_order(nodes, {1, 24 / tensor, tensor}, false);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), nodes.size());
    EXPECT_TRUE(inside_nodes(order, nodes, tensor));
    EXPECT_EQ(order.front(), 0);
  }
}

TEST(MeshOrder, RefusesGroupsAcrossNodes) {
  const Ranks nodes{0, 0, 0, 3, 3, 3};
  const std::vector<std::string> hosts{"n1", "n1", "n1", "n2", "n2", "n2"};
  const std::string text = what_and_hint_of(
      [&] {
        mesh_order(nodes, {1, 3, 2}, false, hosts);
      },
      ExitCode::kResources);
  EXPECT_HAS(text, "n1 has 3, n2 has 3");
  EXPECT_HAS(text, "mesh.tensor = 1 fits");
}

TEST(MeshOrder, CrossesAsLittleAsPossibleWhereAllowed) {
  const Ranks nodes{0, 0, 0, 3, 3, 3};
  const Ranks order = mesh_order(nodes, {1, 3, 2}, true);
  int crossing = 0;
  for (size_t i = 0; i < order.size(); i += 2)
    crossing += nodes[static_cast<size_t>(order[i])] != nodes[static_cast<size_t>(order[i + 1])];
  EXPECT_EQ(crossing, 1);
  EXPECT_EQ(order.front(), 0);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), nodes.size());
  // Rank 0 comes first even if its node is too small for a group of its own.
  const Ranks small = mesh_order({9, 4, 4, 4}, {1, 2, 2}, true);
  EXPECT_EQ(small.front(), 0);
  EXPECT_EQ(std::set<int64_t>(small.begin(), small.end()).size(), 4U);
}

TEST(DeviceMesh, PlannedMeshHasEveryAxis) {
  const MeshSizes sizes{2, 3, 4};
  for (int64_t position = 0; position < sizes.ranks(); ++position) {
    const MeshCoordinates at = mesh_coordinates(sizes, position);
    EXPECT_EQ(sizes.rank_of(at), position);
    const DeviceMesh mesh = DeviceMesh::planned(sizes, at);
    EXPECT_EQ(mesh.position(), position);
    EXPECT_EQ(mesh.replicate().size(), 2);
    EXPECT_EQ(mesh.fsdp_gather().size(), 3);
    EXPECT_EQ(mesh.fsdp_reduce().rank(), at.fsdp);
    EXPECT_EQ(mesh.tensor().rank(), position % 4);
    EXPECT_EQ(mesh.data_rank(), position / 4);
    EXPECT_EQ(mesh.data_ranks(), 6);
  }
  EXPECT_THROW(mesh_coordinates(sizes, 24), Error);
  EXPECT_THROW(mesh_coordinates(sizes, -1), Error);
  const DeviceMesh mesh = DeviceMesh::planned(sizes, {});
  EXPECT_EQ(mesh.describe().find(
                "mesh replicate 2 x fsdp 3 x tensor 4: 24 ranks\n  replicate 0  fsdp 0  ranks 0-3"),
            0U)
      << mesh.describe();
}

TEST(DeviceMesh, StagesLieBetweenReplicasAndShards) {
  const MeshSizes sizes{.replicate = 2, .fsdp = 2, .tensor = 2, .pipeline = 3};
  EXPECT_EQ(sizes.data_ranks(), 4);
  for (int64_t position = 0; position < sizes.ranks(); ++position) {
    const MeshCoordinates at = mesh_coordinates(sizes, position);
    EXPECT_EQ(((at.replicate * 3 + at.pipeline) * 2 + at.fsdp) * 2 + at.tensor, position);
    EXPECT_EQ(sizes.rank_of(at), position);
    const DeviceMesh mesh = DeviceMesh::planned(sizes, at);
    EXPECT_EQ(mesh.pipeline().rank(), at.pipeline);
    EXPECT_EQ(mesh.pipeline().size(), 3);
    EXPECT_EQ(mesh.data_rank(), at.replicate * 2 + at.fsdp) << "all stages read the same sequences";
    EXPECT_EQ(mesh.data_ranks(), 4);
  }
  const std::string text = DeviceMesh::planned(sizes, {}).describe();
  EXPECT_EQ(text.find("mesh replicate 2 x pipeline 3 x fsdp 2 x tensor 2: 24 ranks\n"
                      "  replicate 0  pipeline 0  fsdp 0  ranks 0-1      planned\n"),
            0U)
      << text;
  EXPECT_HAS(text, "\n  replicate 1  pipeline 2  fsdp 1  ranks 22-23");
}

// With two stages on each rank, the first and the last rank are neighbours, too.
TEST(DeviceMesh, NeighboursInAPipelineHaveLinks) {
  for (const auto& [ranks, place, is_closed] :
       {std::tuple{4, 0, false}, {4, 1, false}, {4, 3, false}, {4, 0, true}, {3, 2, true}, {2, 1, true}}) {
    const MeshSizes sizes{.fsdp = 1, .tensor = 2, .pipeline = ranks};
    const DeviceMesh mesh =
        DeviceMesh::planned(sizes, {.tensor = 1, .pipeline = place}, DeviceKind::kCpu, is_closed ? 2 : 1);
    const PipelineGroups& links = mesh.links();
    EXPECT_EQ(links.activations_in != nullptr, is_closed || place > 0);
    EXPECT_EQ(links.gradients_out != nullptr, is_closed || place > 0);
    EXPECT_EQ(links.activations_out != nullptr, is_closed || place < ranks - 1);
    EXPECT_EQ(links.gradients_in != nullptr, is_closed || place < ranks - 1);
    int64_t count = 0;
    const Device device = Device::meta(DeviceKind::kCpu);
    const Stream stream(device);
    const Tensor x{nullptr, DType::kFloat32, {100}, device};
    links.for_each([&](Communicator& link) {
      EXPECT_EQ(link.size(), 2);
      EXPECT_EQ(link.name(), kPipelineAxis);
      link.all_gather(stream, x, Tensor{nullptr, DType::kFloat32, {200}, device}).wait();
      ++count;
    });
    EXPECT_EQ(mesh.bytes_sent(), (AxisBytes{.pipeline = count * 400}));
  }
  DeviceMesh::planned({1, 2, 2}, {}).links().for_each([](Communicator&) {
    FAIL() << "there is no pipeline";
  });
}

// Where make() splits a communicator, ranks that called it in another order or number would wait for ever.
TEST(MeshGroups, AllRanksMakeTheSameGroups) {
  for (const auto& [stages, is_closed] : {std::pair<int64_t, bool>{1, false},
                                          {2, false},
                                          {3, false},
                                          {5, false},
                                          {1, true},
                                          {2, true},
                                          {3, true},
                                          {4, true}}) {
    const MeshSizes sizes{.replicate = 2, .fsdp = 2, .tensor = 1, .pipeline = stages};
    // For each call of make(), the ranks of each group.
    std::vector<std::map<int64_t, std::map<int64_t, int64_t>>> calls;
    for (int64_t position = 0; position < sizes.ranks(); ++position) {
      size_t call = 0;
      const auto make = [&](const MeshGroup& group) {
        if (call == calls.size()) calls.emplace_back();
        EXPECT_TRUE(calls[call++][group.color].emplace(group.rank, group.size).second) << "two ranks are one";
        return make_planned_communicator(group.name, group.rank, group.size);
      };
      mesh_groups(sizes, mesh_coordinates(sizes, position), make, is_closed ? 2 : 1);
      EXPECT_EQ(call, calls.size()) << position;
    }
    const bool closes = is_closed && stages > 1;
    EXPECT_EQ(calls.size(), 6 + 2 * static_cast<size_t>(std::min<int64_t>(stages - 1, 2) + (closes ? 1 : 0)));
    for (const auto& call : calls)
      for (const auto& [color, group] : call)
        for (const auto& [rank, size] : group) EXPECT_EQ(size, std::ssize(group)) << color;
  }
}

TEST(MeshAxes, LoopsSeeEveryMember) {
  const AxisBytes after{.replicate = 10, .fsdp = 200, .tensor = 3000, .pipeline = 40000},
      before{.replicate = 1, .fsdp = 2, .tensor = 3, .pipeline = 4};
  EXPECT_EQ(after - before, (AxisBytes{.replicate = 9, .fsdp = 198, .tensor = 2997, .pipeline = 39996}));
  EXPECT_EQ(after.sum(), 43210);
  EXPECT_EQ(
      axes_text(", ", [&](MeshAxis axis) { return fmt::format("{} {}", to_string(axis), after[axis]); }),
      "replicate 10, pipeline 40000, fsdp 200, tensor 3000");
  EXPECT_EQ(axes_text("/", [](MeshAxis axis) { return axis == MeshAxis::kReplicate ? "" : to_string(axis); }),
            "pipeline/fsdp/tensor");
}

TEST(MeshAxes, TextsNameAPipelineThatThereIs) {
  EXPECT_EQ((MeshSizes{1, 2, 4}).to_text(), "replicate 1 x fsdp 2 x tensor 4");
  EXPECT_EQ((MeshSizes{.pipeline = 2}).to_text(), "replicate 1 x pipeline 2 x fsdp auto x tensor 1");
}

TEST(DeviceMesh, OneRankAloneSendsNothing) {
  const DeviceMesh mesh = DeviceMesh::alone();
  EXPECT_EQ(mesh.ranks(), 1);
  EXPECT_EQ(mesh.data_ranks(), 1);
  for (Communicator* group : {&mesh.world(), &mesh.replicate(), &mesh.pipeline(), &mesh.fsdp_gather(),
                              &mesh.fsdp_reduce(), &mesh.tensor()})
    EXPECT_EQ(group->size(), 1);
}

TEST(MeshGroups, GroupsThatDoNotFitAreRefused) {
  const MeshSizes sizes{.replicate = 1, .fsdp = 2, .tensor = 3, .pipeline = 2};
  for (const bool of_links : {false, true})
    for (const auto& [wrong_rank, wrong_size] : {std::pair<int64_t, int64_t>{0, 0}, {-1, 0}, {0, 1}}) {
      const auto make = [&](const MeshGroup& group) {
        const bool is_wrong = of_links ? group.is_link : group.size == 3;
        return make_planned_communicator(group.name, group.rank + (is_wrong ? wrong_rank : 0),
                                         group.size + (is_wrong ? wrong_size : 0));
      };
      const auto groups = [&] { return mesh_groups(sizes, {.fsdp = 1, .tensor = 2, .pipeline = 1}, make); };
      if (wrong_rank == 0 && wrong_size == 0)
        EXPECT_EQ(groups().world->rank(), 11);
      else
        EXPECT_THROW(groups(), Error);
    }
}

}  // namespace
}  // namespace ripstop
