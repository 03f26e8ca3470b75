#include "train/plan/resolved_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "data/process/shell_word.h"
#include "model/core/rounding.h"
#include "train/config/nearest_name.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/machine/device_choice.h"
#include "train/plan/fitting_meshes.h"
#include "train/plan/micro_batch.h"
#include "train/plan/pipeline_plan.h"
#include "train/plan/plan_text.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// The first directory without a data set; else the first of all.
std::string absent_set(const DataSection& data) {
  for (const std::string& directory : data.all())
    if (!std::filesystem::exists(std::filesystem::path(directory) / "train.h5")) return directory;
  return data.first();
}

// A hint for a missing data set.
std::string near_dataset(const DataSection& data) {
  const std::string directory = absent_set(data);
  if (std::string near = hint_for_absent_set(data, directory); !near.empty()) return near;
  std::error_code ignored;
  return fmt::format(
      "run ripstop prepare with --output {}, or give model.vocab_size",
      std::filesystem::exists(directory, ignored) ? "DIR, and give DIR" : shell_word(directory));
}

// The number of token ids for a pretrained model with `own` ids: the data set's if that is larger, which
// is refused without model.resize_vocabulary.
int64_t resolve_vocabulary(const RunConfig& config, int64_t own, int64_t of_data,
                           std::vector<std::string>& notes) {
  const ResizeVocabulary how = config.model.resize_vocabulary;
  if (of_data <= own) return own;
  const std::string what = fmt::format("the data set has {} token ids, {} has {}: {} more", of_data,
                                       config.model.pretrained, own, of_data - own);
  if (how == ResizeVocabulary::kNone)
    throw Error(ExitCode::kInputData, what,
                fmt::format("prepare the data with the model's own tokenizer (ripstop prepare --tokenizer){}",
                            config.lora.any() ? ""
                                              : ", or give the new tokens rows: model.resize_vocabulary=mean "
                                                "or normal"));
  notes.push_back(fmt::format("{}, whose rows begin as the {} of the others", what,
                              how == ResizeVocabulary::kMean ? "mean" : "normal distribution"));
  return of_data;
}

// The sizes of model.pretrained. Throws if its positions, window or token ids are too few for the data.
ModelConfig resolve_pretrained(const RunConfig& config, const RunTarget& target,
                               std::vector<std::string>& notes) {
  RIPSTOP_CHECK(target.pretrained.has_value(), "the sizes of {} were not read", config.model.pretrained);
  ModelConfig model = *target.pretrained;
  if (config.data.sequence_length > model.max_position_embeddings)
    throw Error(
        ExitCode::kUsage,
        fmt::format("data.sequence_length {} exceeds the {} positions that {} is made for",
                    config.data.sequence_length, model.max_position_embeddings, config.model.pretrained),
        fmt::format("data.sequence_length={}", model.max_position_embeddings));
  check_window(model, config.data.sequence_length);
  model.vocab_size = resolve_vocabulary(config, model.vocab_size, target.dataset_vocabulary, notes);
  const int64_t surplus = model.vocab_size - target.dataset_vocabulary;
  if (target.dataset_vocabulary > 0 && surplus > 0)
    notes.push_back(fmt::format(
        "{} has {} token ids, the data set's tokenizer {} pieces: the last {} never occur in the data and "
        "are never written; their rows stay in the model",
        config.model.pretrained, model.vocab_size, target.dataset_vocabulary, counted(surplus, "id")));
  return model;
}

