// CheckpointWriter: saves the shards of all ranks as one checkpoint, or nothing.
//
// A save has three phases. begin(): all ranks prepare, and hold the states of this moment. The writing: a
// thread of each rank copies, hashes, writes, reads back and syncs the rank's file, without MPI and HDF5.
// commit(): all ranks wait for each other's threads, then rank 0 writes the manifest and renames the
// directory. Between begin() and commit() the ranks may train. save() does all three.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "data/process/background_work.h"
#include "parallel/communicator.h"
#include "parallel/unit_layout.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/disk_votes.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/rank_file.h"
#include "train/checkpoint/snapshot.h"

namespace ripstop {

struct SavePolicy {
  int64_t keep = 3;  ///< newest checkpoints kept besides CheckpointState::best; 0: all
  /// The ranks train meanwhile: the Snapshot copies the units that it has room for, and few threads write,
  /// with the lowest priority.
  bool in_background = false;
  /// Called often on the caller's thread while commit() waits. An exception from it ends the save.
  std::function<void()> watch = {};
  /// The limit of commit()'s wait for a disk without progress.
  DiskPatience patience = {};
  /// On rank 0; throws if another process has taken the run over. Called before the commit, which fails then,
  /// and before old checkpoints are removed, which stay then, with a warning.
  std::function<void()> check_owner = {};
};

/// The result of a save, on rank 0; other ranks get `directory`, `bytes` and `seconds` only.
struct SaveReport {
  std::filesystem::path directory;
  int64_t bytes = 0;   ///< of all files
  double seconds = 0;  ///< from begin() until the last rank has written, and of the commit; without any
                       ///< training between the two
  std::vector<int64_t> removed;       ///< steps whose checkpoints were deleted
  std::vector<std::string> warnings;  ///< failures after the commit: texts for the log
};

class CheckpointWriter {
 public:
  /// Saves this rank's units, which `snapshot` holds, in `directory` (RUN/checkpoints; the first save makes
  /// it). A rank of `world` is its position on `mesh`. All references are borrowed.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const MeshSizes& mesh,
                   Snapshot& snapshot);
  /// Saves arrays without a snapshot: `sources` has kUnitStateCount for each shard that this rank stores of
  /// `units`, the parameter table. Their data may not change before commit() returns.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const MeshSizes& mesh,
                   std::vector<UnitSpec> units, DType moments, std::vector<ArraySource> sources);
  /// Ends the thread of a save that was not committed, whose files the next start of the run removes.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Saves the present values of the units, with rank 0's `state`, as `directory`/step_N. Replaces a
  /// checkpoint of the same step, but throws Error(kStorage) if a later takeover committed that one. On
  /// return the checkpoint is complete and synced on the disks of all ranks, and old ones are removed. If any
  /// rank fails, all throw the same Error(kStorage), which names that rank; the attempt is removed and older
  /// checkpoints stay. Main thread only (the first save calls libhdf5). Blocks. Needs 1 MiB for each of
  /// kBlockThreads threads, and the bytes of the skeleton. Collective.
  SaveReport save(const CheckpointState& state, const SavePolicy& policy);

  /// The first part of save(). Returns when the thread of each rank writes. Fails as save() does. Collective.
  void begin(const CheckpointState& state, const SavePolicy& policy);
  /// Whether a save was begun and is neither committed nor given up. Equal on all ranks.
  bool has_begun() const { return save_ != nullptr; }
  /// Between begin() and commit(): whether the thread of this rank still works, and its progress for
  /// DiskVotes.
  bool is_writing() const;
  int64_t progress() const;
  /// The rest of save(). Waits for the threads of all ranks in many short collectives (DiskVotes), however
  /// long a slow disk takes. `seen`: the time for which progress() of this rank has not changed so far. Fails
  /// as save() does. Throws Error(kCommunication) after SavePolicy::patience with a disk without progress:
  /// then the thread of that rank still runs, and the destructor would wait for it. Collective.
  SaveReport commit(const DiskStillness& seen = {});
  /// Tells the thread of an uncommitted save, if there is one, to end, and waits for it at most `most`. False
  /// if the thread has not ended: it is in a call that does not return, and neither this nor the borrowed
  /// objects may be destroyed.
  bool ends_within(std::chrono::milliseconds most);

 private:
  /// A save between begin() and commit().
  struct Save {
    CheckpointState state;
    SavePolicy policy;
    std::filesystem::path attempt;
    StoredFile file = {};      ///< set by the thread; no bytes on a rank that stores nothing
    int64_t milliseconds = 0;  ///< from begin() to the end of the thread
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::optional<BackgroundWork> work = {};
  };

  bool leads() const { return world_.rank() == 0; }
  void write(Save& save, const BackgroundWork& work);
  StoredFile write_file(const Save& save, const BackgroundWork& work);
  void await_writers(Save& save, const DiskStillness& seen);
  Manifest collect(const Save& save, double& write_seconds);
  void commit_attempt(const Save& save, const Manifest& manifest, std::vector<std::string>& warnings);
  void replace(const std::filesystem::path& attempt, const CheckpointState& state,
               std::vector<std::string>& warnings);
  void remove_old(const Save& save, SaveReport& report);
  void give_up(const Error& error, const std::filesystem::path& attempt);

  Io& io_;
  const std::filesystem::path directory_;
  Communicator& world_;
  const MeshSizes mesh_;
  const std::vector<UnitSpec> specs_;
  const DType moments_;
  const std::vector<ArraySource> sources_;  ///< kUnitStateCount for each shard
  const std::vector<UnitShard> shards_;
  Snapshot* snapshot_ = nullptr;
  std::optional<RankFileSkeleton> skeleton_;  ///< from the first save on
  std::unique_ptr<Save> save_;
};

}  // namespace ripstop
