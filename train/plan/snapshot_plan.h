// The host memory of a rank that saves take while training goes on.
#pragma once
#include <cstdint>
#include <vector>

#include "model/parameter.h"
#include "parallel/device_mesh.h"
#include "train/config/run_config.h"
#include "train/plan/run_target.h"

namespace ripstop {

/// The memory of the Snapshot of a rank. All numbers are 0 if no save goes on beside training.
struct SnapshotPlan {
  int64_t most_bytes = 0;       ///< that a rank may take for copies
  int64_t whole_bytes = 0;      ///< of all arrays that the fullest rank saves
  int64_t kept_bytes = 0;       ///< of the fullest rank's copies
  bool beside_device = false;   ///< on a GPU: host memory, which is no part of the device's
  bool takes_the_rest = false;  ///< no limit is given: with less memory there are fewer copies

  bool is_whole() const { return kept_bytes == whole_bytes; }
};

/// Whether a save may come due before the last step, and training then goes on.
bool saves_while_training(const RunConfig& config);

/// Bytes of the copies that rank `rank` of the mesh keeps in at most `most_bytes`.
int64_t kept_bytes(const std::vector<UnitSpec>& units, const MeshSizes& mesh, int64_t rank, DType moments,
                   int64_t most_bytes);

/// Gives the copies of `plan` at most `most_bytes` of a rank's memory.
void limit_copies(SnapshotPlan& plan, const std::vector<UnitSpec>& units, const MeshSizes& mesh,
                  DType moments, int64_t most_bytes);

/// Plans the snapshots of a model of `units` on `mesh`, whose ranks take `planned_bytes` for everything
/// else. checkpoint.snapshot_mib limits a rank; "auto" takes what is free, and never what the rest of the
/// plan needs.
SnapshotPlan plan_snapshot(const RunConfig& config, const RunTarget& target,
                           const std::vector<UnitSpec>& units, const MeshSizes& mesh, DType moments,
                           int64_t planned_bytes);

}  // namespace ripstop