ModelConfig resolve_model(const RunConfig& config, const RunTarget& target, std::vector<std::string>& notes) {
  if (!config.model.pretrained.empty()) return resolve_pretrained(config, target, notes);
  ModelConfig model = config.model;
  if (model.vocab_size == 0) model.vocab_size = target.dataset_vocabulary;
  if (model.vocab_size == 0)
    throw Error(ExitCode::kInputData,
                fmt::format("the vocabulary is not known: there is no data set at {} '{}'", config.data.key(),
                            absent_set(config.data)),
                near_dataset(config.data));
  // The model may have more token ids than the data set's tokenizer has pieces, but not fewer.
  if (target.dataset_vocabulary > model.vocab_size)
    throw Error(ExitCode::kInputData,
                fmt::format("the data set has {} token ids, model.vocab_size is {}",
                            target.dataset_vocabulary, model.vocab_size),
                "leave model.vocab_size out, or prepare the data with the model's tokenizer");
  const int64_t surplus = model.vocab_size - target.dataset_vocabulary;
  if (target.dataset_vocabulary > 0 && surplus > 0)
    notes.push_back(fmt::format(
        "model.vocab_size is {}, the data set's tokenizer has {} pieces: the last {} never occur in the "
        "data, so {} embedding{} never trained; a new run with model.vocab_size={} leaves {} out",
        model.vocab_size, target.dataset_vocabulary, counted(surplus, "id"), surplus == 1 ? "its" : "their",
        surplus == 1 ? " is" : "s are", target.dataset_vocabulary, surplus == 1 ? "it" : "them"));
  return model;
}

DType dtype_of(FloatChoice choice) {
  return choice == FloatChoice::kFloat32 ? DType::kFloat32 : DType::kBFloat16;
}

// Returns precision.compute; float32, with a note, if the processor has no bfloat16 arithmetic.
DType resolve_precision(const RunConfig& config, const RunTarget& target, std::vector<std::string>& notes) {
  if (config.precision.compute == FloatChoice::kFloat32) return DType::kFloat32;
  if (target.fast_bfloat16) return DType::kBFloat16;
  notes.emplace_back(
      "precision.compute: this processor has no products of bfloat16, so it computes in float32, with the "
      "memory and time that float32 takes");
  return DType::kFloat32;
}

// The options of a step, except the micro-batch and the options that depend on it.
StepOptions resolve_step(const RunConfig& config, const RunTarget& target, std::vector<std::string>& notes) {
  StepOptions step;
  step.sharding = {.compute = resolve_precision(config, target, notes),
                   .reduce = dtype_of(config.precision.reduce),
                   .sequence_length = config.data.sequence_length,
                   .lora = config.lora,
                   .stages_per_rank = config.mesh.pipeline_stages_per_rank};
  step.adamw = {.beta1 = config.optimizer.betas[0],
                .beta2 = config.optimizer.betas[1],
                .epsilon = config.optimizer.epsilon,
                .weight_decay = config.optimizer.weight_decay,
                .decay_norms = config.optimizer.decay_norms,
                .moments = dtype_of(config.optimizer.moments),
                .seed = static_cast<uint64_t>(config.run.seed)};
  step.max_grad_norm = config.train.max_grad_norm;
  if (config.data.directories.size() > 1) step.data_sets = std::ssize(config.data.directories);
  return step;
}

// Throws Error(kUsage) unless are_turns_whole() for the run's micro-batches. `sizes`: micro_batches_to_try().
void require_whole_turns(const RunConfig& config, const ResolvedRun& run, const std::vector<int64_t>& sizes) {
  const int64_t share = divide_up(config.train.global_batch_sequences, run.mesh.data_ranks());
  const int64_t size = config.train.micro_batch_sequences.value_or(sizes.empty() ? 1 : sizes.front());
  if (are_turns_whole(config, run.mesh, run.step.sharding.stages_per_rank, size)) return;
  const std::string help =
      sizes.empty()
          ? fmt::format("train.global_batch_sequences = {} does",
                        run.mesh.data_ranks() * size * round_up(divide_up(share, size), run.mesh.pipeline))
          : fmt::format("train.micro_batch_sequences that do: {}", fmt::join(sizes, ", "));
  throw Error(
      ExitCode::kUsage,
      fmt::format("two stages on each rank need a multiple of mesh.pipeline = {} micro-batches, and a "
                  "step has {}",
                  run.mesh.pipeline, divide_up(share, size)),
      help + "; mesh.pipeline_stages_per_rank = 1 takes any number");
}

