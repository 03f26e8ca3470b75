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

/// A checkpoint whose manifest has been read.
struct Checkpoint {
  std::filesystem::path directory;
  Manifest manifest;
};

/// Reads shards of one checkpoint. Holds the read plan, and the sidecars that it has read (8 bytes for each
/// MiB of the files).
class CheckpointReader {
 public:
  /// `io` and `checkpoint` must outlive this.
  CheckpointReader(Io& io, const Checkpoint& checkpoint);

  /// Overwrites `units`, each of which is shard fsdp_index of its unit, with the values in the checkpoint;
  /// sets padding to zero. Any mesh may have saved the checkpoint. Moments that are not null must have the
  /// checkpoint's dtype. `units` may be a part of the model. Reads only the necessary blocks, each as a
  /// whole, and compares each block with its hash. Several threads may call; each call needs 1 MiB. Not
  /// collective. Throws Error(kStorage), which names the file and the place in it.
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

/// The same error, with a hint on damaged checkpoints if it is an Error(kStorage) without a hint. `error` was
/// thrown while the checkpoint in `directory` was read.
Error with_hint_for_damage(const Error& error, const std::filesystem::path& directory);

/// Has `load` read the newest whole checkpoint in `directory`, and returns the state of that checkpoint;
/// nullopt if there is no checkpoint. First calls accept(checkpoint) on every rank; an exception from it ends
/// the call. `load` throws as CheckpointReader::read and calls no collectives. If `load` finds damage, the
/// next older checkpoint is tried. After a success, the damaged newer checkpoints are renamed to
/// "step_N.damaged" and never used again, so only the owner of the run may call this. Rank 0 gets warnings
/// about damaged and superseded newer checkpoints (Takeovers). Collective. Throws Error(kStorage):
/// - if there are checkpoints, but none is whole;
/// - if all are superseded, and the newest takeover did not begin with the first weights;
/// - if the newest has another format (OtherFormat), or the system refuses to read it on some rank, because
///   resuming from an older one would lose steps.
std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             const std::function<void(const Checkpoint&)>& load,
                                             std::vector<std::string>& warnings);

}  // namespace ripstop
