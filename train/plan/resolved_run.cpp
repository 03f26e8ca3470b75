#include "train/plan/resolved_run.h"

#include <algorithm>

#include "model/core/rounding.h"
#include "train/machine/device_choice.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// Rows that a CPU rank works on at once: enough for full-speed GEMMs; more would only cost memory.
constexpr int64_t kCpuRows = 4096;

ModelConfig resolve_model(const RunConfig& config, const RunTarget& target) {
  ModelConfig model = config.model;
  if (model.vocab_size == 0) model.vocab_size = target.dataset_vocabulary;
  if (model.vocab_size == 0)
    throw Error(ExitCode::kUsage, "the vocabulary is not known: there is no data set at data.directory",
                "run ripstop prepare, or give model.vocab_size");
  if (target.dataset_vocabulary > model.vocab_size)
    throw Error(ExitCode::kInputData,
                fmt::format("the data set has {} token ids, model.vocab_size is {}",
                            target.dataset_vocabulary, model.vocab_size),
                "leave model.vocab_size out, or prepare the data with the model's tokenizer");
  return model;
}

DType resolve_precision(const RunConfig& config, const RunTarget& target, ResolvedRun& run) {
  if (config.precision.compute == FloatChoice::kFloat32) return DType::kFloat32;
  if (target.fast_bfloat16) return DType::kBFloat16;
  run.notes.push_back("precision.compute: this processor has no bfloat16 arithmetic, computing in float32");
  return DType::kFloat32;
}

/// Micro-batch sizes worth trying, largest first: for every number of micro-batches the smallest that is
/// enough for the share of a data rank, as more would only be idle rows.
std::vector<int64_t> micro_batches_to_try(const RunConfig& config, const RunTarget& target, int64_t share,
                                          int64_t tensor) {
  const int64_t t = config.data.sequence_length;
  const int64_t most =
      target.device == DeviceKind::kCpu ? std::clamp<int64_t>(kCpuRows / t, 1, share) : share;
  std::vector<int64_t> sizes;
  for (int64_t b = most; b >= 1; --b)
    if (b * t % tensor == 0 && divide_up(share, divide_up(share, b)) == b) sizes.push_back(b);
  for (int64_t b = most; sizes.empty() && b >= 1; --b)  // sequences that only in pairs divide by `tensor`
    if (b * t % tensor == 0) sizes.push_back(b);
  return sizes;
}

/// Summaries that a rank writes at once while it validates.
constexpr int64_t kSlots = 32;

bool fits(const ResolvedRun& run, const RunTarget& target) {
  return !target.device_memory_bytes ||
         run.memory().total() + run.library_bytes <= *target.device_memory_bytes;
}

/// "80.0 GiB, 3.0 GiB of it for CUDA's libraries".
std::string memory_text(const ResolvedRun& run, int64_t device_memory_bytes) {
  std::string text = bytes_text(device_memory_bytes);
  if (run.library_bytes > 0)
    text += fmt::format(", {} of it for CUDA's libraries", bytes_text(run.library_bytes));
  return text;
}

/// The model that writes summaries at validations, if any are asked for: as many at once as there is room
/// for.
void plan_summaries(const RunConfig& config, const RunTarget& target, ResolvedRun& run) {
  if (config.train.validate_every == 0 || config.generation.validate_examples == 0) return;
  const int64_t share = divide_up(config.generation.validate_examples, run.mesh.replicate * run.mesh.fsdp);
  for (int64_t slots = std::min(share, kSlots); slots >= 1; slots /= 2) {
    run.summaries = InferenceOptions::of(run.model, config.data.sequence_length, run.step.sharding.compute,
                                         slots, config.generation.max_new_tokens);
    run.summaries_memory =
        plan_inference(run.model, *run.summaries, run.summaries_mesh(), {}, target.device).memory;
    if (fits(run, target)) return;
  }
}

void plan_run(const RunConfig& config, const RunTarget& target, ResolvedRun& run) {
  run.plan = plan_fullest(run.request(target.device));
  plan_summaries(config, target, run);
}

void set_micro_batch(const RunConfig& config, int64_t size, ResolvedRun& run) {
  const int64_t data_ranks = run.mesh.replicate * run.mesh.fsdp, g = config.train.global_batch_sequences;
  run.step.sharding.sequence_count = size;
  run.micro_batches = divide_up(divide_up(g, data_ranks), size);
  const auto computed = static_cast<double>(data_ranks * run.micro_batches * size);
  run.idle_share = 1 - static_cast<double>(g) / computed;
}

