// Validation: the loss and the ROUGE scores of the model in training on the validation set.
#pragma once
#include <cstdint>
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
#include "train/step/training_step.h"

namespace ripstop {

/// The result of a validation, equal on all ranks.
struct ValidationScores {
  LossSum loss;                      ///< over all targets of the set
  std::optional<RougeScores> rouge;  ///< means over the summaries, if any are written
};

/// Called with the progress of a part of the work: "sequences", then "summaries".
using ReportPart = FunctionRef<void(std::string_view part, int64_t done, int64_t total)>;

/// A run's validation set.
struct ValidationSet {
  static constexpr const char* kNone = "none";  ///< the content hash without a set

  /// nullopt without a validation: the config asks for none, the set has no examples (`prepare` writes it
  /// even then), or no example keeps a target.
  std::optional<TokenDataset> dataset = {};
  std::string note = {};  ///< why there is no validation, if the config asks for one

  /// The content hash of the set; kNone if there is no set.
  std::string content_hash() const { return dataset ? dataset->content_hash() : kNone; }
};

/// Opens `config`'s validation.h5. Throws Error(kInputData) if the set was made with another tokenizer, and
/// Error(kUsage) if summaries are to be scored and the set has none.
ValidationSet open_validation_set(const RunConfig& config, const ResolvedRun& run,
                                  const Tokenizer& tokenizer);

/// Measures the model in training on a validation set. The training step computes the loss. For ROUGE, a
/// second model for generation, on the mesh (replicate * fsdp) x 1 x tensor, gets the weights of the training
/// model and lives only while it writes; ResolvedRun::summaries_memory is its memory.
class Validation {
 public:
  /// All arguments must outlive this.
  Validation(const ValidationSet& set, const RunConfig& config, const ResolvedRun& run,
             const Tokenizer& tokenizer, DeviceMesh& mesh);
  /// Makes the groups of ranks for generation on `device`. All ranks must have the same config and set.
  /// Collective.
  void connect(MpiWorld& world, const Device& device);

  /// Whether there is a validation set.
  bool any() const { return set_.dataset.has_value(); }

  /// The documents of the batches whose loss measure() computes; see prepare_kernels. Requires any().
  std::map<DocumentSizes, int64_t> documents() const;

  /// Measures the model now. `ledger` counts the memory for generation. Calls `stop_requested` and `report`
  /// between batches and between parts of the summaries. Returns nullopt if a stop was requested on any rank.
  /// Requires any(). Collective.
  std::optional<ValidationScores> measure(TrainingStep& step, MemoryLedger& ledger,
                                          FunctionRef<bool()> stop_requested, ReportPart report);
  /// Whether measure() has computed losses so far; has_summarized(): whether it has written summaries so far.
  bool has_evaluated() const { return has_evaluated_; }
  bool has_summarized() const { return has_summarized_; }

 private:
  std::optional<RougeScores> measure_rouge(TrainingStep& step, MemoryLedger& ledger,
                                           FunctionRef<bool()> stop_requested, ReportPart report);

  const ValidationSet& set_;
  const RunConfig& config_;
  const ResolvedRun& run_;
  const Tokenizer& tokenizer_;
  DeviceMesh& mesh_;
  std::unique_ptr<DeviceMesh> writing_mesh_;
  bool has_evaluated_ = false, has_summarized_ = false;
};

}  // namespace ripstop
