// The directory of an evaluation: its name, which settings it belongs to, and the loss of an evaluation that
// was interrupted. Not collective.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/config/generation_settings.h"
#include "train/evaluate/dataset_loss.h"
#include "train/evaluate/predictions.h"

namespace ripstop {

/// Everything that the figures of an evaluation depend on.
struct EvaluationSettings {
  int64_t step = 0;      ///< of the checkpoint
  std::string split;     ///< "test"
  int64_t examples = 0;  ///< the first so many of the split
  std::string weights;   ///< a hash that stands for them
  std::string data;      ///< content hash of the split's file
  std::string compute;   ///< "float32" or "bfloat16"
  int64_t context = 0;   ///< positions of a sequence
  /// Only those that_count(); max_new_tokens 0: no summaries are written.
  GenerationSettings generation = {.max_new_tokens = 0};
};

/// The name of the directory below RUN/evaluation: "step_00001000-test". Each setting that counts and differs
/// from `usual`, the evaluation of the whole split by the run's config, adds a suffix, in this order:
/// "-limit5", generation such as "-beams4", "-length_penalty0.6" or "-max_new_tokens32", and "-data-0123abcd"
/// (the first digits of the hash).
std::string evaluation_name(const EvaluationSettings& settings, const EvaluationSettings& usual);

/// Takes `directory` for an evaluation with `settings`: makes it if it is absent and writes settings.json.
/// Results of the same settings stay, so that an interrupted evaluation goes on. Throws Error(kUsage), with
/// each difference as old -> new, if the directory has results of other settings, or with the names of
/// entries_in_the_way, if it holds no evaluation but something else, such as a data set, or if it is or lies
/// below a file. One process writes. Throws Error(kStorage).
void claim_evaluation_directory(const std::filesystem::path& directory, const EvaluationSettings& settings);

/// Predictions of another evaluation, whose settings differ in the number of examples alone.
struct FoundPredictions {
  std::filesystem::path directory;  ///< empty if there are none
  std::vector<Prediction> predictions;
};

/// Looks for predictions in the directories inside `evaluations`, but not in `own`; returns the most. Changes
/// nothing. Directories that cannot be read do not count.
FoundPredictions find_predictions(const std::filesystem::path& evaluations, const std::filesystem::path& own,
                                  const EvaluationSettings& settings);

inline constexpr const char* kPartialLossFile = "loss.json";

/// The loss in `directory`/loss.json; an empty one if there is no such file or it is damaged: then the loss
/// is computed again. The caller has made sure that the settings are the same (claim_evaluation_directory).
/// Throws Error(kStorage) if the system refuses to read it.
LossSoFar read_partial_loss(const std::filesystem::path& directory);

/// Writes loss.json, whole or not at all. One process writes. Throws Error(kStorage).
void write_partial_loss(const std::filesystem::path& directory, const LossSoFar& loss);

}  // namespace ripstop
