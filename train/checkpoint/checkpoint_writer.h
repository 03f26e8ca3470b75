// CheckpointWriter: saves the shards of all ranks as one checkpoint, or nothing.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/io.h"
#include "parallel/communicator.h"
#include "parallel/unit_layout.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_lock.h"

namespace ripstop {

struct SavePolicy {
  int64_t keep = 3;       ///< newest checkpoints kept; 0: all. The best of CheckpointState::best stays too
  bool read_back = true;  ///< compare every written byte with its hash before the commit
  const RunLock* lock = nullptr;  ///< rank 0's: no commit where somebody else has taken the run over
};

/// What a save did, on rank 0; elsewhere `directory` and `bytes` alone.
struct SaveReport {
  std::filesystem::path directory;
  int64_t bytes = 0;                  ///< of all files
  std::vector<int64_t> removed;       ///< steps whose checkpoints were deleted
  std::vector<std::string> warnings;  ///< what went wrong after the commit: texts for the log
};

class CheckpointWriter {
 public:
  /// Saves below `directory` (RUN/checkpoints, which is made if need be). `units`: every unit of the
  /// parameter table, in its order. `world` has place.mesh.ranks() ranks, one for each place. All references
  /// are borrowed.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const RankPlace& place,
                   std::vector<UnitStates> units);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Collective: saves what the units hold now, with `state` (rank 0's counts), as `directory`/step_N. When
  /// it returns, the checkpoint is complete and synced on all ranks' disks. One of the
  /// same step is replaced. If any rank fails, all throw the same
  /// Error(kStorage) that names the rank, nothing of the attempt is left, and older checkpoints stay. Main
  /// thread (libhdf5 is called in the first save). Blocks; needs one MiB and the bytes of the file's
  /// skeleton.
  SaveReport save(const CheckpointState& state, const SavePolicy& policy);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ripstop
