// A CheckpointWriter of arrays in host memory, without a Snapshot.
#pragma once
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "train/checkpoint/checkpoint_writer.h"

namespace ripstop {

/// `units`: this rank's shard of every unit of its stage, which may not change before commit() returns.
/// `table`: of the whole model; empty without a pipeline. Arguments are borrowed.
inline CheckpointWriter memory_writer(Io& io, const std::filesystem::path& directory, Communicator& world,
                                      const MeshSizes& mesh, const std::vector<UnitStates>& units,
                                      std::vector<UnitSpec> table = {}) {
  std::vector<UnitSpec> own;
  for (const UnitStates& unit : units) own.push_back(unit.layout->unit());
  if (table.empty()) table = own;
  const DType moments = units.empty() ? DType::kFloat32 : units.front().moments;
  std::vector<ArraySource> sources;
  const int64_t fsdp_index = mesh_coordinates(mesh, world.rank()).fsdp;
  for (const UnitShard& shard : stored_shards(own, mesh, world.rank()))
    for (const UnitState state : kUnitStates) {
      const std::byte* from = stored_begin(units[static_cast<size_t>(shard.unit)], state, shard, fsdp_index);
      sources.emplace_back(
          [from, size = element_bytes(state_dtype(state, moments))](int64_t first, int64_t count, void* to) {
            std::memcpy(to, from + first * size, static_cast<size_t>(count * size));
          });
    }
  return {io, directory, world, mesh, std::move(table), moments, std::move(sources)};
}

}  // namespace ripstop
