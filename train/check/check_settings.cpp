#include "train/check/check_settings.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "model/core/rounding.h"
#include "model/lora.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

constexpr int64_t kFewLayers = 3, kSmallLayers = 2;
// With more layers, rounding in bfloat16 adds up to errors that could hide a fault.
constexpr int64_t kMostLayersOfBfloat16 = 6;
// Limits of the small model: largest query size (unless heads of size 8 need more), longest sequence
// before rounding, smallest vocabulary.
constexpr int64_t kSmallHidden = 512, kSmallRows = 128, kSmallVocabulary = 256;

// The smallest size from `least` to `model_size` that, cut into slices for `tensor` ranks, needs the same
// padding as `model_size`.
int64_t with_padding_of(int64_t model_size, int64_t least, int64_t tensor) {
  const int64_t period = 8 * tensor;
  const int64_t rest = ((model_size - least) % period + period) % period;
  return std::min(model_size, least + rest);
}

// The micro-batch (B) of the check: 2; 1 if `of_run`, the run's micro-batch, is 1; more if the tensor axis
// cannot cut the rows otherwise.
int64_t micro_batch_of(int64_t sequence_length, int64_t tensor, int64_t of_run) {
  const int64_t least = tensor / std::gcd(sequence_length, tensor);
  return least == 1 && of_run > 1 ? 2 : least;
}

int64_t stages_of(const ResolvedRun& run) {
  return pipeline_sizes(run.mesh, run.step.sharding, run.micro_batches).stages();
}

ModelConfig model_of(CheckedModel kind, int64_t layers, const ResolvedRun& run) {
  ModelConfig model = run.model;
  model.num_hidden_layers = std::min(layers, model.num_hidden_layers);
  return kind == CheckedModel::kSmall ? small_model(model, run.mesh.tensor, stages_of(run)) : model;
}

// Changes the run's adapters:
// - no dropout, whose masks depend on the place of a sequence in the batch;
// - a LoRA rank no larger than any dim of the adapted matrices;
// - a scale of 1: with a large scale, random weights would amplify the rounding of one layer in the next.
void set_adapters(const ModelConfig& model, LoraConfig& lora) {
  if (!lora.any()) return;
  lora.dropout = 0;
  for (const AdapterSpec& adapter : adapter_specs(model, lora))
    lora.rank = std::min({lora.rank, adapter.matrix.rows, adapter.matrix.columns});
  lora.alpha = lora.alpha / lora.scale();
}

// An update changes weights by about a fifth of their standard deviation, so that the next step shows the
// update; weight decay changes them by a tenth. Epsilon is about as large as an element of the gradient, so
// that an update follows the gradient's size; with a usual epsilon it is nearly the gradient's sign, which
// rounding may flip.
void set_optimizer(CheckSettings& settings) {
  const ModelConfig& model = settings.model;
  StepOptions& step = settings.step;
  const LoraConfig& lora = step.sharding.lora;
  const double usual = 1 / std::sqrt(static_cast<double>(model.hidden_size));
  // A value that is uniform in [-b, b] has the standard deviation b / sqrt(3).
  const double deviation = lora.any()                    ? usual / std::sqrt(3.0)
                           : model.initializer_range > 0 ? model.initializer_range
                                                         : usual;
  settings.learning_rate = 0.2 * deviation;
  if (step.adamw.weight_decay > 0) step.adamw.weight_decay = 0.1 / settings.learning_rate;
  // The limit is far below the gradient norm of a new model, so that both steps clip their gradients.
  if (step.max_grad_norm > 0) step.max_grad_norm = 0.01;
  const double norm = step.max_grad_norm > 0 ? step.max_grad_norm : 1;
  step.adamw.epsilon = norm / std::sqrt(static_cast<double>(lora.any() ? adapter_parameter_count(model, lora)
                                                                       : parameter_count(model)));
}

