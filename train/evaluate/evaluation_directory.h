// The directory of an evaluation: name, settings and partial loss. Not collective.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/config/generation_settings.h"
#include "train/evaluate/dataset_loss.h"
#include "train/evaluate/predictions.h"

namespace ripstop {

/// The settings that decide the results of an evaluation.
struct EvaluationSettings {
  int64_t step = 0;      ///< the step of the checkpoint
  std::string split;     ///< such as "test"
  int64_t examples = 0;  ///< number of examples evaluated, from the start of the split
  std::string weights;   ///< a hash of the weights
  std::string data;      ///< content hash of the split's file
  std::string compute;   ///< "float32" or "bfloat16"
  int64_t context = 0;   ///< maximum tokens of a sequence
  /// The result of that_count(): settings without effect have their defaults. max_new_tokens 0: no summaries.
  GenerationSettings generation = {.max_new_tokens = 0};
};

/// The name of the directory below RUN/evaluation: "step_00001000-test". `usual`: the evaluation of all
/// examples of the split by the run's config. Differences from `usual` add suffixes, in this order:
/// "-limit5" for `examples`; generation settings with an effect, such as "-beams4" or "-length_penalty0.6";
/// "-data-0123abcd" (the first digits of the hash). Other settings add none.
std::string evaluation_name(const EvaluationSettings& settings, const EvaluationSettings& usual);

/// The directory of an evaluation. No other process on this host evaluates there while the object lives.
class EvaluationClaim {
 public:
  /// Makes `directory` if it is absent, and writes settings.json. Keeps results of the same settings, so that
  /// an interrupted evaluation can go on. Calls note(text) as make_partial_directory does. Throws
  /// Error(kStorage) if reading or writing fails. Throws Error(kUsage):
  /// - if another process on this host evaluates there now;
  /// - if the directory has results of other or unknown settings; the message has differences as old -> new;
  /// - if it holds something else, such as a foreign settings.json or entries_in_the_way;
  /// - if `directory` is a file, lies below a file, or lies among a run's checkpoints.
  EvaluationClaim(const std::filesystem::path& directory, const EvaluationSettings& settings,
                  const std::function<void(const std::string&)>& note = {});
  ~EvaluationClaim();
  EvaluationClaim(const EvaluationClaim&) = delete;
  EvaluationClaim& operator=(const EvaluationClaim&) = delete;

 private:
  EvaluationClaim() = default;
  std::filesystem::path partial_;  ///< claims the directory (make_partial_directory)
};

struct FoundPredictions {
  std::filesystem::path directory;  ///< empty if no predictions were found
  std::vector<Prediction> predictions;
};

/// Finds the directory in `evaluations`, other than `own`, with the most predictions made with `settings`;
/// the number of examples may differ. Skips directories that cannot be read.
FoundPredictions find_predictions(const std::filesystem::path& evaluations, const std::filesystem::path& own,
                                  const EvaluationSettings& settings);

/// The file with the loss of an unfinished evaluation.
inline constexpr const char* kPartialLossFile = "loss.json";

/// The loss in `directory`; a loss over no sequences if the file is absent or damaged. Make an
/// EvaluationClaim first. Throws Error(kStorage) if the system refuses to read the file.
LossSoFar read_partial_loss(const std::filesystem::path& directory);

/// Replaces loss.json in one step. No other process may write it. Throws Error(kStorage).
void write_partial_loss(const std::filesystem::path& directory, const LossSoFar& loss);

}  // namespace ripstop
