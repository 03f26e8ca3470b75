// A rank's host memory for the copies that its saves use while training goes on.
#pragma once
#include <cstdint>
#include <vector>

#include "model/parameter.h"
#include "train/config/run_config.h"
#include "train/plan/run_target.h"

namespace ripstop {

/// The memory of a rank's Snapshot. All numbers are 0 if no save runs during training.
struct SnapshotPlan {
  int64_t most_bytes = 0;       ///< limit for the copies of a rank
  int64_t whole_bytes = 0;      ///< bytes of all arrays that the fullest rank saves
  int64_t kept_bytes = 0;       ///< bytes of the copies on the fullest rank
  bool beside_device = false;   ///< true on a GPU: the copies lie in host memory
  bool takes_the_rest = false;  ///< checkpoint.snapshot_mib is "auto": copies take the memory left

  bool is_whole() const { return kept_bytes == whole_bytes; }
};

/// Whether a save may run during training: saves are asynchronous and one may be due before the last step.
bool saves_while_training(const RunConfig& config);

/// Bytes of the copies that rank `rank` keeps if copies may take `most_bytes`.
int64_t kept_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh, int64_t rank, DType moments,
                   int64_t most_bytes);

/// Sets most_bytes, whole_bytes and kept_bytes of `plan` for copies of at most `most_bytes` a rank.
void limit_copies(SnapshotPlan& plan, const std::vector<UnitSpec>& units, const MeshSizes& mesh,
                  DType moments, int64_t most_bytes);

/// Plans the snapshots of a model of `units` on `mesh`. The limit is checkpoint.snapshot_mib, or for "auto"
/// 0.8 of the free host memory; on a CPU at most target.device_memory_bytes, and less `planned_bytes`, a
/// rank's memory for everything else.
SnapshotPlan plan_snapshot(const RunConfig& config, const RunTarget& target,
                           const std::vector<UnitSpec>& units, const MeshSizes& mesh, DType moments,
                           int64_t planned_bytes);

}  // namespace ripstop
