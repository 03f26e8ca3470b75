#include "train/commands/model_arguments.h"

namespace ripstop {

void ModelArguments::add_to(Verb& verb, int64_t batch) {
  batch_size = batch;
  verb.option("PATH", path, "a run's directory, or one checkpoint").required();
  verb.option("--checkpoint", checkpoint, "best, latest or a step").show_default();
  verb.option("--max-new-tokens", max_new_tokens, "longest summary; default: generation.max_new_tokens")
      .positive();
  verb.option("--batch-size", batch_size, "summaries that a replica writes at once")
      .positive()
      .show_default();
}

}  // namespace ripstop
