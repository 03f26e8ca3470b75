// The directory of an evaluation: its name, settings and partial loss. Not collective.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/config/generation_settings.h"
#include "train/evaluate/dataset_loss.h"
#include "train/evaluate/predictions.h"

namespace ripstop {

/// The settings that decide the results of an evaluation.
struct EvaluationSettings {
  int64_t step = 0;      ///< the step of the checkpoint
  std::string split;     ///< "test"
  int64_t examples = 0;  ///< number of examples evaluated, from the start of the split
  std::string weights;   ///< a hash of the weights
  std::string data;      ///< content hash of the split's file
  std::string compute;   ///< "float32" or "bfloat16"
  int64_t context = 0;   ///< the most tokens of a sequence
  /// Settings that have no effect hold their defaults (GenerationSettings::that_count). If max_new_tokens is
  /// 0, no summaries are generated.
  GenerationSettings generation = {.max_new_tokens = 0};
};

/// The name of the directory below RUN/evaluation: "step_00001000-test". `usual` is the evaluation of the
/// whole split by the run's config. Each setting that has an effect and differs from `usual` adds a suffix,
/// in this order: "-limit5", generation such as "-beams4", "-length_penalty0.6" or "-max_new_tokens32", and
/// "-data-0123abcd" (the first digits of the hash).
std::string evaluation_name(const EvaluationSettings& settings, const EvaluationSettings& usual);

/// Makes `directory` if it is absent, and writes settings.json. Keeps results of the same settings, so that
/// an interrupted evaluation can go on. Requires that no other process writes to the directory.
/// Throws Error(kUsage) if the directory has results of other settings; the message has each difference as
/// old -> new.
/// Throws Error(kUsage) if the directory holds something other than an evaluation; the message names the
/// entries_in_the_way.
/// Throws Error(kUsage) if `directory` is a file, lies below a file, or lies among the checkpoints of a run.
/// Throws Error(kStorage) if reading or writing fails.
void claim_evaluation_directory(const std::filesystem::path& directory, const EvaluationSettings& settings);

/// Predictions of another evaluation.
struct FoundPredictions {
  std::filesystem::path directory;  ///< empty if there are none
  std::vector<Prediction> predictions;
};

/// Finds, among the directories in `evaluations` except `own`, the one with the most predictions that were
/// made with `settings`, apart from settings.examples. Changes nothing. Skips directories that cannot be
/// read.
FoundPredictions find_predictions(const std::filesystem::path& evaluations, const std::filesystem::path& own,
                                  const EvaluationSettings& settings);

/// The file with the loss of an interrupted evaluation, in the directory of the evaluation.
inline constexpr const char* kPartialLossFile = "loss.json";

/// The loss in `directory`/loss.json; a loss over no sequences if the file is absent or damaged. Requires
/// that claim_evaluation_directory has found the settings equal. Throws Error(kStorage) if the system refuses
/// to read the file.
LossSoFar read_partial_loss(const std::filesystem::path& directory);

/// Writes `directory`/loss.json, whole or not at all. Requires that no other process writes the file. Throws
/// Error(kStorage).
void write_partial_loss(const std::filesystem::path& directory, const LossSoFar& loss);

}  // namespace ripstop
