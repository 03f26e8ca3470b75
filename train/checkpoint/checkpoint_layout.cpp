#include "train/checkpoint/checkpoint_layout.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "model/core/error.h"

namespace ripstop {
namespace {

/// What the targets want of one parameter.
struct Wanted {
  int64_t unit = 0;   ///< index among the targets
  int64_t begin = 0;  ///< of the target range
  Box box;
};
using WantedByName = std::map<std::string_view, std::vector<Wanted>>;

const ParameterSpec* find_parameter(const std::vector<UnitSpec>& units, const std::string& name) {
  for (const UnitSpec& unit : units)
    for (const PhysicalTensor& tensor : unit.tensors)
      for (const ParameterSpec& p : tensor.parts)
        if (p.name == name) return &p;
  return nullptr;
}

void check_present(const std::vector<UnitSpec>& units, const ParameterSpec& wanted) {
  const ParameterSpec* found = find_parameter(units, wanted.name);
  if (found == nullptr) fail(ExitCode::kStorage, "the checkpoint has no parameter {}", wanted.name);
  if (found->rows != wanted.rows || found->columns != wanted.columns)
    fail(ExitCode::kStorage, "{} is [{}, {}] in the checkpoint, [{}, {}] in the model", wanted.name,
         found->rows, found->columns, wanted.rows, wanted.columns);
}

WantedByName wanted_boxes(const std::vector<UnitSpec>& units, const std::vector<TargetRange>& targets) {
  WantedByName wanted;
  for (size_t i = 0; i < targets.size(); ++i) {
    const TargetRange& target = targets[i];
    for (const Box& slice : target.layout->slices()) check_present(units, *slice.parameter);
    for (const Box& box : target.layout->boxes(target.begin, target.end))
      wanted[box.parameter->name].push_back({static_cast<int64_t>(i), target.begin, box});
  }
  return wanted;
}

Piece make_piece(const Box& source, int64_t source_begin, const Box& target, int64_t target_begin) {
  Piece piece{.rows = source.rows,
              .columns = source.columns,
              .source = source.offset - source_begin,
              .source_stride = source.stride,
              .target = target.offset - target_begin,
              .target_stride = target.stride};
  const bool dense = piece.columns == piece.source_stride && piece.columns == piece.target_stride;
  if (dense || piece.rows == 1) {  // one run of elements
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

std::vector<StoredRange> ranges_of(const std::vector<UnitLayout>& layouts, const RankPlace& place) {
  std::vector<StoredRange> ranges;
  for (size_t u = 0; u < layouts.size(); ++u) {
    const UnitLayout& layout = layouts[u];
    if (static_cast<int64_t>(u) % place.mesh.replicate != place.replicate_index) continue;
    const int64_t shared = place.tensor_index == 0 ? 0 : layout.replicated_elements();
    const int64_t end = (place.fsdp_index + 1) * layout.shard_elements();
    const int64_t begin = std::max(place.fsdp_index * layout.shard_elements(), shared);
    if (begin < end) ranges.push_back({static_cast<int64_t>(u), begin, end});
  }
  return ranges;
}

/// The pieces of one stored range.
void append_pieces(const UnitLayout& layout, const StoredRange& stored, const WantedByName& wanted,
                   int64_t rank, int64_t range, std::vector<Piece>& pieces) {
  for (const Box& source : layout.boxes(stored.begin, stored.end)) {
    const auto found = wanted.find(source.parameter->name);
    if (found == wanted.end()) continue;
    for (const Wanted& w : found->second) {
      const Box from = intersection(source, w.box);
      if (from.empty()) continue;
      Piece piece = make_piece(from, stored.begin, intersection(w.box, source), w.begin);
      piece.rank = rank;
      piece.range = range;
      piece.unit = w.unit;
      pieces.push_back(piece);
    }
  }
}

/// Whether a target wants anything of this unit.
bool is_wanted(const UnitSpec& unit, const WantedByName& wanted) {
  for (const PhysicalTensor& tensor : unit.tensors)
    for (const ParameterSpec& p : tensor.parts)
      if (wanted.count(p.name) != 0) return true;
  return false;
}

}  // namespace

const char* name(UnitState state) {
  switch (state) {
    case UnitState::kMaster:
      return "master";
    case UnitState::kFirstMoment:
      return "first_moment";
    case UnitState::kSecondMoment:
      return "second_moment";
  }
  return "unknown";
}

RankPlace rank_place(const MeshSizes& mesh, int64_t rank) {
  RIPSTOP_CHECK(rank >= 0 && rank < mesh.ranks(), "rank {} of {}", rank, mesh.ranks());
  return {mesh, rank / (mesh.fsdp * mesh.tensor), rank / mesh.tensor % mesh.fsdp, rank % mesh.tensor};
}

std::vector<StoredRange> stored_ranges(const std::vector<UnitSpec>& units, const RankPlace& place) {
  return ranges_of(layouts_of(units, place.mesh, place.tensor_index), place);
}

std::vector<int64_t> storing_ranks(const std::vector<UnitSpec>& units, const MeshSizes& mesh) {
  std::vector<std::vector<UnitLayout>> layouts;
  for (int64_t t = 0; t < mesh.tensor; ++t) layouts.push_back(layouts_of(units, mesh, t));
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const RankPlace place = rank_place(mesh, rank);
    if (!ranges_of(layouts[static_cast<size_t>(place.tensor_index)], place).empty()) ranks.push_back(rank);
  }
  return ranks;
}

int64_t checkpoint_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh) {
  int64_t elements = 0;
  for (const UnitSpec& unit : units) {
    const UnitLayout layout(unit, mesh.tensor, 0, mesh.fsdp);
    elements += mesh.tensor * layout.elements() - (mesh.tensor - 1) * layout.replicated_elements();
  }
  return elements * kUnitStateCount * static_cast<int64_t>(sizeof(float));
}

std::vector<Piece> plan_reads(const std::vector<UnitSpec>& units, const MeshSizes& mesh,
                              const std::vector<TargetRange>& targets) {
  const WantedByName wanted = wanted_boxes(units, targets);
  std::vector<bool> reads(units.size());
  for (size_t u = 0; u < units.size(); ++u) reads[u] = is_wanted(units[u], wanted);
  std::vector<std::vector<UnitLayout>> layouts;
  for (int64_t t = 0; t < mesh.tensor; ++t) layouts.push_back(layouts_of(units, mesh, t));

  std::vector<Piece> pieces;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const RankPlace place = rank_place(mesh, rank);
    const std::vector<UnitLayout>& own = layouts[static_cast<size_t>(place.tensor_index)];
    const std::vector<StoredRange> ranges = ranges_of(own, place);
    for (size_t r = 0; r < ranges.size(); ++r) {
      const size_t unit = static_cast<size_t>(ranges[r].unit);
      if (reads[unit]) append_pieces(own[unit], ranges[r], wanted, rank, static_cast<int64_t>(r), pieces);
    }
  }
  return pieces;
}

}  // namespace ripstop
