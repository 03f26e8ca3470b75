// Reads the weights of a stored model into the shards of any mesh, with adapters merged: w + scale * b a.
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

/// Reads many shards of one stored model. Facts about its files are read once and kept, as CheckpointReader
/// does.
class WeightsReader {
 public:
  /// `io` and `model` must outlive it.
  WeightsReader(Io& io, const StoredModel& model);

  /// Overwrites unit.master, shard fsdp_index of a unit of parameter_table, with the weights; padding becomes
  /// zero. Under adapters: add_adapters. Of a unit of adapter_table: the adapters themselves. Reads only what
  /// the shard needs. Several threads may call. Throws Error(kStorage) if the checkpoint is damaged, and as
  /// read_pretrained.
  void read(int64_t fsdp_index, const UnitStates& unit);

 private:
  std::vector<float> read_parameter(const ParameterSpec& parameter);
  void read_checkpoint(int64_t fsdp_index, const UnitStates& unit);

  const StoredModel& model_;
  std::optional<CheckpointReader> checkpoint_;
  std::unique_ptr<WeightsReader> base_;
  std::vector<AdapterSpec> adapters_;
};

/// Reads shard fsdp_index of each of `layouts`, units of parameter_table, in pieces: calls take(unit, first,
/// values), on the caller's thread, with the elements [first, first + size of `values`) of the shard of
/// layouts[unit]. Every element comes once, in order, padding as zero. Reads with kBlockThreads threads, each
/// with memory for a piece of at most `piece_elements` (a multiple of UnitLayout::kGrain) and for what it
/// reads at once: 16 MiB in all; adapters to be merged come to it. Not collective. Throws as
/// WeightsReader::read.
void read_in_pieces(Io& io, const StoredModel& model, std::span<const UnitLayout* const> layouts,
                    int64_t fsdp_index,
                    FunctionRef<void(size_t unit, int64_t first, std::span<const float> values)> take,
                    int64_t piece_elements = int64_t{1} << 19);

/// Overwrites the masters of `units` of parameter_table (shard fsdp_index of each) by read_in_pieces. Moments
/// stay as they are.
void read_weights(Io& io, const StoredModel& model, int64_t fsdp_index, std::span<const UnitStates> units);

/// Gives all elements of an adapter's a or b, row-major, b's rows in ripstop's order.
using ReadAdapter = FunctionRef<std::vector<float>(const ParameterSpec& parameter)>;

/// Adds to each w of the elements [begin, end) of the flat buffer of `layout` the product of its adapter: w +
/// scale * (b a). The unit is one of parameter_table, on any mesh; `to` is where `begin` lies. Elements
/// without an adapter, and padding, stay as they are. The sum over the rank is in float64 in the order of the
/// rank, and the result is rounded once, to float32: it depends on neither mesh nor interval. `adapters`:
/// adapter_specs, or a part of them; `read` is called for a and b of those that the interval needs. Memory:
/// their elements, a in float64. Several threads may call if `read` may be called by them.
void add_adapters(const UnitLayout& layout, int64_t begin, int64_t end, float* to,
                  std::span<const AdapterSpec> adapters, double scale, ReadAdapter read);

}  // namespace ripstop
