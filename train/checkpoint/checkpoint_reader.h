// Reading checkpoints: any mesh's files into any mesh's ranges, each touched block verified.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/io.h"
#include "parallel/communicator.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {

/// A checkpoint that may be read.
struct Checkpoint {
  std::filesystem::path directory;
  Manifest manifest;
};

/// Overwrites `units` (range fsdp_index of each) with what the checkpoint holds for them; padding becomes
/// zero. The mesh need not be the one that saved; units may be some of the model's, e.g. one after the other
/// through one buffer. Reads whole blocks, only those it needs, and compares each with its hash. Not
/// collective. Memory: 1 MiB, 8 bytes per MiB of the files it touches, and the plan. Throws Error(kStorage)
/// naming file and place.
void read_checkpoint(Io& io, const Checkpoint& checkpoint, int64_t fsdp_index,
                     const std::vector<UnitStates>& units);

/// Collective read_checkpoint on all ranks of `world`: if one fails, all throw the same Error(kStorage).
void load_checkpoint(Io& io, const Checkpoint& checkpoint, Communicator& world, int64_t fsdp_index,
                     const std::vector<UnitStates>& units);

/// Collective: the weights alone, unit after unit through `staging`, which has as many elements as the
/// largest unit of `layouts` (laid out for an fsdp axis of 1): `take` gets each unit's number and its
/// weights, which are lost when it returns. As load_checkpoint otherwise.
void load_weights(Io& io, const Checkpoint& checkpoint, Communicator& world,
                  const std::vector<const UnitLayout*>& layouts, std::span<float> staging,
                  FunctionRef<void(size_t unit, std::span<const float> weights)> take);

/// Collective: rank 0 looks for the newest checkpoint below `directory` whose manifest and file sizes are
/// right, and all ranks get it. `warnings` (on rank 0) get a text for every newer one that is not. Nothing
/// where there is no checkpoint at all; Error(kStorage) where there are some and none is right.
std::optional<Checkpoint> newest_checkpoint(Io& io, const std::filesystem::path& directory,
                                            Communicator& world, std::vector<std::string>& warnings);

/// Collective: loads the newest checkpoint below `directory` that proves whole while it is read, and returns
/// its state; nothing where there is none at all. `accept` sees the state before anything is overwritten, on
/// every rank alike, and may throw. Damaged newer ones get a warning (rank 0) and are moved aside to
/// "step_N.damaged", so that they never count again: for the owner of the run alone. Error(kStorage) where
/// there are checkpoints and none is whole, and where the system refuses to read the newest to some rank:
/// going on from an older one would lose steps.
std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world, int64_t fsdp_index,
                                             const std::vector<UnitStates>& units,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             std::vector<std::string>& warnings);

}  // namespace ripstop
