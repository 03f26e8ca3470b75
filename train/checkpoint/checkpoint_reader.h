// Reading checkpoints: from the files of any mesh into the shards of any mesh. Each block that is read is
// verified.
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

/// A checkpoint that may be read.
struct Checkpoint {
  std::filesystem::path directory;
  Manifest manifest;
};

/// Reads many shards of one checkpoint: the plan and the sidecars are read once and kept (8 bytes for each
/// MiB of the files).
class CheckpointReader {
 public:
  /// `io` and `checkpoint` must outlive it.
  CheckpointReader(Io& io, const Checkpoint& checkpoint);

  /// As read_checkpoint. Several threads may call. Throws Error(kStorage) with file and place.
  void read(int64_t fsdp_index, const std::vector<UnitStates>& units);

 private:
  const FileBlocks& blocks_of(int64_t rank);
  void read_file_pieces(const Piece* first, const Piece* last, const std::vector<UnitStates>& units);

  Io& io_;
  const Checkpoint& checkpoint_;
  ReadPlan plan_;
  std::mutex mutex_;                      // of blocks_, whose elements stay where they are
  std::map<int64_t, FileBlocks> blocks_;  // by rank
};

/// Overwrites `units` (shard fsdp_index of each) with their values in the checkpoint; padding becomes zero.
/// Moments that are wanted must have the checkpoint's dtype.
/// The mesh need not be the one that saved. `units` may be some of the model's, for example one after the
/// other through one buffer. Reads only the blocks that it needs, whole, and compares each with its hash. Not
/// collective. Memory: 1 MiB, 8 bytes for each MiB of the files that it reads, and the plan. Throws
/// Error(kStorage) with file and place.
void read_checkpoint(Io& io, const Checkpoint& checkpoint, int64_t fsdp_index,
                     const std::vector<UnitStates>& units);

/// `error`, met while the checkpoint in `directory` was read; one of damage without a hint gets one.
Error with_hint_for_damage(const Error& error, const std::filesystem::path& directory);

/// Throws Error(kStorage) if the checkpoint's parameters are not exactly those of `layouts` or `table`,
/// which are all of a model: it belongs to another one.
void check_same_parameters(const Manifest& manifest, const std::vector<const UnitLayout*>& layouts);
void check_same_parameters(const Manifest& manifest, const std::vector<UnitSpec>& table);

/// Collective: loads the newest checkpoint below `directory` that proves whole while it is read, and returns
/// its state; nullopt if there is no checkpoint at all. `accept` sees the manifest on every rank before
/// anything is overwritten, and may throw. Superseded newer ones (Takeovers) get a warning (on rank 0).
/// Damaged newer ones get a warning (on rank 0) and are renamed to
/// "step_N.damaged", so that they never count again: only the owner of the run may call this. Throws
/// Error(kStorage) if there are checkpoints and none is whole, if all are superseded though the newest
/// takeover did not begin with the first weights, and if the system refuses to read the newest on some rank:
/// an older one would lose steps. `load`, if there is one, is called to overwrite `units`, whose arrays may
/// then be anywhere; it throws as read_checkpoint.
std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world, int64_t fsdp_index,
                                             const std::vector<UnitStates>& units,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             std::vector<std::string>& warnings,
                                             const std::function<void(const Checkpoint&)>& load = {});

}  // namespace ripstop
