// The layers and units of each rank of a pipeline.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/parameter.h"

namespace ripstop {

/// Consecutive layers of a model. The first stage has the embedding, too, and the last one the head.
struct Stage {
  int64_t number = 0, first_layer = 0, layers = 0;
  bool is_first = true, is_last = true;
  /// The layers are [begin(), end()).
  size_t begin() const { return static_cast<size_t>(first_layer); }
  size_t end() const { return static_cast<size_t>(first_layer + layers); }
  bool operator==(const Stage&) const = default;
};

/// A model cut into stages, one or more for each rank of a pipeline. Units are numbered as in unit_table.
struct StageSplit {
  std::vector<int64_t> layers;  ///< layers of each stage, in order; {L} without a pipeline
  int64_t ranks = 1;            ///< stage s is on rank s mod ranks
  bool tied = false;            ///< unit 0 is the embedding and the head

  /// The rank's stages, by chunk.
  std::vector<Stage> of_rank(int64_t rank) const;
  /// The ranks that hold the unit, ascending: one rank, or the first and the last for a tied vocabulary.
  std::vector<int64_t> ranks_with(size_t unit) const;
  /// The units that the rank holds, ascending; `units`: the size of unit_table.
  std::vector<size_t> units_of_rank(int64_t rank, size_t units) const;
  /// Returns `table`, a unit_table, with the first of ranks_with() as the stage of each unit.
  std::vector<UnitSpec> staged(std::vector<UnitSpec> table) const;
  bool operator==(const StageSplit&) const = default;
};

/// Cuts the model into ranks * stages_per_rank stages so that the longest stage takes the fewest operations:
/// those of its layers and, in the last stage, of the head for the share `target_share` of rows (0 to 1). If
/// cuts are equally good, earlier stages get fewer layers, because they keep more micro-batches. Only the
/// last stage may have no layer. Throws Error(kResources) if there are too few layers. Pure.
StageSplit split_stages(const ModelConfig& config, int64_t sequence_length, double target_share,
                        int64_t ranks, int64_t stages_per_rank);

/// The operations of the head, with a target in every row, as a multiple of a layer's.
double head_in_layers(ModelConfig config, int64_t sequence_length);

/// Returns `split` with `layers`, which a user gave in mesh.pipeline_layers. Throws Error(kUsage), whose hint
/// is `split`, unless there is a number for each stage, none but the last is 0, and they add up to the
/// model's layers.
StageSplit with_layers(StageSplit split, const std::vector<int64_t>& layers);

}  // namespace ripstop
