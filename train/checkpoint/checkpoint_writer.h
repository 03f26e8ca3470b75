// CheckpointWriter: saves the shards of all ranks as one checkpoint.
//
// A save has three phases. begin(): all ranks prepare, and hold their present states. Then a thread of each
// rank copies, hashes, writes, reads back and syncs the rank's file, without MPI and HDF5. commit(): all
// ranks wait for all threads, then rank 0 writes the manifest and renames the directory. Between begin() and
// commit() the ranks may train.
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
#include "model/device/range_recorder.h"
#include "parallel/communicator.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/disk_votes.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/rank_file.h"
#include "train/checkpoint/snapshot.h"

namespace ripstop {

struct SavePolicy {
  int64_t keep = 3;  ///< number of newest checkpoints to keep besides CheckpointState::best; 0: all
  /// True if the ranks train while the save is written: then the Snapshot copies the units that fit into its
  /// memory, and few threads write, at a lower priority.
  bool in_background = false;
  /// Called often on the caller's thread while commit() waits. An exception from it ends the save.
  std::function<void()> watch = {};
  /// The longest wait of commit() for a disk without progress.
  DiskPatience patience = {};
  /// Called on rank 0 before the commit, and again before old checkpoints are removed. Must throw Error if
  /// another process has taken over the run: then the save fails or, the second time, keeps old checkpoints.
  std::function<void()> check_owner = {};
  /// Records the work of the save's own thread on a track of its own. Null: records nothing.
  RangeRecorder* recorder = nullptr;
};

/// The result of a save; ranks other than 0 get `directory`, `bytes` and `seconds` only.
struct SaveReport {
  std::filesystem::path directory;
  int64_t bytes = 0;
  double seconds = 0;                 ///< from begin() to the end of all writes, plus commit and removals
  std::vector<std::string> warnings;  ///< texts for the log: failures after the commit, unusual removals
};

class CheckpointWriter {
 public:
  /// Makes a writer of `units`, the trained table of the whole model with its stages, to `directory`
  /// (RUN/checkpoints; made if it is absent). `snapshot` has the units of this rank's stage. Rank r of
  /// `world` must have position r on `mesh`. All references are borrowed.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const MeshSizes& mesh,
                   std::vector<UnitSpec> units, Snapshot& snapshot);
  /// Makes a writer without a snapshot. `sources` has kUnitStateCount arrays for each shard of `units` that
  /// this rank stores. Their data must not change before commit() returns.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const MeshSizes& mesh,
                   std::vector<UnitSpec> units, DType moments, std::vector<ArraySource> sources);
  /// Ends the thread of an uncommitted save, whose files the next start of the run removes.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Saves the present values of the units, with rank 0's `state`, as `directory`/step_N, and removes old
  /// checkpoints. Replaces a checkpoint of the same step; throws Error(kStorage) if that one is of a later
  /// takeover or another format. On return the checkpoint is synced to disk on all ranks. If a rank fails,
  /// all ranks throw as do_and_agree(), usually Error(kStorage); the attempt is removed and older checkpoints
  /// stay. Main thread only (the first save calls libhdf5). Blocks. Needs 1 MiB for each of at most
  /// kBlockThreads threads, and memory for the skeleton. Collective.
  SaveReport save(const CheckpointState& state, const SavePolicy& policy);

  /// The first part of save(): ends with the start of a thread. Throws save()'s errors. Collective.
  void begin(const CheckpointState& state, const SavePolicy& policy);
  /// Whether a save was begun and is neither committed nor given up.
  bool has_begun() const { return save_ != nullptr; }
  /// Whether this rank's thread still writes; false without a save.
  bool is_writing() const;
  /// A number that changes whenever the thread's disk has done something (DiskVotes); 0 without a save.
  int64_t progress() const;
  /// The rest of save(). Waits for the threads of all ranks in short collectives (DiskVotes), however long a
  /// slow disk takes. `seen`: this rank's progress() before the call, and the time since it last changed.
  /// Throws the errors of save(), and Error(kCommunication) if a rank's disk makes no progress for
  /// SavePolicy::patience: that rank's thread still runs, and the destructor would wait for it. Collective.
  SaveReport commit(const DiskStillness& seen = {});
  /// Asks the thread of an uncommitted save, if any, to end, and waits for at most `most`. Returns false if
  /// the thread still runs: then neither this object nor the borrowed ones may be destroyed.
  bool ends_within(std::chrono::milliseconds most);

 private:
  struct Save {
    CheckpointState state;
    SavePolicy policy;
    std::filesystem::path attempt;
    StoredFile file = {};      ///< this rank's file, set by the thread; 0 bytes if the rank stores nothing
    int64_t milliseconds = 0;  ///< time from begin() to the end of the thread
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::optional<BackgroundWork> work = {};
  };

  bool leads() const { return world_.rank() == 0; }
  void write(Save& save, const BackgroundWork& work);
  StoredFile write_file(const Save& save, const BackgroundWork& work);
  void await_writers(Save& save, const DiskStillness& seen);
  Manifest collect(const Save& save, double& write_seconds);
  void commit_attempt(const Save& save, const Manifest& manifest, std::vector<std::string>& warnings);
  void put_in_place(const Save& save, const std::filesystem::path& target);
  void replace(const Save& save, const std::filesystem::path& target, std::vector<std::string>& warnings);
  void remove_old(const Save& save, SaveReport& report);
  void give_up(const Error& error, const std::filesystem::path& attempt);

  Io& io_;
  const std::filesystem::path directory_;
  Communicator& world_;
  const MeshSizes mesh_;
  const std::vector<UnitSpec> specs_;
  const DType moments_;
  const std::vector<ArraySource> sources_;
  const std::vector<UnitShard> shards_;
  Snapshot* snapshot_ = nullptr;
  std::optional<RankFileSkeleton> skeleton_;  ///< set by the first save
  std::unique_ptr<Save> save_;
};

}  // namespace ripstop
