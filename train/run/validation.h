// Validation: the loss and the ROUGE scores of the model in training on examples that it is not trained on.
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
  static constexpr const char* kNone = "none";

  /// nullopt if nothing is to be validated: the config asks for none, or the set has no examples (`prepare`
  /// writes a set even then), or none of them keeps a target.
  std::optional<TokenDataset> dataset = {};
  std::string note = {};  ///< why there is no validation although the config asks for one; else empty

  /// The content hash of the set; kNone if there is no set.
  std::string content_hash() const { return dataset ? dataset->content_hash() : kNone; }
};

/// Opens `config`'s validation.h5. Throws Error(kInputData) if the set was made with another tokenizer, and
/// Error(kUsage) if summaries are to be scored and the set has none.
ValidationSet open_validation_set(const RunConfig& config, const ResolvedRun& run,
                                  const Tokenizer& tokenizer);

/// Measures the model in training on a validation set. The training step itself computes the loss. ROUGE
/// needs a model for generation on the mesh (replicate * fsdp) x 1 x tensor. That model gets its weights from
/// the training model and lives only while it writes; ResolvedRun::summaries_memory is its memory.
class Validation {
 public:
  /// All arguments must outlive this.
  Validation(const ValidationSet& set, const RunConfig& config, const ResolvedRun& run,
             const Tokenizer& tokenizer, DeviceMesh& mesh);
  /// Makes the groups of ranks that generation on `device` needs. Collective; call it when all ranks are
  /// known to have the same config and the same set.
  void connect(MpiWorld& world, const Device& device);

  /// Whether there is a set.
  bool any() const { return set_.dataset.has_value(); }

  /// The documents of the batches whose loss `measure` computes; see prepare_kernels. any() must hold.
  std::map<DocumentSizes, int64_t> documents() const;

  /// Measures the model as it is now. Takes the memory for generation from `ledger` and gives it back.
  /// Returns nullopt if a stop was requested on any rank; `stop_requested` is called between batches and
  /// between parts of the summaries, and so is `report`. any() must hold. Collective.
  std::optional<ValidationScores> measure(TrainingStep& step, MemoryLedger& ledger,
                                          FunctionRef<bool()> stop_requested, ReportPart report);
  /// Whether `measure` has computed losses so far, and whether it has written summaries.
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
