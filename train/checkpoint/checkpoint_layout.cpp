#include "train/checkpoint/checkpoint_layout.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "model/core/error.h"

namespace ripstop {
namespace {

/// A part of one parameter in a wanted shard.
struct Wanted {
  int64_t unit = 0;   ///< index of the unit in the layouts
  int64_t begin = 0;  ///< start of the wanted shard in the unit's flat buffer
  Box box;
};
using WantedByName = std::map<std::string_view, std::vector<Wanted>>;

const ParameterSpec* find_parameter(const std::vector<UnitSpec>& units, const std::string& name) {
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& p : unit.parameters())
      if (p.name == name) return &p;
  return nullptr;
}

/// Throws Error(kStorage) if a checkpoint's `units` lack a parameter of `wanted` or have it in another shape.
void check_parameters(const std::vector<UnitSpec>& units, const UnitSpec& wanted) {
  for (const ParameterSpec& p : wanted.parameters()) {
    const ParameterSpec* found = find_parameter(units, p.name);
    if (found == nullptr) fail(ExitCode::kStorage, "the checkpoint has no parameter {}", p.name);
    if (found->rows != p.rows || found->columns != p.columns)
      fail(ExitCode::kStorage, "{} is [{}, {}] in the checkpoint, [{}, {}] in the model", p.name, found->rows,
           found->columns, p.rows, p.columns);
  }
}

/// The boxes of the wanted shards by parameter name, which is equal on all meshes.
WantedByName wanted_boxes(const std::vector<const UnitLayout*>& layouts, int64_t fsdp_index) {
  WantedByName wanted;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const int64_t elements = layouts[i]->shard_elements(), begin = fsdp_index * elements;
    for (const Box& box : layouts[i]->boxes(begin, begin + elements))
      wanted[box.parameter->name].push_back({static_cast<int64_t>(i), begin, box});
  }
  return wanted;
}

/// The piece that copies the box `source` to `target`, the same rectangle in another flat buffer. Its offsets
/// count from the starts of the shards, `source_begin` and `target_begin`.
Piece make_piece(const Box& source, int64_t source_begin, const Box& target, int64_t target_begin) {
  Piece piece{.rows = source.rows,
              .columns = source.columns,
              .source = source.offset - source_begin,
              .source_stride = source.stride,
              .target = target.offset - target_begin,
              .target_stride = target.stride};
  const bool dense = piece.columns == piece.source_stride && piece.columns == piece.target_stride;
  if (dense || piece.rows == 1) {  // merges the rows for a single read
    piece.columns *= piece.rows;
    piece.rows = 1;
    piece.source_stride = piece.target_stride = piece.columns;
  }
  return piece;
}

std::vector<UnitLayout> layouts_of(const std::vector<UnitSpec>& units, const MeshSizes& mesh,
                                   int64_t tensor_index) {
  std::vector<UnitLayout> layouts;
  for (const UnitSpec& unit : units) layouts.emplace_back(unit, mesh.tensor, tensor_index, mesh.fsdp);
  return layouts;
}

std::vector<UnitShard> shards_of(const std::vector<UnitLayout>& layouts, const MeshSizes& mesh,
                                 const MeshCoordinates& at) {
  std::vector<UnitShard> shards;
  int64_t of_stage = 0;  // units of this rank's stage so far
  for (size_t u = 0; u < layouts.size(); ++u) {
    const UnitLayout& layout = layouts[u];
    if (layout.unit().stage != at.pipeline) continue;
    // Replicas hold equal weights, so the units are dealt out to them, and their disks share the work.
    if (of_stage++ % mesh.replicate != at.replicate) continue;
    const int64_t written_by_another = at.tensor == 0 ? 0 : layout.replicated_elements();
    const int64_t end = (at.fsdp + 1) * layout.shard_elements();
    const int64_t begin = std::max(at.fsdp * layout.shard_elements(), written_by_another);
    if (begin < end) shards.push_back({static_cast<int64_t>(u), begin, end});
  }
  return shards;
}

std::vector<std::vector<UnitLayout>> layouts_by_tensor_index(const std::vector<UnitSpec>& units,
                                                             const MeshSizes& mesh) {
  std::vector<std::vector<UnitLayout>> layouts;
  for (int64_t t = 0; t < mesh.tensor; ++t) layouts.push_back(layouts_of(units, mesh, t));
  return layouts;
}

/// Appends the pieces that `wanted` shares with `stored`, which is shard `number` in the file of `rank`.
void append_pieces(const UnitLayout& layout, const UnitShard& stored, const WantedByName& wanted,
                   int64_t rank, int64_t number, std::vector<Piece>& pieces) {
  for (const Box& source : layout.boxes(stored.begin, stored.end)) {
    const auto found = wanted.find(source.parameter->name);
    if (found == wanted.end()) continue;
    for (const Wanted& w : found->second) {
      const Box from = intersection(source, w.box);
      if (from.empty()) continue;
      Piece piece = make_piece(from, stored.begin, intersection(w.box, source), w.begin);
      piece.rank = rank;
      piece.shard = number;
      piece.unit = w.unit;
      pieces.push_back(piece);
    }
  }
}

}  // namespace