// The config's micro-batch, or for "auto" all sizes to try. Throws Error(kUsage) if the tensor axis cannot
// cut its rows, if it has too many tokens, and like require_whole_turns().
std::vector<int64_t> micro_batch_sizes(const RunConfig& config, const RunTarget& target,
                                       const ResolvedRun& run) {
  const MeshSizes& mesh = run.mesh;
  std::vector<int64_t> sizes = micro_batches_to_try(config, target, mesh, run.step.sharding.stages_per_rank);
  require_whole_turns(config, run, sizes);
  if (config.train.micro_batch_sequences) sizes = {*config.train.micro_batch_sequences};
  const int64_t tokens = (sizes.empty() ? 1 : sizes.front()) * config.data.sequence_length;
  if (sizes.empty() || tokens % mesh.tensor != 0)
    throw Error(
        ExitCode::kUsage,
        fmt::format("a micro-batch of {} tokens does not divide by mesh.tensor = {}", tokens, mesh.tensor),
        "choose data.sequence_length as a multiple of mesh.tensor");
  if (tokens > kMostMicroBatchTokens)
    throw Error(ExitCode::kUsage,
                fmt::format("a micro-batch of {} tokens is too large: at most {} are computed at once",
                            tokens, kMostMicroBatchTokens),
                "lower train.micro_batch_sequences or data.sequence_length");
  return sizes;
}

}  // namespace

std::vector<UnitSpec> ResolvedRun::trained_table() const {
  std::vector<UnitSpec> table =
      stage_split(model, mesh, step.sharding).staged(unit_table(model, step.sharding.lora));
  std::erase_if(table, [](const UnitSpec& unit) { return unit.frozen; });
  return table;
}

double ResolvedRun::recomputed_share() const {
  const ShardingOptions& sharding = step.sharding;
  return recomputed_flops_per_token(model, sharding.sequence_length, sharding.recompute).causal /
         flops_per_token().causal;
}

ResolvedRun unplanned_run(const RunConfig& config, const RunTarget& target) {
  ResolvedRun run;
  if (config.train.validates() && config.generation.validate_examples > 0)
    for (std::string& note : ignored_generation_notes(config)) run.notes.push_back(std::move(note));
  run.model = resolve_model(config, target, run.notes);
  // Check [lora] only now, because the sizes of a pretrained model were not known when the config was read.
  validate(config.lora, run.model);
  pretrained_architecture(run.model);  // throws now what an export of the run would throw
  require_end_tokens(config.generation, run.model);
  run.step = resolve_step(config, target, run.notes);
  run.deterministic = config.run.deterministic;
  run.validates = config.train.validates();
  run.library_bytes = library_bytes(target.device);
  return run;
}

ResolvedRun resolve_run(const RunConfig& config, const RunTarget& target) {
  ResolvedRun run = unplanned_run(config, target);
  check_tensor_axis(run.model, *config.mesh.tensor);
  for (const MeshAxis axis : kMeshAxes) run.mesh[axis] = config.mesh[axis].value_or(0);
  std::vector<int64_t> tensor_sizes = tensor_axis_sizes(run.model);
  std::erase_if(tensor_sizes, [&](int64_t size) { return !tensor_groups_fit_nodes(config, target, size); });
  run.mesh = resolve_mesh(run.mesh, target.ranks, tensor_sizes);
  stage_split(run.model, run.mesh, run.step.sharding);  // throws now if there are more stages than layers

  const std::vector<int64_t> sizes = micro_batch_sizes(config, target, run);
  if (plan_with_least_recompute(config, target, recomputes_to_try(config), sizes, run)) {
    enlarge_head_chunk(target, run);
    std::ranges::move(pipeline_notes(config, target, run), std::back_inserter(run.notes));
    return run;
  }
  throw PlanTooLarge(
      fmt::format("{} needs {} a rank of {}", fitting_mesh(run).settings_text(),
                  bytes_text(run.memory().total()), device_memory_text(run, *target.device_memory_bytes)),
      fitting_mesh(run), find_fitting_meshes(config, target, run));
}

}  // namespace ripstop
