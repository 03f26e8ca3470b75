#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/dataset/sequence_reader.h"
#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "parallel/device_mesh.h"
#include "train/evaluate/rouge.h"
#include "train/generate/inference_model.h"
#include "train/plan/resolved_run.h"
#include "train/report/metrics.h"
#include "train/step/training_step.h"

namespace ripstop {

/// The scores of a validation, equal on all ranks.
struct ValidationScores {
  double loss = 0;  ///< mean over all targets, or over the data sets by data.weights
  int64_t target_count = 0;
  std::optional<RougeScores> rouge;  ///< means over summaries, weighted as `loss`; nullopt: none written
  std::vector<ValidationEvent::Sample> samples = {};  ///< the first summaries, cut, as UTF-8
  /// The scores of each data set; empty if there is only one.
  std::vector<SetScores> sets = {};
};

/// Called with the progress of a `part` of the work: "sequences", then "summaries".
using ReportPart = FunctionRef<void(std::string_view part, int64_t done, int64_t total)>;

struct ValidationSet {
  static constexpr const char* kNone = "none";  ///< content_hash() without a set

  /// The set; nullopt without a validation: the config asks for none, the file is missing or has no examples,
  /// or no example keeps a target.
  std::optional<TokenDataset> dataset = {};
  std::filesystem::path file = {};  ///< validation.h5; empty if the config asks for no validation
  bool has_examples = false;
  std::optional<Tokenizer> tokenizer = {};  ///< the set's, if it is not the run's first set
  double weight = 1;                        ///< 1 without data.weights
  int64_t summaries = 0;                    ///< examples to summarize

  /// kNone if there is no set.
  std::string content_hash() const { return dataset ? dataset->content_hash() : kNone; }
};

/// Whether any of `sets` has a dataset, so that there is something to validate.
bool any_set(const std::vector<ValidationSet>& sets);

/// Opens validation.h5 of each data set. `tokenizer`: the first set's. Throws Error(kInputData) if a set was
/// made with another tokenizer, and Error(kUsage) if summaries are to be scored and no set of a weight above
/// 0 has summaries, or a set's prompts leave no room for them.
///
/// Each set with summaries gets a share of generation.validate_examples by weight, the first also the rest.
std::vector<ValidationSet> open_validation_sets(const RunConfig& config, const ResolvedRun& run,
                                                const Tokenizer& tokenizer);

/// A note that names the sets that are not validated although the config asks for it, and says why; else "".
std::string validation_note(const RunConfig& config, const std::vector<ValidationSet>& sets);

/// Plans `run` again, without memory for validations. For a run without a set to validate.
void plan_without_validations(ResolvedRun& run, DeviceKind device);

/// Measures the model in training on the validation sets. The training step computes the loss. For ROUGE, a
/// second model on ResolvedRun::summaries_mesh() gets the weights of the training model and lives only while
/// it writes; its memory is ResolvedRun::summaries_memory.
class Validation {
 public:
  Validation(const std::vector<ValidationSet>& sets, const RunConfig& config, const ResolvedRun& run,
             const Tokenizer& tokenizer, DeviceMesh& mesh);
  /// Makes the groups of ranks for generation on `device`. Collective.
  void connect(MpiWorld& world, const Device& device);

  bool any() const { return any_set(sets_); }

  /// Document sizes, for prepare_kernels, of each data rank's first kStepsLookedAt batches of each set.
  std::map<DocumentSizes, int64_t> documents() const;

  /// Validates once. `ledger` counts the memory for generation. Calls `stop_requested` and `report` between
  /// batches and between parts of the summaries. Returns nullopt if a stop was requested on any rank.
  /// Requires any(). Collective.
  std::optional<ValidationScores> measure(TrainingStep& step, MemoryLedger& ledger,
                                          FunctionRef<bool()> stop_requested, ReportPart report);
  /// Whether measure() has begun to compute losses, and to write summaries.
  bool has_evaluated() const { return has_evaluated_; }
  bool has_summarized() const { return has_summarized_; }

 private:
  bool measure_loss(TrainingStep& step, FunctionRef<bool()> stop_requested, ReportPart report,
                    ValidationScores& scores);
  bool measure_rouge(TrainingStep& step, MemoryLedger& ledger, FunctionRef<bool()> stop_requested,
                     ReportPart report, ValidationScores& scores);
  bool summarize(InferenceModel& writer, const ValidationSet& set, FunctionRef<bool()> stop_requested,
                 ReportPart report, ValidationScores& scores, RougeMean& mean);

  const std::vector<ValidationSet>& sets_;
  const RunConfig& config_;
  const ResolvedRun& run_;
  const Tokenizer& tokenizer_;
  DeviceMesh& mesh_;
  std::unique_ptr<DeviceMesh> writing_mesh_;
  bool has_evaluated_ = false, has_summarized_ = false;
};

}  // namespace ripstop
