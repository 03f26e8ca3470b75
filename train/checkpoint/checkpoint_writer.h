// CheckpointWriter: saves the shards of all ranks as one checkpoint, or nothing.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/io.h"
#include "parallel/communicator.h"
#include "parallel/unit_layout.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/rank_file.h"

namespace ripstop {

struct SavePolicy {
  int64_t keep = 3;       ///< newest checkpoints kept; 0: all. The best of CheckpointState::best is kept too
  bool read_back = true;  ///< compare every written byte with its hash before the commit
  /// Called often on the caller's thread while this rank's file is written. What it throws ends the save.
  std::function<void()> watch = {};
  /// Rank 0's: throws if another process has taken the run over. Called before the commit, and before old
  /// checkpoints are removed.
  std::function<void()> check_owner = {};
};

/// The result of a save, on rank 0; other ranks get `directory` and `bytes` only.
struct SaveReport {
  std::filesystem::path directory;
  int64_t bytes = 0;                  ///< of all files
  std::vector<int64_t> removed;       ///< steps whose checkpoints were deleted
  std::vector<std::string> warnings;  ///< failures after the commit: texts for the log
};

class CheckpointWriter {
 public:
  /// Saves below `directory` (RUN/checkpoints; the first save makes it). `units`: this rank's shard of every
  /// unit of the parameter table, in its order. A rank of `world` is a position on the mesh `mesh`. All
  /// references are borrowed.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const MeshSizes& mesh,
                   const std::vector<UnitStates>& units);
  /// The same for arrays that are not in memory: those of `sources` for each unit of `layouts`, in the order
  /// of UnitState, with moments in float32. Both are all of the parameter table on a mesh of one rank.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world,
                   const std::vector<const UnitLayout*>& layouts, std::vector<ArraySource> sources);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Collective: saves the present values of the units, with `state` (that of rank 0 counts), as
  /// `directory`/step_N. Replaces a checkpoint of the same step, unless a later takeover committed it; then
  /// throws Error(kStorage). When it returns, the checkpoint is complete
  /// and synced on the disks of all ranks. If any rank fails, all throw the same Error(kStorage), which names
  /// that rank; the attempt is removed and older checkpoints stay. Main thread only (the first save calls
  /// libhdf5). Blocks. Needs 1 MiB for each of kBlockThreads threads, and the bytes of the skeleton.
  SaveReport save(const CheckpointState& state, const SavePolicy& policy);

 private:
  bool leads() const { return world_.rank() == 0; }
  void begin(const std::filesystem::path& attempt);
  StoredFile write(const std::filesystem::path& attempt, const SavePolicy& policy);
  Manifest collect(const CheckpointState& state, const std::string& line);
  void commit(const std::filesystem::path& attempt, const Manifest& manifest, const SavePolicy& policy,
              std::vector<std::string>& warnings);
  void replace(const std::filesystem::path& attempt, const CheckpointState& state,
               std::vector<std::string>& warnings);

  Io& io_;
  const std::filesystem::path directory_;
  Communicator& world_;
  const MeshSizes mesh_;
  std::vector<UnitSpec> specs_;
  std::vector<UnitShard> shards_;
  DType moments_ = DType::kFloat32;
  std::vector<ArraySource> sources_;          ///< kUnitStateCount for each shard
  std::optional<RankFileSkeleton> skeleton_;  ///< from the first save on
};

}  // namespace ripstop