/// Meshes of as many ranks, and the micro-batches with which they fit.
std::string what_fits(const RunConfig& config, const RunTarget& target, ResolvedRun run) {
  std::string text;
  for (const int64_t tensor : tensor_axis_sizes(run.model)) {
    if (target.ranks % tensor != 0) continue;
    run.mesh = {.replicate = 1, .fsdp = target.ranks / tensor, .tensor = tensor};
    const int64_t share = divide_up(config.train.global_batch_sequences, run.mesh.fsdp);
    for (const int64_t size : micro_batches_to_try(config, target, share, tensor)) {
      set_micro_batch(config, size, run);
      plan_run(config, target, run);
      if (!fits(run, target)) continue;
      text += fmt::format("{}{} with micro_batch_sequences {} needs {}", text.empty() ? "" : "; ",
                          run.mesh.to_text(), size, bytes_text(run.memory().total()));
      break;
    }
  }
  return text.empty() ? "no mesh of this many ranks fits: use more of them, or a smaller model"
                      : "these fit: " + text;
}

}  // namespace

ResolvedRun resolve_run(const RunConfig& config, const RunTarget& target) {
  ResolvedRun run;
  if (!config.run.profile_steps.empty() && target.device != DeviceKind::kCuda)
    run.notes.emplace_back("run.profile_steps: for Nsight on GPUs alone, nothing is profiled on the CPU");
  run.model = resolve_model(config, target);
  run.mesh = resolve_mesh({.replicate = config.mesh.replicate,
                           .fsdp = config.mesh.fsdp.value_or(0),
                           .tensor = config.mesh.tensor},
                          target.ranks);
  run.step.sharding = {
      .compute = resolve_precision(config, target, run),
      .reduce = config.precision.reduce == FloatChoice::kFloat32 ? DType::kFloat32 : DType::kBFloat16,
      .sequence_length = config.data.sequence_length,
      .reshard_after_forward = config.train.reshard_after_forward,
      .overlap_tensor = config.mesh.overlap_tensor.value_or(target.device == DeviceKind::kCuda)};
  run.step.adamw = {.beta1 = config.optimizer.betas[0],
                    .beta2 = config.optimizer.betas[1],
                    .epsilon = config.optimizer.epsilon,
                    .weight_decay = config.optimizer.weight_decay,
                    .decay_norms = config.optimizer.decay_norms};
  run.step.max_grad_norm = config.train.max_grad_norm;
  run.deterministic = config.run.deterministic;
  run.library_bytes = library_bytes(target.device);

  const int64_t share = divide_up(config.train.global_batch_sequences, run.mesh.replicate * run.mesh.fsdp);
  std::vector<int64_t> sizes = micro_batches_to_try(config, target, share, run.mesh.tensor);
  if (config.train.micro_batch_sequences) sizes = {*config.train.micro_batch_sequences};
  if (sizes.empty() || sizes.front() * config.data.sequence_length % run.mesh.tensor != 0)
    throw Error(
        ExitCode::kUsage,
        fmt::format("a micro-batch of {} tokens does not divide by mesh.tensor = {}",
                    (sizes.empty() ? 1 : sizes.front()) * config.data.sequence_length, run.mesh.tensor),
        "choose data.sequence_length as a multiple of mesh.tensor");
  for (const int64_t size : sizes) {
    set_micro_batch(config, size, run);
    plan_run(config, target, run);
    if (fits(run, target)) return run;
  }
  throw Error(
      ExitCode::kResources,
      fmt::format("{} with micro_batch_sequences {} needs {} a rank of {}", run.mesh.to_text(), sizes.back(),
                  bytes_text(run.memory().total()), memory_text(run, *target.device_memory_bytes)),
      what_fits(config, target, run));
}

std::string plan_text(const ResolvedRun& run, const std::optional<int64_t>& device_memory_bytes) {
  const MemoryUse memory = run.memory();
  const DeviceMesh::AxisBytes& traffic = run.plan.traffic_per_step;
  std::string text;
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    text += fmt::format("  {:<14}{:>12}\n", to_string(category), bytes_text(memory[category]));
  }
  text += fmt::format("  {:<14}{:>12}{}\n", "total", bytes_text(memory.total()),
                      device_memory_bytes ? " of " + memory_text(run, *device_memory_bytes) : "");
  if (run.summaries)
    text += fmt::format("  {:<14}{:>12} of it only while a validation writes summaries\n", "",
                        bytes_text(run.summaries_memory.total()));
  text += fmt::format("  sent per step  replicate {}, fsdp {}, tensor {}", bytes_text(traffic.replicate),
                      bytes_text(traffic.fsdp), bytes_text(traffic.tensor));
  return text;
}

}  // namespace ripstop
