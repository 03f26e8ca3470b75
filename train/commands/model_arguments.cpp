#include "train/commands/model_arguments.h"

namespace ripstop {

void ModelArguments::add_to(CLI::App& app, int64_t batch) {
  batch_size = batch;
  app.add_option("PATH", path, "a run's directory, or one checkpoint")->required();
  app.add_option("--checkpoint", checkpoint, "best, latest or a step")->capture_default_str();
  app.add_option("--max-new-tokens", max_new_tokens, "longest summary; default: generation.max_new_tokens")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch-size", batch_size, "summaries that a replica writes at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace ripstop
