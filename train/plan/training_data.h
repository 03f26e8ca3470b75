// The data of a run: the sequences that a rank reads, how much of the set they use, and how many steps it is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/dataset/batch_loader.h"
#include "model/core/function_ref.h"
#include "parallel/device_mesh.h"
#include "train/plan/resolved_run.h"

namespace ripstop {

/// The options for the loader of this rank's training data.
BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh);

/// The training set as a run uses it.
struct TrainingData {
  ExampleKind kind = ExampleKind::kSummary;
  int64_t examples = 0;
  int64_t cut_documents = 0;    ///< examples whose document loses its end
  int64_t cut_summaries = 0;    ///< examples that lose the end of their summary, and the whole document
  int64_t cut_tokens = 0;       ///< tokens that both lose
  int64_t epoch_tokens = 0;     ///< of an epoch, counted as `tokens` in metrics.jsonl
  int64_t epoch_sequences = 0;  ///< of the first epoch; each is packed anew, so others may differ a little
  std::string plan_hash = {};   ///< of the first epoch's PackPlan
  int64_t steps = 0;            ///< of the whole run: train.steps, or the steps that train.epochs come to
  double epochs = 0;            ///< of the whole run
  int64_t tokens = 0;           ///< of the whole run; an estimate if train.steps ends it inside an epoch
};

/// Counts it from the lengths of the examples; reads no token. If train.epochs is given, it packs every
/// epoch, because each has its own number of sequences. Throws Error(kInputData) for a set without examples.
TrainingData count_training_data(const TokenDataset& dataset, const RunConfig& config);
/// The same. `goes_on` is called before each epoch but the first; if it returns false, the result is nullopt.
std::optional<TrainingData> count_training_data(const TokenDataset& dataset, const RunConfig& config,
                                                FunctionRef<bool()> goes_on);

/// Whether an example of `dataset` keeps a target when it is cut to data.sequence_length. Reads no token.
bool has_targets(const TokenDataset& dataset, const RunConfig& config);

/// Throws Error(kUsage), with the lengths that would do, unless has_targets: nothing could be learnt.
void require_targets(const TokenDataset& dataset, const RunConfig& config);

}  // namespace ripstop
