// Reads checkpoints from the files of any mesh into the shards of any mesh, and verifies each block.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "model/core/error.h"
#include "parallel/communicator.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/file_blocks.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {

struct Checkpoint {
  std::filesystem::path directory;
  Manifest manifest;
};

/// Reads shards of one checkpoint. Keeps the plan and the sidecars (8 bytes for each MiB of the files).
class CheckpointReader {
 public:
  /// `io` and `checkpoint` must outlive this.
  CheckpointReader(Io& io, const Checkpoint& checkpoint);

  /// Overwrites `units` (shard fsdp_index of each) with their values in the checkpoint, which any mesh may
  /// have saved; padding becomes zero. Moments, unless null, must have the checkpoint's dtype. `units` may be
  /// a part of the model. Reads only the necessary blocks, each whole, and compares them with their hashes.
  /// Several threads may call; each needs 1 MiB. Not collective. Throws Error(kStorage) with file and place.
  void read(int64_t fsdp_index, const std::vector<UnitStates>& units);

 private:
  const FileBlocks& blocks_of(int64_t rank);
  void read_file_pieces(const Piece* first, const Piece* last, const std::vector<UnitStates>& units);

  Io& io_;
  const Checkpoint& checkpoint_;
  ReadPlan plan_;
  std::mutex mutex_;                      // guards blocks_, whose elements stay where they are
  std::map<int64_t, FileBlocks> blocks_;  // by rank
};

/// Adds a hint on damage to an Error(kStorage) without a hint from reading the checkpoint in `directory`.
Error with_hint_for_damage(const Error& error, const std::filesystem::path& directory);

/// Has `load` read the newest whole checkpoint in `directory`, and returns its state; nullopt if there is no
/// checkpoint. `accept` sees the manifest first, on every rank; an exception from it ends the call. `load`
/// throws as CheckpointReader::read and calls no collectives; if it finds damage, the next older checkpoint
/// is tried. Damaged newer checkpoints are then renamed to "step_N.damaged" and never used again, so only the
/// owner of the run may call this. Rank 0 gets warnings about them and about superseded newer ones
/// (Takeovers). Throws Error(kStorage): if there are checkpoints and none is whole; if all are superseded,
/// but the newest takeover did not begin with the first weights; and if the newest has another format
/// (OtherFormat) or the system refuses to read it on some rank, because an older one would lose steps.
/// Collective.
std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             const std::function<void(const Checkpoint&)>& load,
                                             std::vector<std::string>& warnings);

}  // namespace ripstop
