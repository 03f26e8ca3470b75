// CheckpointWriter: saves the shards of all ranks as one checkpoint, or nothing.
//
// A save has three phases. begin(): all ranks make ready, and the states to be saved are those of this
// moment. The writing: a thread of each rank copies, hashes, writes, reads back and syncs the rank's file,
// and calls neither MPI nor HDF5. commit(): all ranks wait for each other's threads, and rank 0 writes the
// manifest and renames. Between begin() and commit() the ranks may train; save() is one after the other.
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
  int64_t keep = 3;       ///< newest checkpoints kept; 0: all. The best of CheckpointState::best is kept too
  bool read_back = true;  ///< compare every written byte with its hash before the commit
  /// The ranks compute meanwhile: copies that the Snapshot has room for are kept, and few threads write, with
  /// the lowest priority.
  bool in_background = false;
  /// Called often on the caller's thread while commit() waits. What it throws ends the save.
  std::function<void()> watch = {};
  /// Time that the disk of a rank may do nothing while commit() waits.
  DiskPatience patience = {};
  /// Rank 0's: throws if another process has taken the run over. Called before the commit, which it then
  /// prevents, and before old checkpoints are removed, which then stay, with a warning.
  std::function<void()> check_owner = {};
};

/// The result of a save, on rank 0; other ranks get `directory`, `bytes` and `seconds` only.
struct SaveReport {
  std::filesystem::path directory;
  int64_t bytes = 0;   ///< of all files
  double seconds = 0;  ///< from begin(): until the last rank had written, and of the commit, without what
                       ///< the ranks did between
  std::vector<int64_t> removed;       ///< steps whose checkpoints were deleted
  std::vector<std::string> warnings;  ///< failures after the commit: texts for the log
};

class CheckpointWriter {
 public:
  /// Saves below `directory` (RUN/checkpoints; the first save makes it) the units of `snapshot`, this rank's.
  /// A rank of `world` is a position on the mesh `mesh`. All references are borrowed.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const MeshSizes& mesh,
                   Snapshot& snapshot);
  /// Saves arrays that no snapshot holds: `sources` has kUnitStateCount for each shard that this rank stores
  /// of `units`, the parameter table. What they read may not change before commit() returns.
  CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world, const MeshSizes& mesh,
                   std::vector<UnitSpec> units, DType moments, std::vector<ArraySource> sources);
  /// Ends the thread of a save that was not committed. The next start of the run removes what it wrote.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Collective: saves the present values of the units, with `state` (rank 0's counts), as
  /// `directory`/step_N. Replaces a checkpoint of the same step, unless a later takeover committed it: then
  /// throws Error(kStorage). When it returns, the checkpoint is complete and synced on the disks of all
  /// ranks, and old ones are removed. If any rank fails, all throw the same Error(kStorage), which names that
  /// rank; the attempt is removed and older checkpoints stay. Main thread only (the first save calls
  /// libhdf5). Blocks. Needs 1 MiB for each of kBlockThreads threads, and the bytes of the skeleton.
  SaveReport save(const CheckpointState& state, const SavePolicy& policy);

  /// Collective: the first part of save(). Returns when the thread of each rank writes. Fails as save() does.
  void begin(const CheckpointState& state, const SavePolicy& policy);
  /// Whether a save was begun and is neither committed nor given up. Equal on all ranks.
  bool has_begun() const { return save_ != nullptr; }
  /// Between begin() and commit(): whether the thread of this rank still works, and how much it has done, for
  /// DiskVotes.
  bool is_writing() const;
  int64_t progress() const;
  /// Collective: the rest of save(). Waits for the threads of all ranks in many short collectives
  /// (DiskVotes), however long a slow disk takes. `seen`: for how long progress() of this rank has not
  /// changed before. Fails as save() does. Throws Error(kCommunication) if the disk of a rank does nothing
  /// for as long as SavePolicy::patience says: then the save is not over on that rank, and the destructor
  /// would wait.
  SaveReport commit(const DiskStillness& seen = {});
  /// Tells the thread of a save that is not committed, if there is one, to end, and waits for it at most so
  /// long. False if it has not ended: it is in a call that does not return, and this, and what it borrows,
  /// may not be destroyed.
  bool ends_within(std::chrono::milliseconds most);

 private:
  /// A save between begin() and commit().
  struct Save {
    CheckpointState state;
    SavePolicy policy;
    std::filesystem::path attempt;
    StoredFile file = {};      ///< from the thread; no bytes on a rank that stores nothing
    int64_t milliseconds = 0;  ///< how long after begin() the thread was done
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::optional<BackgroundWork> work = {};
  };

  bool leads() const { return world_.rank() == 0; }
  void make_attempt(const std::filesystem::path& attempt);
  void prepare_skeleton(const std::filesystem::path& attempt);
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
