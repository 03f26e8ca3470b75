// loss.json: the loss of an evaluation that was interrupted, so that it can go on.
#pragma once
#include <filesystem>

#include "train/evaluate/dataset_loss.h"

namespace ripstop {

inline constexpr const char* kPartialLossFile = "loss.json";

/// What `directory`/loss.json holds; nothing if there is no such file, or if it is damaged: then the loss is
/// computed again. The caller knows that it is of the same settings (claim_evaluation_directory). Throws
/// Error(kStorage) if the system refuses to read it.
LossSoFar read_partial_loss(const std::filesystem::path& directory);

/// Writes it, whole or not at all. One process writes. Throws Error(kStorage).
void write_partial_loss(const std::filesystem::path& directory, const LossSoFar& loss);

}  // namespace ripstop