CheckSettings settings_of(CheckedModel kind, int64_t layers, const ResolvedRun& run, DeviceKind device,
                          uint64_t seed) {
  CheckSettings settings{.kind = kind,
                         .reason = {},
                         .model = model_of(kind, layers, run),
                         .step = run.step,
                         .seed = seed,
                         .device = device,
                         .deterministic = run.deterministic};
  ShardingOptions& sharding = settings.step.sharding;
  set_adapters(settings.model, sharding.lora);
  if (settings.model.num_hidden_layers != run.model.num_hidden_layers) sharding.stage_layers.clear();
  if (kind == CheckedModel::kSmall)
    sharding.sequence_length = std::min(sharding.sequence_length, round_up(kSmallRows, run.mesh.tensor));
  sharding.sequence_count =
      micro_batch_of(sharding.sequence_length, run.mesh.tensor, run.step.sharding.sequence_count);
  set_optimizer(settings);
  return settings;
}

double reference_flops(const CheckSettings& settings, const MeshSizes& mesh) {
  const PlanRequest request = settings.reference_request(mesh);
  const ShardingOptions& sharding = request.step.sharding;
  const auto tokens = static_cast<double>(kCheckSteps * request.micro_batches * sharding.sequence_count *
                                          sharding.sequence_length);
  return tokens *
         (training_flops_per_token(settings.model, sharding.lora, sharding.sequence_length).causal +
          recomputed_flops_per_token(settings.model, sharding.sequence_length, sharding.recompute).causal);
}

// Sets settings.reference_recompute to the least recomputation that fits into limits.memory_bytes. Returns
// why the check exceeds `limits`, else "".
std::string fit(CheckSettings& settings, const ResolvedRun& run, const CheckLimits& limits) {
  int64_t bytes = 0;
  for (const Recompute recompute : kRecomputes) {
    settings.reference_recompute = recompute;
    bytes = check_bytes(settings, run.mesh) + run.library_bytes;
    if (!limits.memory_bytes || bytes <= *limits.memory_bytes) break;
  }
  if (limits.memory_bytes && bytes > *limits.memory_bytes)
    return fmt::format("one rank would need {} of {}", bytes_text(bytes), bytes_text(*limits.memory_bytes));
  if (limits.flops > 0 && reference_flops(settings, run.mesh) > limits.flops)
    return fmt::format("one rank would compute longer than {}", limits.flops_text);
  return "";
}

}  // namespace

CheckTokens CheckSettings::tokens(const MeshSizes& mesh) const {
  return {.seed = seed,
          .vocabulary = model.vocab_size,
          .sequence_length = step.sharding.sequence_length,
          .data_ranks = mesh.data_ranks(),
          .micro_batches = check_micro_batches(mesh),
          .micro_batch_sequences = step.sharding.sequence_count};
}

PlanRequest CheckSettings::request(const MeshSizes& mesh) const {
  PlanRequest request{model, step, mesh, device, check_micro_batches(mesh), deterministic};
  if (mesh.pipeline == 1) request.step.sharding.stage_layers.clear();
  return request;
}

CheckTokens CheckSettings::reference_tokens(const MeshSizes& mesh) const {
  CheckTokens one = tokens(mesh);
  one.micro_batch_sequences = one.data_ranks == 1 && one.micro_batch_sequences == 1 ? 2 : 1;
  return one;
}

PlanRequest CheckSettings::reference_request(const MeshSizes& mesh) const {
  PlanRequest request = this->request(kMeshOfOne);
  ShardingOptions& sharding = request.step.sharding;
  sharding.sequence_count = reference_tokens(mesh).micro_batch_sequences;
  request.micro_batches = divide_up(tokens(mesh).slots(), sharding.sequence_count);
  // Simplest values for three settings that matter only with several ranks; `recompute` saves memory.
  sharding.reduce = DType::kFloat32;
  sharding.overlap_tensor = false;
  sharding.reshard_after_forward = true;
  sharding.recompute = reference_recompute;
  return request;
}

