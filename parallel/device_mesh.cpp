#include "parallel/device_mesh.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <tuple>
#include <utility>

#include "model/core/rounding.h"
#include "parallel/rank_device.h"

namespace ripstop {
namespace {

// Sizes of up to three meshes of `ranks` ranks, most similar to `asked` first: "replicate 1 x fsdp 3 x tensor
// 2, ...". `tensor_sizes` as in resolve_mesh().
std::string meshes_that_fit(const MeshSizes& asked, int64_t ranks, const std::vector<int64_t>& tensor_sizes) {
  std::vector<MeshSizes> all;
  for (const int64_t replicate : divisors(ranks))
    for (const int64_t tensor : divisors(ranks / replicate))
      for (const int64_t pipeline : divisors(ranks / replicate / tensor))
        // The layers may be too few for more stages.
        if (pipeline <= asked.pipeline &&
            (tensor_sizes.empty() || std::ranges::count(tensor_sizes, tensor) > 0))
          all.push_back({.replicate = replicate,
                         .fsdp = ranks / replicate / tensor / pipeline,
                         .tensor = tensor,
                         .pipeline = pipeline});
  // Among equal distances, few replicas and then a large tensor axis come first: both save memory.
  const auto distance = [&](const MeshSizes& m) {
    int64_t sum = 0;
    for (const MeshAxis axis : kMeshAxes)
      if (axis != MeshAxis::kFsdp) sum += std::abs(m[axis] - asked[axis]);
    return std::tuple(sum, m.replicate, -m.tensor);
  };
  std::sort(all.begin(), all.end(),
            [&](const MeshSizes& a, const MeshSizes& b) { return distance(a) < distance(b); });
  std::string text;
  for (size_t i = 0; i < all.size() && i < 3; ++i) text += (i == 0 ? "" : ", ") + all[i].to_text();
  return text;
}

// The ranks of each node, ascending; nodes in the order of their lowest ranks.
std::vector<std::vector<int64_t>> ranks_by_node(const std::vector<int64_t>& node_of_rank) {
  std::vector<std::vector<int64_t>> nodes;
  std::map<int64_t, size_t> index;
  for (size_t r = 0; r < node_of_rank.size(); ++r) {
    const auto [place, is_new] = index.try_emplace(node_of_rank[r], nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[place->second].push_back(static_cast<int64_t>(r));
  }
  return nodes;
}

[[noreturn]] void refuse_nodes(const std::vector<std::vector<int64_t>>& nodes, const MeshSizes& sizes,
                               const std::vector<std::string>& hosts) {
  constexpr size_t kShown = 8;  // nodes that a message names
  int64_t fits = 0;
  std::string shown;
  for (size_t n = 0; n < nodes.size(); ++n) {
    // Tensor groups fit inside the nodes if their size divides the number of ranks of every node.
    fits = std::gcd(fits, static_cast<int64_t>(nodes[n].size()));
    const auto first = static_cast<size_t>(nodes[n].front());
    const std::string name = first < hosts.size() ? hosts[first] : fmt::format("node {}", n);
    if (n < kShown) shown += fmt::format("{}{} has {}", n == 0 ? "" : ", ", name, nodes[n].size());
  }
  if (nodes.size() > kShown) shown += fmt::format(", and {} more nodes", nodes.size() - kShown);
  std::string tensor;
  // The model can be cut by the size that was asked for, and so by the divisors of that size.
  for (const int64_t t : divisors(std::gcd(fits, sizes.tensor)))
    tensor += (tensor.empty() ? "" : ", ") + std::to_string(t);
  throw Error(ExitCode::kResources,
              fmt::format("{}: a tensor group of {} ranks does not fit inside the nodes: {}", sizes.to_text(),
                          sizes.tensor, shown),
              fmt::format("mesh.tensor = {} fits, and so does a multiple of {} ranks on every node; "
                          "mesh.allow_tensor_across_nodes = true runs it all the same, slowly",
                          tensor, sizes.tensor));
}

// Makes links of three kinds in turn: from even ranks, from odd ranks, and the one that closes the pipeline.
// A rank is in at most one link of each kind.
PipelineGroups pipeline_groups(const MeshSizes& sizes, const MeshCoordinates& at, const MakeGroup& make,
                               int64_t stages_per_rank) {
  const int64_t last = sizes.pipeline - 1, before = at.pipeline == 0 ? last : at.pipeline - 1;
  const auto kind_of = [&](int64_t from) { return from == last ? 2 : from % 2; };
  PipelineGroups links;
  for (int64_t kind = 0; kind < 3; ++kind) {
    if (kind < 2 ? kind >= last : stages_per_rank == 1 || last == 0) continue;
    const bool is_first = kind_of(at.pipeline) == kind, has_peer = is_first || kind_of(before) == kind;
    MeshCoordinates first = at;
    if (!is_first) first.pipeline = before;
    const MeshGroup link{kPipelineAxis, is_first ? 0 : 1, 2, sizes.rank_of(first), /*is_link=*/true};
    const MeshGroup group = has_peer ? link : MeshGroup{.name = kPipelineAxis, .color = sizes.rank_of(at)};
    std::unique_ptr<Communicator> activations = make(group), gradients = make(group);
    if (!has_peer) continue;
    (is_first ? links.activations_out : links.activations_in) = std::move(activations);
    (is_first ? links.gradients_in : links.gradients_out) = std::move(gradients);
  }
  return links;
}

// Makes groups by splits of `all`, which has the ranks of the mesh in any order. Collective.
MakeGroup splits_of(Communicator& all, const MeshSizes& sizes) {
  return [&all, sizes](const MeshGroup& group) {
    // split() is collective: with a pipeline, ranks without a link must split, too.
    const bool any_splits = group.size > 1 || sizes.pipeline > 1;
    std::unique_ptr<Communicator> part =
        any_splits ? all.split(group.color, group.rank, group.name) : nullptr;
    return group.size > 1 ? std::move(part) : make_self_communicator(group.name);
  };
}

}  // namespace

MeshSizes resolve_mesh(const MeshSizes& sizes, int64_t ranks, const std::vector<int64_t>& tensor_sizes) {
  for (const MeshAxis axis : kMeshAxes)
    if (sizes[axis] < (axis == MeshAxis::kFsdp ? 0 : 1))
      fail(ExitCode::kResources, "mesh {} is no mesh: sizes begin at 1", sizes.to_text());
  MeshSizes result = sizes;
  if (sizes.fsdp == 0) result.fsdp = 1;
  const int64_t others = result.ranks();
  if (sizes.fsdp == 0) result.fsdp = std::max<int64_t>(1, ranks / others);
  if (result.ranks() == ranks) return result;
  const std::string needs = sizes.fsdp == 0
                                ? fmt::format("a multiple of {} ranks", others)
                                : fmt::format("{} rank{}", result.ranks(), result.ranks() == 1 ? "" : "s");
  throw Error(
      ExitCode::kResources, fmt::format("mesh {} needs {}, got {}", sizes.to_text(), needs, ranks),
      fmt::format("start as many ranks, or with {}: {}", ranks, meshes_that_fit(sizes, ranks, tensor_sizes)));
}

std::vector<int64_t> mesh_order(const std::vector<int64_t>& node_of_rank, const MeshSizes& sizes,
                                bool across_nodes, const std::vector<std::string>& hosts) {
  const auto tensor = static_cast<size_t>(sizes.tensor);
  RIPSTOP_CHECK(static_cast<int64_t>(node_of_rank.size()) == sizes.ranks(), "{} ranks for {}",
                node_of_rank.size(), sizes.to_text());
  const auto nodes = ranks_by_node(node_of_rank);
  // Tensor groups communicate in every layer, so as many as possible lie inside a node.
  std::vector<std::vector<int64_t>> groups;
  std::vector<int64_t> left_over;
  for (const auto& ranks : nodes) {
    const size_t whole = ranks.size() / tensor * tensor;
    if (whole != ranks.size() && !across_nodes) refuse_nodes(nodes, sizes, hosts);
    const auto begin = ranks.begin();
    for (size_t r = 0; r < whole; r += tensor)
      groups.emplace_back(begin + static_cast<ptrdiff_t>(r), begin + static_cast<ptrdiff_t>(r + tensor));
    left_over.insert(left_over.end(), begin + static_cast<ptrdiff_t>(whole), ranks.end());
  }
  // Ranks left over on their nodes form the groups that span nodes.
  for (size_t r = 0; r < left_over.size(); r += tensor) {
    const auto begin = left_over.begin() + static_cast<ptrdiff_t>(r);
    groups.emplace_back(begin, begin + static_cast<ptrdiff_t>(tensor));
  }
  // The group of the launcher's rank 0 comes first: rank 0 of the mesh prints and writes, and people look for
  // its output under the launcher's rank 0.
  const auto first = std::find_if(groups.begin(), groups.end(), [](const auto& group) {
    return std::find(group.begin(), group.end(), 0) != group.end();
  });
  std::rotate(groups.begin(), first, first + 1);
  std::vector<int64_t> order;
  for (const auto& group : groups) order.insert(order.end(), group.begin(), group.end());
  return order;
}

MeshCoordinates mesh_coordinates(const MeshSizes& sizes, int64_t rank) {
  RIPSTOP_CHECK(rank >= 0 && rank < sizes.ranks(), "rank {} of {}", rank, sizes.to_text());
  MeshCoordinates at;
  for (const MeshAxis axis : std::views::reverse(kMeshAxes)) {
    at[axis] = rank % sizes[axis];
    rank /= sizes[axis];
  }
  return at;
}

MeshGroups mesh_groups(const MeshSizes& sizes, const MeshCoordinates& at, const MakeGroup& make_any,
                       int64_t stages_per_rank) {
  // A group of another size or order would give wrong numbers.
  const auto make = [&](const MeshGroup& asked) {
    std::unique_ptr<Communicator> made = make_any(asked);
    RIPSTOP_CHECK(made->rank() == asked.rank && made->size() == asked.size,
                  "{} has this rank as {} of {}, the mesh as {} of {}", asked.name, made->rank(),
                  made->size(), asked.rank, asked.size);
    return made;
  };
  MeshGroups groups;
  groups.world = make({.rank = sizes.rank_of(at), .size = sizes.ranks()});
  for (const MeshAxis axis : kMeshAxes) {
    MeshCoordinates first = at;
    first[axis] = 0;
    const MeshGroup group{to_string(axis), at[axis], sizes[axis], sizes.rank_of(first)};
    groups.along[axis] = make(group);
    if (axis == MeshAxis::kFsdp) groups.fsdp_again = make(group);
  }
  groups.links = pipeline_groups(sizes, at, make, stages_per_rank);
  return groups;
}

DeviceMesh::DeviceMesh(const MeshSizes& sizes, const MeshCoordinates& coordinates, const MakeGroup& make,
                       int64_t stages_per_rank)
    : sizes_(sizes),
      coordinates_(coordinates),
      groups_(mesh_groups(sizes, coordinates, make, stages_per_rank)) {}

DeviceMesh DeviceMesh::alone() {
  DeviceMesh mesh(kMeshOfOne, {}, [](const MeshGroup& group) { return make_self_communicator(group.name); });
  mesh.hosts_.assign(1, "here");
  return mesh;
}

DeviceMesh DeviceMesh::along(MeshAxis axis, int64_t stages_per_rank) const {
  Communicator& group = *groups_.along[axis];
  MeshSizes sizes = kMeshOfOne;
  MeshCoordinates at;
  sizes[axis] = group.size();
  at[axis] = group.rank();
  DeviceMesh mesh(sizes, at, splits_of(group, sizes), stages_per_rank);
  mesh.hosts_ = group.all_gather_text(hosts_[static_cast<size_t>(position())]);
  return mesh;
}

DeviceMesh::DeviceMesh(MpiWorld& world, const MeshSizes& sizes, bool allow_tensor_across_nodes,
                       const Device& device, int64_t stages_per_rank)
    : sizes_(resolve_mesh(sizes, world.communicator().size())), mpi_(&world) {
  const std::unique_ptr<Communicator> on_device =
      make_device_communicator(world, device, sizes_.pipeline > 1);
  Communicator& all = on_device == nullptr ? world.communicator() : *on_device;
  std::vector<int64_t> nodes;
  std::vector<std::string> hosts;
  for (const RankHost& place : world.places()) {
    nodes.push_back(place.node);
    hosts.push_back(place.host);
  }
  const std::vector<int64_t> order = mesh_order(nodes, sizes_, allow_tensor_across_nodes, hosts);
  for (const int64_t rank : order) hosts_.push_back(hosts[static_cast<size_t>(rank)]);
  const int64_t position = std::find(order.begin(), order.end(), all.rank()) - order.begin();
  coordinates_ = mesh_coordinates(sizes_, position);
  groups_ = mesh_groups(sizes_, coordinates_, splits_of(all, sizes_), stages_per_rank);
}

DeviceMesh DeviceMesh::planned(const MeshSizes& sizes, const MeshCoordinates& coordinates, DeviceKind kind,
                               int64_t stages_per_rank) {
  // fsdp 0 means "auto", which resolve_mesh() replaces.
  RIPSTOP_CHECK(sizes.fsdp > 0, "a planned mesh of {}", sizes.to_text());
  const auto make = [&](const MeshGroup& group) {
    return make_planned_communicator(group.name, group.rank, group.size, kind);
  };
  DeviceMesh mesh(sizes, coordinates, make, stages_per_rank);
  mesh.hosts_.assign(static_cast<size_t>(sizes.ranks()), "planned");
  return mesh;
}

AxisBytes DeviceMesh::bytes_sent() const {
  AxisBytes sent;
  for (const MeshAxis axis : kMeshAxes) sent[axis] = groups_.along[axis]->bytes_sent();
  sent.fsdp += fsdp_reduce().bytes_sent();
  links().for_each([&](const Communicator& link) { sent.pipeline += link.bytes_sent(); });
  return sent;
}

AxisSeconds DeviceMesh::seconds_waited() const {
  AxisSeconds waited;
  for (const MeshAxis axis : kMeshAxes) waited[axis] = groups_.along[axis]->seconds_waited();
  waited.fsdp += fsdp_reduce().seconds_waited();
  links().for_each([&](const Communicator& link) { waited.pipeline += link.seconds_waited(); });
  return waited;
}

std::string DeviceMesh::describe() const {
  constexpr int64_t kShown = 16;
  std::string text = fmt::format("mesh {}: {} rank{}", sizes_.to_text(), ranks(), ranks() == 1 ? "" : "s");
  const int64_t groups = this->ranks() / sizes_.tensor;
  for (int64_t group = 0; group < std::min(groups, kShown); ++group) {
    const int64_t first = group * sizes_.tensor, last = first + sizes_.tensor - 1;
    const auto begin = hosts_.begin() + first;
    std::string on = *begin;
    for (auto host = begin + 1; host != begin + sizes_.tensor; ++host)
      if (std::find(begin, host, *host) == host) on += ", " + *host;
    const std::string ranks =
        first == last ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, last);
    const MeshCoordinates at = mesh_coordinates(sizes_, first);
    const std::string place = axes_text("  ", [&](MeshAxis axis) {
      const bool is_shown = axis != MeshAxis::kTensor && sizes_.is_named(axis);
      return is_shown ? fmt::format("{} {}", to_string(axis), at[axis]) : "";
    });
    text += fmt::format("\n  {}  {:<14} {}", place, ranks, on);
  }
  if (groups > kShown) text += fmt::format("\n  ... and {} more", groups - kShown);
  return text;
}

void DeviceMesh::set_step(int64_t step) const {
  if (mpi_ != nullptr) mpi_->set_step(step);
}

void DeviceMesh::set_micro_batch(int64_t stage, int64_t micro_batch) const {
  if (mpi_ != nullptr && sizes_.pipeline > 1) mpi_->set_micro_batch(stage, micro_batch);
}

}  // namespace ripstop
