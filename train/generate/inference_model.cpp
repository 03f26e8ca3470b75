#include "train/generate/inference_model.h"

#include <algorithm>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

// The rows that fill up a multiple are a document in a slot, so they must fit into one.
int64_t row_step(const InferenceOptions& options) {
  return std::min(InferenceModel::kRowStep, options.context);
}

// Every rank keeps its slice whole: gathering weights for each token would cost far more than the token.
ShardingOptions sharding(const InferenceOptions& options) {
  return {.compute = options.compute,
          .reduce = DType::kFloat32,
          .sequence_count = options.sequence_count(),
          .sequence_length = options.context,
          .reshard_after_forward = false,
          .overlap_tensor = false,
          .training = false};
}

Buffer ids(const Stream& stream, MemoryLedger& ledger, int64_t count) {
  return Buffer(stream.device(), ledger, MemoryCategory::kActivations, 4 * count);
}

Tensor view(const Buffer& buffer, const Shape& shape, DType dtype = DType::kInt32) {
  return tensor_in(buffer, 0, dtype, shape);
}

// The buffers have the size of the largest call. A larger one would be a bug of the caller.
void upload(const Stream& stream, const Buffer& to, const std::vector<int32_t>& from) {
  RIPSTOP_CHECK(4 * std::ssize(from) <= to.bytes(), "{} ids for {} bytes", from.size(), to.bytes());
  copy_bytes(stream, to.data(), from.data(), 4 * std::ssize(from));
}

// Tokens of one prefill, at least: enough rows for matrix products at full speed.
constexpr int64_t kPrefillTokens = 2048;

}  // namespace

InferenceOptions InferenceOptions::of(const ModelConfig& model, int64_t sequence_length, DType compute,
                                      int64_t slots, int64_t max_new_tokens) {
  const int64_t context = std::min(sequence_length, model.max_position_embeddings);
  if (max_new_tokens >= context)
    throw Error(
        ExitCode::kUsage,
        fmt::format("{} new tokens leave no room for a prompt: the model is trained on sequences of {}",
                    max_new_tokens, context),
        "generate fewer (--max-new-tokens, generation.max_new_tokens)");
  return {.compute = compute,
          .context = context,
          .slots = slots,
          .prefill_tokens = std::max(context, kPrefillTokens)};
}

InferenceModel::InferenceModel(const ModelConfig& config, const InferenceOptions& options, DeviceMesh& mesh,
                               const Stream& stream, MemoryLedger& ledger, const MemoryUse& arena)
    : options_(options),
      row_step_(row_step(options)),
      prompt_rows_(round_up(options.prefill_tokens, row_step_)),
      slices_(mesh.tensor().size()),
      stream_(stream),
      model_(config, mesh, stream, ledger, sharding(options)),
      cache_(config, slices_, options.slots + 1, options.context, options.compute, stream.device(), ledger),
      batch_memory_(stream.device(), ledger, options.sequence_count(), options.context),
      totals_(mesh, stream, ledger),
      token_(ids(stream, ledger, std::max(prompt_rows_, options.slots))),
      position_(ids(stream, ledger, std::max(prompt_rows_, options.slots))),
      slot_(ids(stream, ledger, std::max(prompt_rows_, options.slots))),
      document_offset_(ids(stream, ledger, prompt_rows_ + 1)),
      last_row_(ids(stream, ledger, options.slots)),
      value_(ids(stream, ledger, slices_ * options.slots)),
      id_(ids(stream, ledger, slices_ * options.slots)),
      arena_(stream.device(), ledger, arena) {
  RIPSTOP_CHECK(mesh.sizes().fsdp == 1, "the fsdp axis has {} ranks, expected 1", mesh.sizes().fsdp);
  RIPSTOP_CHECK(options.prefill_tokens >= options.context, "{} tokens a call, a prompt may have {}",
                options.prefill_tokens, options.context);
}

std::vector<int32_t> InferenceModel::append(std::span<const SlotTokens> items) {
  // GreedyLoop never mixes prompts and steps in one call.
  return items.front().first_position == 0 ? run_prompts(items) : run_step(items);
}

std::vector<int32_t> InferenceModel::run_prompts(std::span<const SlotTokens> items) {
  for (auto* host : {&host_token_, &host_position_, &host_slot_, &host_document_offset_, &host_last_row_})
    host->clear();
  int64_t longest = 0;
  const auto add = [&](std::span<const int32_t> tokens, int64_t slot) {
    host_document_offset_.push_back(static_cast<int32_t>(host_token_.size()));
    host_token_.insert(host_token_.end(), tokens.begin(), tokens.end());
    for (size_t p = 0; p < tokens.size(); ++p) host_position_.push_back(static_cast<int32_t>(p));
    host_slot_.insert(host_slot_.end(), tokens.size(), static_cast<int32_t>(slot));
    longest = std::max(longest, std::ssize(tokens));
  };
  // The prompts are documents of one packed sequence, so one call computes all of them without padding each.
  for (const SlotTokens& item : items) {
    add(item.tokens, item.slot);
    host_last_row_.push_back(static_cast<int32_t>(host_token_.size()) - 1);
  }
  // Few row counts mean few shapes: each new shape makes kernels choose and plan again.
  const int64_t rows = round_up(std::ssize(host_token_), row_step_);
  const std::vector<int32_t> filling(static_cast<size_t>(rows) - host_token_.size(), 0);
  // The filling goes into the extra slot of the cache, which no sequence has.
  if (!filling.empty()) add(filling, options_.slots);
  const int64_t document_count = std::ssize(host_document_offset_);
  host_document_offset_.push_back(static_cast<int32_t>(rows));
  // Always ask for the predictions of all slots, so that the head has one shape.
  host_last_row_.resize(static_cast<size_t>(options_.slots), host_last_row_.front());
  prefill(rows, document_count, longest);
  return predictions(std::ssize(items));
}