ModelConfig small_model(const ModelConfig& model, int64_t tensor, int64_t stages) {
  const int64_t queries = model.num_attention_heads / model.num_key_value_heads;
  ModelConfig small = model;
  small.num_hidden_layers = std::min(std::max(kSmallLayers, stages), model.num_hidden_layers);
  small.num_key_value_heads = tensor * (model.num_key_value_heads > tensor ? 2 : 1);
  small.num_attention_heads = small.num_key_value_heads * queries;
  int64_t head = model.head_size();
  for (int64_t size = 128; size >= 8 && small.num_attention_heads * head > kSmallHidden; size /= 2)
    head = std::min(head, size);
  // The hidden size keeps the model's ratio to the query size; unless the ratio is 1, it is a multiple of 8.
  const int64_t queries_size = small.num_attention_heads * head;
  small.head_dim = head;
  small.hidden_size = model.hidden_size == model.query_size()
                          ? queries_size
                          : round_up(divide_up(queries_size * model.hidden_size, model.query_size()), 8);
  const int64_t feed_forward = divide_up(model.intermediate_size * small.hidden_size, model.hidden_size);
  small.intermediate_size = with_padding_of(model.intermediate_size, feed_forward, tensor);
  small.vocab_size = with_padding_of(model.vocab_size, std::min(model.vocab_size, kSmallVocabulary), tensor);
  return parameter_count(small) < parameter_count(model) ? small : model;
}

int64_t check_bytes(const CheckSettings& settings, const MeshSizes& mesh) {
  const int64_t plan = std::max(plan_fullest(settings.request(mesh)).memory.total(),
                                plan_rank(settings.reference_request(mesh), {}).memory.total());
  if (settings.device != DeviceKind::kCpu) return plan;
  int64_t shard = 0;
  for (const std::vector<UnitSpec> table = trained_table(settings.model, settings.step.sharding.lora);
       const UnitSpec& unit : table)
    shard += UnitLayout(unit, mesh.tensor, 0, mesh.fsdp).shard_elements();
  // KeptSteps has float32 gradients of every step, and weights after the last step.
  return plan + 4 * (kCheckSteps + 1) * shard;
}

CheckSettings choose_check(const ResolvedRun& run, DeviceKind device, uint64_t seed,
                           const CheckLimits& limits) {
  const int64_t all_layers = run.model.num_hidden_layers;
  const auto at_least_stages = [&](int64_t layers) { return std::max(layers, stages_of(run)); };
  const int64_t few = at_least_stages(kFewLayers), most = at_least_stages(kMostLayersOfBfloat16);
  const bool too_deep = run.step.sharding.compute == DType::kBFloat16 && all_layers > most;
  const int64_t layers = too_deep ? most : all_layers;
  std::string reason = limits.small ? "--small asks for it"
                       : too_deep   ? "the rounding of more layers in bfloat16 would hide faults"
                                    : "";
  std::string why;  // the reason why the candidate tried last does not fit
  std::vector<CheckSettings> candidates;
  if (!limits.small) candidates.push_back(settings_of(CheckedModel::kWhole, layers, run, device, seed));
  if (!limits.small && layers > few)
    candidates.push_back(settings_of(CheckedModel::kFewerLayers, few, run, device, seed));
  candidates.push_back(settings_of(CheckedModel::kSmall, all_layers, run, device, seed));
  for (CheckSettings& settings : candidates) {
    // `kind` may be wrong: the small model may equal the config's; the first candidate may have fewer layers.
    if (settings.model == run.model)
      settings.kind = CheckedModel::kWhole;
    else if (settings.kind == CheckedModel::kWhole)
      settings.kind = CheckedModel::kFewerLayers;
    CheckLimits of_kind = limits;
    // The last candidate needs the fewest operations, so limits.flops does not apply to it.
    if (&settings == &candidates.back()) of_kind.flops = 0;
    why = fit(settings, run, of_kind);
    if (why.empty()) {
      if (settings.kind != CheckedModel::kWhole) settings.reason = reason;
      return settings;
    }
    // Reports why the first candidate, the largest, does not fit.
    if (&settings == &candidates.front()) reason = why;
  }
  throw Error(ExitCode::kResources, fmt::format("the small model of a check does not fit: {}", why),
              "start fewer ranks on a node, or take a smaller tensor axis");
}

}  // namespace ripstop
