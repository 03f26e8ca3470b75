// Reads the weights of a stored model into the shards of any mesh, with adapters merged: W + scale * B A.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/files/io.h"
#include "model/core/function_ref.h"
#include "model/lora.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/exchange/read/stored_model.h"

namespace ripstop {

/// Reads shards of one stored model. Keeps facts about the files between reads (CheckpointReader).
class WeightsReader {
 public:
  /// `io` and `model` are borrowed.
  WeightsReader(Io& io, const StoredModel& model);

  /// Overwrites unit.master, shard fsdp_index of a unit, with the weights; padding becomes zero. For a unit
  /// of parameter_table, adapters are merged (add_adapters); for a unit of adapter_table, the weights are the
  /// adapters. A vocabulary table may have more rows than in the model (StoredModel::growth). Several threads
  /// may call. Throws Error(kStorage) if the checkpoint is damaged, and what read_pretrained throws.
  void read(int64_t fsdp_index, const UnitStates& unit);

 private:
  std::vector<float> read_parameter(const ParameterSpec& parameter);
  void read_checkpoint(int64_t fsdp_index, const UnitStates& unit);

  const StoredModel& model_;
  std::optional<CheckpointReader> checkpoint_;
  std::unique_ptr<WeightsReader> base_;
  std::vector<AdapterSpec> adapters_;
  std::optional<GrownTables> grown_;  // nullopt: no growth
};

/// Reads shard fsdp_index of each of `layouts`, units of parameter_table. Calls take(unit, first, values), on
/// the caller's thread, with the elements [first, first + values.size()) of the shard of layouts[unit]: every
/// element once, in order, padding as zero. kBlockThreads threads read pieces of at most `piece_elements` (a
/// multiple of UnitLayout::kGrain). Not collective. Throws like WeightsReader::read.
void read_in_pieces(Io& io, const StoredModel& model, std::span<const UnitLayout* const> layouts,
                    int64_t fsdp_index,
                    FunctionRef<void(size_t unit, int64_t first, std::span<const float> values)> take,
                    int64_t piece_elements = int64_t{1} << 19);

/// Overwrites the masters of `units` (of parameter_table), shard fsdp_index of each. Moments stay unchanged.
void read_weights(Io& io, const StoredModel& model, int64_t fsdp_index, std::span<const UnitStates> units);

/// Returns all elements of an adapter's A or B, row-major, with B's rows in ripstop's order.
using ReadAdapter = FunctionRef<std::vector<float>(const ParameterSpec& parameter)>;

/// Adds scale * (B A) of the adapters to the elements [begin, end) of the flat buffer of `layout`, a unit of
/// parameter_table on any mesh. `to` points to element `begin`. Padding and elements without an adapter stay
/// unchanged. Sums over the LoRA rank are float64, in order, and the result is rounded once, to float32, so
/// it does not depend on the mesh or the interval. `adapters`: all or some of adapter_specs. Calls `read` for
/// A and B of each adapter in the interval, and holds one adapter at a time. Several threads may call if
/// `read` allows it.
void add_adapters(const UnitLayout& layout, int64_t begin, int64_t end, float* to,
                  std::span<const AdapterSpec> adapters, double scale, ReadAdapter read);

}  // namespace ripstop
