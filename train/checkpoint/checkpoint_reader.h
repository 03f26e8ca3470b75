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

struct Checkpoint {
  std::filesystem::path directory;
  Manifest manifest;
};

/// Reads shards of one checkpoint. Keeps the plan and the sidecars (8 bytes for each MiB of the files).
class CheckpointReader {
 public:
  /// `io` and `checkpoint` must outlive it.
  CheckpointReader(Io& io, const Checkpoint& checkpoint);

  /// Overwrites `units` (shard fsdp_index of each) with their values in the checkpoint, which any mesh may
  /// have saved; padding becomes zero. Moments that are wanted must have the checkpoint's dtype. `units` may
  /// be some of the model's, for example one after the other through one buffer. Reads only the blocks that
  /// it needs, whole, and compares each with its hash. Several threads may call; each needs 1 MiB. Not
  /// collective. Throws Error(kStorage) with file and place.
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

/// `error`, met while the checkpoint in `directory` was read, with a hint if it is one of damage and has
/// none.
Error with_hint_for_damage(const Error& error, const std::filesystem::path& directory);

/// Throws Error(kStorage) if the checkpoint belongs to another model: its parameters differ from `table`,
/// which must list the whole model.
void check_same_parameters(const Manifest& manifest, const std::vector<UnitSpec>& table);

/// Collective: has `load` read the newest checkpoint below `directory` that proves whole meanwhile, and
/// returns its state; nullopt if there is no checkpoint at all. `accept` sees the manifest on every rank
/// before; what it throws ends the call. `load` throws as CheckpointReader::read, and calls no collectives.
/// Warnings, on rank 0: superseded newer checkpoints (Takeovers), and damaged newer ones, which are renamed
/// to "step_N.damaged" and never count again: only the owner of the run may call this. Throws Error(kStorage)
/// if there are checkpoints and none is whole, if all are superseded though the newest takeover did not begin
/// with the first weights, and if the newest is of another format (OtherFormat) or the system refuses to read
/// it on some rank: an older one would lose steps.
std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             const std::function<void(const Checkpoint&)>& load,
                                             std::vector<std::string>& warnings);

}  // namespace ripstop
