// Snapshot: holds the states of a rank's shards while a save reads them and training goes on.
//
// Weights and moments change only in updates. So a save reads them in place during the next step, and the
// next update of a unit waits until its arrays have been read. Units that fit into host memory are copied
// there first ("kept"), so that their updates hardly wait. The files are the same either way.
#pragma once
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

/// The bytes of host memory that copies of all states of `shards` need.
int64_t snapshot_bytes(const std::vector<UnitShard>& shards, DType moments);
/// The first of `shards`: as many of them as fit into `most_bytes` of host memory.
std::vector<UnitShard> kept_shards(const std::vector<UnitShard>& shards, DType moments, int64_t most_bytes);

class Snapshot {
 public:
  /// `units`: this rank's shard of every trained unit of its stage, in table order, on the device of
  /// `compute`, the stream that updates them. Calls keep(most_bytes); `ledger` counts the copies as snapshot.
  /// References and arrays are borrowed. Throws Error(kResources), also if the system refuses the pinned
  /// memory for reads of units that are not kept.
  Snapshot(const Stream& compute, MemoryLedger& ledger, const std::vector<UnitStates>& units,
           const MeshSizes& mesh, int64_t rank, int64_t most_bytes);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  /// Main thread, before the first hold(): allocates host memory for copies of the first units, as many as
  /// fit into `most_bytes`. If the system refuses the memory, throws Error(kResources) and keeps no unit;
  /// another call may follow.
  void keep(int64_t most_bytes);

  /// The shards that this rank stores. The first kept() shards have memory for copies.
  const std::vector<UnitShard>& shards() const { return shards_; }
  DType moments() const { return moments_; }
  int64_t kept() const { return kept_; }
  int64_t kept_bytes() const { return memory_.bytes(); }

  /// Main thread. Begins a save of the values that the units have after all work queued on `compute`: a unit
  /// must not change before wait_for() or is_free() allows it. `keeps`: whether copy_kept() copies the first
  /// kept() units; if false, all units are read while the file is written.
  void hold(bool keeps);
  /// Any thread. Whether the stored arrays of `units`[unit] have been read; true if this rank stores none.
  bool is_free(size_t unit) const;
  /// Main thread. Waits for is_free(unit).
  void wait_for(size_t unit);

  // The members below are for CheckpointWriter.

  /// Copies the kept units one after the other, until `work` is asked to stop.
  void copy_kept(const BackgroundWork& work);
  /// Sources of the file's arrays, three for each shard. They read the copy of a kept array, else the device.
  std::vector<ArraySource> sources();
  /// Indices in sources() of arrays that are not kept. Updates of their units wait until they are read.
  std::vector<int64_t> urgent_arrays() const;
  /// Notes that the array with this index in sources() has been read to its end.
  void array_is_read(int64_t array);
  /// Makes is_free() true for all units. Call it when no more reads follow.
  void release();

 private:
  struct Array {
    const std::byte* live = nullptr;  ///< the array on the device
    std::byte* copy = nullptr;        ///< copy on the host; null if the array is not kept
    int64_t bytes = 0;
  };
  std::optional<size_t> shard_of(size_t unit) const {
    return unit < shard_of_unit_.size() ? shard_of_unit_[unit] : std::nullopt;
  }
  bool is_kept(size_t shard) const { return keeps_ && shard < static_cast<size_t>(kept_); }
  void read_live(void* to, const std::byte* from, int64_t bytes);

  const Stream& compute_;
  const Stream copies_;  ///< stream of the copies to the host
  MemoryLedger& ledger_;
  std::vector<UnitShard> shards_;
  DType moments_ = DType::kFloat32;
  std::vector<Array> arrays_;  ///< kUnitStateCount for each shard
  int64_t kept_ = 0;
  Buffer memory_;
  bool keeps_ = false;
  std::vector<std::optional<size_t>> shard_of_unit_;

  mutable std::mutex mutex_;  ///< guards unread_
  std::condition_variable freed_;
  std::vector<int> unread_;  ///< for each shard, the number of arrays still to be read
  std::mutex copies_mutex_;  ///< guards `copies_`, which several writing threads use
};

}  // namespace ripstop
