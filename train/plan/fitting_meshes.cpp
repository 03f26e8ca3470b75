#include "train/plan/fitting_meshes.h"

#include "train/plan/micro_batch.h"
#include "train/report/human_text.h"

namespace ripstop {

std::string fitting_meshes(const RunConfig& config, const RunTarget& target, ResolvedRun run) {
  std::string text;
  for (const int64_t tensor : tensor_axis_sizes(run.model)) {
    if (target.ranks % tensor != 0) continue;
    // A replicate axis saves no memory, so try only fsdp x tensor.
    run.mesh = {.replicate = 1, .fsdp = target.ranks / tensor, .tensor = tensor};
    // Largest first: stop at the first that fits, the fastest one of this mesh.
    for (const int64_t size : micro_batches_to_try(config, target, run.mesh)) {
      if (!plan_with_micro_batch(config, target, size, run)) continue;
      text += fmt::format("{}{} with micro_batch_sequences {} needs {}", text.empty() ? "" : "; ",
                          run.mesh.to_text(), size, bytes_text(run.memory().total()));
      break;
    }
  }
  return text.empty() ? "no mesh of this many ranks fits: use more ranks, or a smaller model"
                      : "these fit: " + text;
}

}  // namespace ripstop
