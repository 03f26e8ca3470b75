// Snapshot: the states of a rank's shards as they were when a save began, while training goes on.
//
// Between two updates nothing changes weights and moments. So a save reads them where they are, beside the
// next step, and the next update of a unit waits until its arrays have been read. Units for which there is
// host memory are copied there at once, so that their updates hardly wait; the others are read as their bytes
// are written. How many are kept changes how long training waits, and no byte of the files.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "data/process/background_work.h"
#include "model/device/device.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/rank_file.h"

namespace ripstop {

/// Bytes that a save reads of the shards `shards`.
int64_t snapshot_bytes(const std::vector<UnitShard>& shards, DType moments);
/// The shards, from the first on, of which copies are kept in `most_bytes` of host memory.
std::vector<UnitShard> kept_shards(const std::vector<UnitShard>& shards, DType moments, int64_t most_bytes);

class Snapshot {
 public:
  /// The stored part of `units`, this rank's shard of every unit of the parameter table, in its order, with
  /// arrays on the device of `compute`, the stream that updates them. Allocates host memory for as many
  /// units as fit into `most_bytes`, the first ones, counted by `ledger` as snapshot. References and arrays
  /// are borrowed. Throws Error(kResources), also if `device` refuses the pinned memory through which it
  /// reads what is not kept.
  Snapshot(const Stream& compute, MemoryLedger& ledger, const std::vector<UnitStates>& units,
           const MeshSizes& mesh, int64_t rank, int64_t most_bytes);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  /// Main thread, before the first hold(): keeps copies in at most `most_bytes` from now on. Throws
  /// Error(kResources) if the system refuses the memory; then it keeps none, and may be asked again.
  void keep(int64_t most_bytes);

  /// The parameter table.
  const std::vector<UnitSpec>& units() const { return specs_; }
  /// The shards that this rank stores, and of how many, from the first on, copies are kept.
  const std::vector<UnitShard>& shards() const { return shards_; }
  DType moments() const { return moments_; }
  int64_t kept() const { return kept_; }
  /// Bytes of the copies.
  int64_t kept_bytes() const { return memory_.bytes(); }

  /// Main thread. Holds all units as they are after the work given to `compute` so far: from now on none may
  /// be changed before wait_for() or is_free() says so. `keeps`: copies are to be kept; if not, all units
  /// are read as they are written.
  void hold(bool keeps);
  /// Any thread. Whether the arrays of the unit (of the parameter table) have been read.
  bool is_free(size_t unit) const;
  /// Main thread. Waits until the arrays of the unit have been read.
  void wait_for(size_t unit);

  // The following are for the thread that saves, which no longer needs the arrays when all have been read.

  /// Copies what is to be kept, unit by unit. `work` is asked for a stop before each piece.
  void copy_kept(const BackgroundWork& work);
  /// The arrays: three for each shard. Copies kept arrays from their copies, others from the device.
  std::vector<ArraySource> sources();
  /// The arrays that are not kept: their updates wait for the writing.
  std::vector<int64_t> urgent_arrays() const;
  /// An array of sources() has been read to its end.
  void array_is_read(int64_t array);
  /// Nothing is read any more: frees all units.
  void release();

 private:
  struct Array {
    const std::byte* live = nullptr;  ///< on the device
    std::byte* copy = nullptr;        ///< on the host, if it is kept
    int64_t bytes = 0;
  };
  bool is_kept(size_t shard) const { return keeps_ && shard < static_cast<size_t>(kept_); }
  void read_live(void* to, const std::byte* from, int64_t bytes);

  const Stream& compute_;
  const Stream copies_;  ///< of the thread that saves
  MemoryLedger& ledger_;
  std::vector<UnitSpec> specs_;
  std::vector<UnitShard> shards_;
  DType moments_ = DType::kFloat32;
  std::vector<Array> arrays_;  ///< kUnitStateCount for each shard
  int64_t kept_ = 0;
  Buffer memory_;
  bool keeps_ = false;
  std::vector<std::optional<size_t>> shard_of_unit_;

  mutable std::mutex mutex_;  ///< of unread_
  std::condition_variable freed_;
  std::vector<int> unread_;  ///< of each shard: arrays that are still to be read
  std::mutex copies_mutex_;  ///< threads that write take turns on `copies_`
};

}  // namespace ripstop