void InferenceModel::prefill(int64_t rows, int64_t document_count, int64_t longest_document) {
  upload(stream_, token_, host_token_);
  upload(stream_, position_, host_position_);
  upload(stream_, slot_, host_slot_);
  upload(stream_, document_offset_, host_document_offset_);
  upload(stream_, last_row_, host_last_row_);
  const Batch batch{.token = view(token_, {rows}),
                    .position = view(position_, {rows}),
                    .document_offset = view(document_offset_, {prompt_rows_ + 1}),
                    .document_count = document_count,
                    .longest_document = longest_document,
                    .token_order = {},
                    .target_row = {},
                    .target = {}};
  model_.prefill(arena_, batch, cache_, view(slot_, {rows}), view(last_row_, {options_.slots}),
                 view(value_, {slices_, options_.slots}, DType::kFloat32),
                 view(id_, {slices_, options_.slots}));
}

std::vector<int32_t> InferenceModel::run_step(std::span<const SlotTokens> items) {
  // Slots without a sequence are computed, too, so that there is one shape. They write to position 0, which
  // their next sequence overwrites.
  const auto slots = static_cast<size_t>(options_.slots);
  host_token_.assign(slots, 0);
  host_position_.assign(slots, 0);
  for (const SlotTokens& item : items) {
    RIPSTOP_CHECK(item.tokens.size() == 1, "{} tokens in a step", item.tokens.size());
    host_token_[static_cast<size_t>(item.slot)] = item.tokens[0];
    host_position_[static_cast<size_t>(item.slot)] = static_cast<int32_t>(item.first_position);
  }
  decode();
  const std::vector<int32_t> of_slots = predictions(options_.slots);
  std::vector<int32_t> next;
  for (const SlotTokens& item : items) next.push_back(of_slots[static_cast<size_t>(item.slot)]);
  return next;
}

void InferenceModel::decode() {
  host_slot_.resize(static_cast<size_t>(options_.slots));
  for (size_t s = 0; s < host_slot_.size(); ++s) host_slot_[s] = static_cast<int32_t>(s);
  upload(stream_, token_, host_token_);
  upload(stream_, position_, host_position_);
  upload(stream_, slot_, host_slot_);
  const Shape slots{options_.slots};
  model_.decode(arena_, view(token_, slots), cache_, view(slot_, slots), view(position_, slots),
                view(value_, {slices_, options_.slots}, DType::kFloat32),
                view(id_, {slices_, options_.slots}));
}

std::vector<int32_t> InferenceModel::predictions(int64_t count) {
  // Each slice of the vocabulary sends its best token and that token's logit; the best of these wins.
  std::vector<float> value(static_cast<size_t>(slices_ * options_.slots));
  std::vector<int32_t> id(value.size());
  copy_bytes(stream_, value.data(), value_.data(), 4 * std::ssize(value));
  copy_bytes(stream_, id.data(), id_.data(), 4 * std::ssize(id));
  stream_.synchronize();
  std::vector<int32_t> best(id.begin(), id.begin() + count);
  for (int64_t row = 0; row < count; ++row) {
    const auto r = static_cast<size_t>(row);
    for (int64_t slice = 1; slice < slices_; ++slice) {
      const auto at = static_cast<size_t>(slice * options_.slots + row);
      if (value[at] <= value[r]) continue;  // slices come by ascending ids, so the lowest of equals stays
      value[r] = value[at];
      best[r] = id[at];
    }
  }
  return best;
}

LossSum InferenceModel::evaluate(int64_t count, NextTokens next) {
  return evaluate_batches(model_, {count, options_.sequence_count(), next}, batch_memory_, totals_, arena_,
                          [] { return false; });
}

// A plan must hold for every call that may come, so it runs all shapes once.
void InferenceModel::run_all_shapes() {
  for (int64_t rows = row_step_; rows <= prompt_rows_; rows += row_step_) {
    const int64_t longest = std::min(rows, options_.context);
    prefill(rows, std::min(rows, options_.slots + 1), longest);
  }
  decode();
  evaluate(1, [](int64_t) { return HostTokens{}; });
}

InferencePlan plan_inference(const ModelConfig& config, const InferenceOptions& options,
                             const MeshSizes& sizes, const MeshCoordinates& coordinates, DeviceKind device) {
  const Stream stream(Device::meta(device));
  MemoryLedger ledger;
  DeviceMesh mesh = DeviceMesh::planned(sizes, coordinates, device);
  InferenceModel model(config, options, mesh, stream, ledger);
  model.run_all_shapes();
  InferencePlan plan{.memory = ledger.peak(), .arena = model.arena().peak()};
  plan.memory += plan.arena;
  return plan;
}

}  // namespace ripstop
