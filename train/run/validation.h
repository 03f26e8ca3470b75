// Validation: how good the model is now, on examples that it is not trained on.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "parallel/device_mesh.h"
#include "train/evaluate/rouge.h"
#include "train/generate/inference_model.h"
#include "train/plan/resolved_run.h"
#include "train/step/training_step.h"

namespace ripstop {

/// What a validation came to, equal on all ranks.
struct ValidationScores {
  LossSum loss;                      ///< over all targets of the set
  std::optional<RougeScores> rouge;  ///< means over generation.validate_examples summaries, if there are any
};

/// A run's validation set and what is done with it. The loss is computed by the training step itself. ROUGE
/// takes a model for generation on the mesh (replicate * fsdp) x 1 x tensor, which lives while it writes and
/// gets its weights from the training model; ResolvedRun::summaries_memory is what it needs.
class Validation {
 public:
  /// Opens `config`'s validation.h5. Collective; all arguments outlive it. Throws Error(kInputData) for a set
  /// that was made with another tokenizer, Error(kUsage) where summaries are to be scored and cannot be.
  Validation(const RunConfig& config, const ResolvedRun& run, const Tokenizer& tokenizer, DeviceMesh& mesh);
  /// Makes what generation on `device` needs of `world`. Collective, once all ranks are known to have the
  /// same config and set.
  void connect(MpiWorld& world, const Device& device);

  /// False where nothing is to be validated: train.validate_every is 0, or there are no examples (`prepare`
  /// writes the set even then).
  bool any() const { return dataset_.has_value(); }
  /// Why there is none though it was asked for; else empty.
  const std::string& note() const { return note_; }
  /// Of the set, "none" without one.
  std::string content_hash() const { return dataset_ ? dataset_->content_hash() : "none"; }

  /// Measures the model as it is now; memory for generation is taken from `ledger`. Nothing where a rank
  /// wants to stop: asked between batches and between parts of the summaries. Collective; any() must hold.
  std::optional<ValidationScores> measure(TrainingStep& step, MemoryLedger& ledger,
                                          FunctionRef<bool()> stop_requested);

 private:
  void open();
  void check_summaries() const;
  LossSum measure_loss(TrainingStep& step, FunctionRef<bool()> stop_requested);
  std::optional<RougeScores> measure_rouge(TrainingStep& step, MemoryLedger& ledger,
                                           FunctionRef<bool()> stop_requested);

  const RunConfig& config_;
  const ResolvedRun& run_;
  const Tokenizer& tokenizer_;
  DeviceMesh& mesh_;
  std::optional<TokenDataset> dataset_;
  std::string note_;
  std::unique_ptr<DeviceMesh> writing_mesh_;
};

}  // namespace ripstop
