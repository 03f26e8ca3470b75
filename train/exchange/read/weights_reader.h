// WeightsReader: reads many shards of one stored model, with adapters merged into the weights.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/files/io.h"
#include "model/core/function_ref.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/exchange/read/stored_model.h"

namespace ripstop {

/// What is known of a stored model's files is read once and kept, as CheckpointReader does.
class WeightsReader {
 public:
  /// `io` and `model` must outlive it.
  WeightsReader(Io& io, const StoredModel& model);

  /// Overwrites unit.master, shard fsdp_index of a unit of parameter_table, with the weights; padding becomes
  /// zero. Under adapters: w + scale * (b a), the sum over the rank in float64, rounded once. Of a unit of
  /// adapter_table: the adapters themselves. Several threads may call. Throws as StoredModel::read.
  void read(int64_t fsdp_index, const UnitStates& unit);

  /// Adds what the adapters of the model make of the elements [begin, end) of the flat buffer of `layout`,
  /// which the base's weights are in at `to`. Does nothing without adapters. Several threads may call.
  void add_adapters_to(const UnitLayout& layout, int64_t begin, int64_t end, float* to);

  /// All elements of a parameter of the checkpoint, row-major.
  std::vector<float> read_parameter(const ParameterSpec& parameter);

 private:
  const StoredModel& model_;
  std::optional<CheckpointReader> checkpoint_;
  std::unique_ptr<WeightsReader> base_;
  std::vector<AdapterSpec> adapters_;
};

/// Reads shard fsdp_index of each of `layouts`, units of parameter_table, in pieces: calls
/// take(unit, first, values), on the caller's thread, with the elements [first, first + size of `values`) of
/// the shard of layouts[unit]. Every element comes once, in order, padding as zero. Reads with kBlockThreads
/// threads, each with memory for a piece of at most `piece_elements` (a multiple of UnitLayout::kGrain) and
/// for what it reads at once: 16 MiB in all; adapters to be merged come to it. Not collective. Throws as
/// WeightsReader::read.
void read_in_pieces(Io& io, const StoredModel& model, std::span<const UnitLayout* const> layouts,
                    int64_t fsdp_index,
                    FunctionRef<void(size_t unit, int64_t first, std::span<const float> values)> take,
                    int64_t piece_elements = int64_t{1} << 19);

}  // namespace ripstop
