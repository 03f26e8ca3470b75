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
#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/file_blocks.h"
#include "train/checkpoint/manifest.h"
#include "train/step/adamw.h"

namespace ripstop {

struct Checkpoint {
  std::filesystem::path directory;
  Manifest manifest;
};

/// Reads shards of one checkpoint. Keeps the read plan, and the sidecars of the files that it read.
class CheckpointReader {
 public:
  /// `io` and `checkpoint` must outlive this.
  CheckpointReader(Io& io, const Checkpoint& checkpoint);

  /// Overwrites `units`, each the shard fsdp_index of a unit, with the values in the checkpoint; padding
  /// becomes zero. The checkpoint may be of any mesh. `units` may be a part of the model. Moments that are
  /// not null must have the checkpoint's dtype. Compares each block that it reads with its hash. Several
  /// threads may call; each call needs a buffer of 1 MiB. Not collective. Throws Error(kStorage).
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

/// Pointers to the master weights and moments of all trained shards in the memory of `model` and `optimizer`.
std::vector<UnitStates> live_states(ShardedTransformer& model, const AdamW& optimizer);

/// Loads `units`, which are on the device of `stream`, by calls of read(). On a CPU, one call overwrites all
/// units. On a GPU, each call overwrites one unit in host memory (12 bytes for each element of the largest
/// shard, 8 with bfloat16 moments), which is then copied to the device; elements that read() does not set
/// become zero. Throws what read() throws.
void load_states(const std::vector<UnitStates>& units, const Stream& stream,
                 FunctionRef<void(const std::vector<UnitStates>&)> read);

/// Throws Error(kStorage), with a hint, if the checkpoint `directory` no longer exists: a run that still
/// trains may have removed it.
void require_not_removed(const std::filesystem::path& directory);

/// Returns `error`, thrown while the checkpoint in `directory` was read; an Error(kStorage) without a hint
/// gets a hint on damaged checkpoints, in which `way` names the option that selects another checkpoint.
/// Throws the error of require_not_removed if `error` is an Error(kStorage) and `directory` is absent.
Error with_hint_for_damage(const Error& error, const std::filesystem::path& directory,
                           const std::string& way = "--checkpoint with a step");

/// Reads the newest whole checkpoint in `directory` with `load`, and returns its state; nullopt if there is
/// no checkpoint. Before each load, calls accept(checkpoint) on every rank; its exception ends the call.
/// `load` throws the errors of CheckpointReader::read. Both must call no collectives. If `load` finds damage,
/// the next older checkpoint is tried. After a success, damaged newer checkpoints are renamed to
/// "step_N.damaged", so only the run's owner may call this. Rank 0 gets warnings about damaged and superseded
/// newer checkpoints and about a link. Collective. Throws Error(kStorage):
/// - if none is whole, and some are damaged;
/// - if all are superseded, unless the newest takeover itself began at step 0 (then returns nullopt);
/// - at a checkpoint of another format, or that the system refuses to read on some rank: an older checkpoint
///   would lose steps.
std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             const std::function<void(const Checkpoint&)>& load,
                                             std::vector<std::string>& warnings);

}  // namespace ripstop