std::string_view to_string(UnitState state) {
  constexpr std::string_view kNames[kUnitStateCount] = {"master", "first_moment", "second_moment"};
  return kNames[static_cast<size_t>(state)];
}

std::vector<UnitShard> stored_shards(const std::vector<UnitSpec>& units, const MeshSizes& mesh,
                                     int64_t rank) {
  const MeshCoordinates at = mesh_coordinates(mesh, rank);
  return shards_of(layouts_of(units, mesh, at.tensor), mesh, at);
}

std::byte* stored_begin(const UnitStates& unit, UnitState state, const UnitShard& shard, int64_t fsdp_index) {
  const int64_t skipped = shard.begin - fsdp_index * unit.layout->shard_elements();
  RIPSTOP_CHECK(skipped >= 0 && skipped + shard.elements() <= unit.layout->shard_elements(),
                "unit {} has another layout", unit.layout->unit().name);
  return unit.array(state) + skipped * element_bytes(state_dtype(state, unit.moments));
}

std::vector<StoredArray> stored_arrays(const std::vector<UnitShard>& shards, DType moments) {
  std::vector<StoredArray> arrays;
  for (const UnitShard& shard : shards)
    for (int state = 0; state < kUnitStateCount; ++state)
      arrays.push_back({shard.elements(), state_dtype(static_cast<UnitState>(state), moments)});
  return arrays;
}

std::vector<int64_t> storing_ranks(const std::vector<UnitSpec>& units, const MeshSizes& mesh) {
  const std::vector<std::vector<UnitLayout>> layouts = layouts_by_tensor_index(units, mesh);
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const MeshCoordinates at = mesh_coordinates(mesh, rank);
    if (!shards_of(layouts[static_cast<size_t>(at.tensor)], mesh, at).empty()) ranks.push_back(rank);
  }
  return ranks;
}

int64_t checkpoint_elements(const std::vector<UnitSpec>& units, const MeshSizes& mesh) {
  int64_t elements = 0;
  for (const UnitSpec& unit : units) {
    // Only the first rank of the tensor axis writes the replicated elements.
    const UnitLayout layout(unit, mesh.tensor, 0, mesh.fsdp);
    elements += mesh.tensor * layout.elements() - (mesh.tensor - 1) * layout.replicated_elements();
  }
  return elements;
}

int64_t checkpoint_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh, DType moments) {
  return checkpoint_elements(units, mesh) * (element_bytes(DType::kFloat32) + 2 * element_bytes(moments));
}

ReadPlan::ReadPlan(const std::vector<UnitSpec>& units, const MeshSizes& mesh)
    : units_(&units), mesh_(mesh), layouts_(layouts_by_tensor_index(units, mesh)) {
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const MeshCoordinates at = mesh_coordinates(mesh, rank);
    shards_.push_back(shards_of(layouts_[static_cast<size_t>(at.tensor)], mesh, at));
  }
}

std::vector<Piece> ReadPlan::pieces(const std::vector<const UnitLayout*>& layouts, int64_t fsdp_index) const {
  for (const UnitLayout* layout : layouts) check_parameters(*units_, layout->unit());
  const WantedByName wanted = wanted_boxes(layouts, fsdp_index);
  // For each unit, whether this load needs elements of it.
  std::vector<bool> reads(units_->size());
  for (size_t u = 0; u < units_->size(); ++u)
    for (const ParameterSpec& p : (*units_)[u].parameters()) reads[u] = reads[u] || wanted.contains(p.name);

  std::vector<Piece> pieces;
  for (int64_t rank = 0; rank < mesh_.ranks(); ++rank) {
    const auto& own = layouts_[static_cast<size_t>(mesh_coordinates(mesh_, rank).tensor)];
    const std::vector<UnitShard>& shards = shards_[static_cast<size_t>(rank)];
    for (size_t s = 0; s < shards.size(); ++s) {
      const size_t unit = static_cast<size_t>(shards[s].unit);
      if (reads[unit]) append_pieces(own[unit], shards[s], wanted, rank, static_cast<int64_t>(s), pieces);
    }
  }
  return pieces;
}

void check_same_parameters(const std::vector<UnitSpec>& units, const std::vector<UnitSpec>& table) {
  for (const UnitSpec& unit : table) check_parameters(units, unit);
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& p : unit.parameters())
      if (find_parameter(table, p.name) == nullptr)
        fail(ExitCode::kStorage, "the checkpoint has the parameter {}, the model does not", p.name);
}

}  // namespace ripstop
