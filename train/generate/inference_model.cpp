#include "train/generate/inference_model.h"

#include <cmath>
#include <limits>

#include "model/core/rounding.h"
#include "model/kernels/cpu/processor.h"

namespace ripstop {
namespace {

// kRowStep, or the context if smaller: rows that fill up a call form a document, which must fit into a slot.
int64_t row_step(const InferenceOptions& options) {
  return std::min(InferenceModel::kRowStep, options.context);
}

ShardingOptions sharding(const InferenceOptions& options) {
  return {.compute = options.compute,
          .reduce = DType::kFloat32,
          .sequence_count = options.sequence_count(),
          .sequence_length = options.context,
          .reshard_after_forward = false,
          .overlap_tensor = false,
          .training = false,
          .lora = options.lora};
}

// `count` ids or floats; no memory if `count` is 0.
Buffer words(const Stream& stream, MemoryLedger& ledger, int64_t count) {
  if (count == 0) return {};
  return Buffer(stream.device(), ledger, MemoryCategory::kActivations, 4 * count);
}

bool is_host(const Device& device) {
  return device.kind == DeviceKind::kCpu ||
         (device.kind == DeviceKind::kMeta && device.planned == DeviceKind::kCpu);
}

// The bytes that draw_token() needs in all threads, each of which draws for one row at a time.
int64_t drawing_bytes(const InferenceOptions& options, int64_t vocabulary, const Device& device) {
  if (!options.draws || !is_host(device)) return 0;
  return std::min(cpu_threads(), options.rows()) * vocabulary * kDrawBytes;
}

Tensor view(const Buffer& buffer, const Shape& shape, DType dtype = DType::kInt32) {
  return tensor_in(buffer, 0, dtype, shape);
}

// Copies the host's numbers to the device's buffer, which has the size of the largest call.
void upload(const Stream& stream, const InferenceModel::Input& input) {
  const auto& [to, from] = input;
  RIPSTOP_CHECK(4 * std::ssize(from) <= to.bytes(), "{} ids for {} bytes", from.size(), to.bytes());
  copy_bytes(stream, to.data(), from.data(), 4 * std::ssize(from));
}

// The least InferenceOptions::prefill_tokens: enough rows for matrix products at full speed.
constexpr int64_t kPrefillTokens = 2048;

}  // namespace

InferenceOptions InferenceOptions::of(const ModelConfig& model, int64_t sequence_length, DType compute,
                                      int64_t slots, const GenerationSettings& settings, int64_t pieces) {
  require_end_tokens(settings, model);
  const int64_t max_new_tokens = settings.max_new_tokens;
  const int64_t context = std::min(sequence_length, model.max_position_embeddings);
  check_window(model, context);
  if (max_new_tokens >= context)
    throw Error(
        ExitCode::kUsage,
        fmt::format("{} new tokens leave no room for a prompt: the model is trained on sequences of {}",
                    max_new_tokens, context),
        "generate fewer (--max-new-tokens, generation.max_new_tokens)");
  return {.compute = compute,
          .context = context,
          .slots = slots,
          .num_beams = settings.num_beams,
          .max_new_tokens = max_new_tokens,
          .all_logits = !settings.takes_the_best() ||
                        (!settings.eos_token_id.empty() && settings.eos_token_id.back() >= pieces),
          .draws = settings.do_sample,
          .prefill_tokens = std::max(context, kPrefillTokens)};
}

void require_end_tokens(const GenerationSettings& settings, const ModelConfig& model) {
  if (settings.eos_token_id.empty() || settings.eos_token_id.back() < model.vocab_size) return;
  throw Error(ExitCode::kUsage,
              fmt::format("generation.eos_token_id has {}, the model has the ids 0 to {}",
                          settings.eos_token_id.back(), model.vocab_size - 1),
              "give ids of the model");
}

InferenceModel::InferenceModel(const ModelConfig& config, const InferenceOptions& options, DeviceMesh& mesh,
                               const Stream& stream, MemoryLedger& ledger, const MemoryUse& arena)
    : options_(options),
      row_step_(row_step(options)),
      prompt_rows_(round_up(options.prefill_tokens, row_step_)),
      slices_(mesh.tensor().size()),
      columns_(slice_extent(config.vocab_size, slices_)),
      vocabulary_(config.vocab_size),
      stream_(stream),
      model_(config, mesh, stream, ledger, sharding(options)),
      cache_(config, slices_, options.slots + 1, options.places(), options.compute, stream.device(), ledger),
      batch_memory_(stream.device(), ledger, options.sequence_count(), options.context),
      totals_(mesh, stream, ledger),
      token_{words(stream, ledger, std::max(prompt_rows_, options.rows()))},
      position_{words(stream, ledger, std::max(prompt_rows_, options.rows()))},
      slot_{words(stream, ledger, std::max(prompt_rows_, options.rows()))},
      document_offset_{words(stream, ledger, prompt_rows_ + 1)},
      last_row_{words(stream, ledger, options.slots)},
      place_{words(stream, ledger, options.num_beams > 1 ? options.rows() : 0)},
      tail_first_{words(stream, ledger, options.num_beams > 1 ? options.rows() : 0)},
      tail_place_{words(stream, ledger, options.num_beams > 1 ? options.rows() * options.max_new_tokens : 0)},
      value_(words(stream, ledger, options.all_logits ? 0 : slices_ * options.rows())),
      id_(words(stream, ledger, options.all_logits ? 0 : slices_ * options.rows())),
      logits_(words(stream, ledger, options.all_logits ? slices_ * options.rows() * columns_ : 0)),
      statistics_(words(stream, ledger, options.all_logits ? slices_ * options.rows() * 3 : 0)),
      joined_logits_(words(
          stream, ledger,
          options.all_logits && slices_ > 1 && is_host(stream.device()) ? options.rows() * vocabulary_ : 0)),
      drawing_(Device::meta(stream.device().kind), ledger, MemoryCategory::kWorkspace,
               drawing_bytes(options, vocabulary_, stream.device())),
      arena_(stream.device(), ledger, arena) {
  RIPSTOP_CHECK(mesh.sizes().fsdp == 1, "the fsdp axis has {} ranks, expected 1", mesh.sizes().fsdp);
  RIPSTOP_CHECK(options.prefill_tokens >= options.context, "{} tokens a call, a prompt may have {}",
                options.prefill_tokens, options.context);
  RIPSTOP_CHECK(options.num_beams == 1 || (options.all_logits && options.max_new_tokens > 0),
                "{} beams need all logits and a number of new tokens", options.num_beams);
}

std::vector<int32_t> InferenceModel::best(std::span<const SlotTokens> items, int64_t ids) {
  RIPSTOP_CHECK(!options_.all_logits, "the model was made for logits, not for the best tokens");
  append(items, ids);
  const std::vector<int32_t> of_rows = predictions();
  std::vector<int32_t> next;
  for (const size_t row : row_of_item_) next.push_back(of_rows[row]);
  return next;
}

std::span<const LogitRow> InferenceModel::logits(std::span<const SlotTokens> items) {
  RIPSTOP_CHECK(options_.all_logits, "the model was made for the best tokens, not for logits");
  append(items, vocabulary_);
  const float* const all = on_host(logits_, slices_ * scored_rows_ * columns_, host_logits_);
  const float* const statistics = on_host(statistics_, slices_ * scored_rows_ * 3, host_statistics_);
  float* const together = slices_ > 1 ? joined_logits() : nullptr;
  logit_rows_.clear();
  for (const size_t row : row_of_item_) {
    const auto at = [&](int64_t slice) { return slice * scored_rows_ + static_cast<int64_t>(row); };
    const float* whole = all + static_cast<int64_t>(row) * columns_;
    LogitRow joined{.largest = -std::numeric_limits<float>::infinity()};
    for (int64_t s = 0; s < slices_; ++s) joined.largest = std::max(joined.largest, statistics[3 * at(s)]);
    float sum = 0;
    for (int64_t s = 0; s < slices_; ++s)
      sum += statistics[3 * at(s) + 1] * std::exp(statistics[3 * at(s)] - joined.largest);
    joined.log_sum = std::log(sum);
    // Joins the slices of the vocabulary in one row.
    for (int64_t s = 0; slices_ > 1 && s * columns_ < vocabulary_; ++s) {
      float* const to = together + static_cast<int64_t>(row) * vocabulary_;
      std::copy_n(all + at(s) * columns_, std::min(columns_, vocabulary_ - s * columns_), to + s * columns_);
      whole = to;
    }
    joined.logits = {whole, static_cast<size_t>(vocabulary_)};
    logit_rows_.push_back(joined);
  }
  return logit_rows_;
}

void InferenceModel::append(std::span<const SlotTokens> items, int64_t ids) {
  row_of_item_.clear();
  // A call has only prompts or only steps (AppendTokens).
  if (items.front().first_position == 0)
    run_prompts(items, ids);
  else
    run_step(items, ids);
}

void InferenceModel::run_prompts(std::span<const SlotTokens> items, int64_t ids) {
  for (Input* input : {&token_, &position_, &slot_, &document_offset_, &last_row_}) input->host.clear();
  int64_t longest = 0;
  const auto add = [&](std::span<const int32_t> tokens, int64_t slot) {
    document_offset_.host.push_back(static_cast<int32_t>(token_.host.size()));
    token_.host.insert(token_.host.end(), tokens.begin(), tokens.end());
    for (size_t p = 0; p < tokens.size(); ++p) position_.host.push_back(static_cast<int32_t>(p));
    slot_.host.insert(slot_.host.end(), tokens.size(), static_cast<int32_t>(slot));
    longest = std::max(longest, std::ssize(tokens));
  };
  // The prompts are documents of one packed sequence, so that none is padded to the length of the longest.
  for (const SlotTokens& item : items) {
    add(item.tokens, item.slot);
    row_of_item_.push_back(last_row_.host.size());
    last_row_.host.push_back(static_cast<int32_t>(token_.host.size()) - 1);
  }
  // Few row counts mean few shapes; each new shape makes kernels choose and plan again.
  const int64_t rows = round_up(std::ssize(token_.host), row_step_);
  const std::vector<int32_t> filling(static_cast<size_t>(rows) - token_.host.size(), 0);
  if (!filling.empty()) add(filling, options_.slots);
  const int64_t document_count = std::ssize(document_offset_.host);
  document_offset_.host.push_back(static_cast<int32_t>(rows));
  // last_row_ has an entry for every slot, used or not, so that the head has one shape.
  last_row_.host.resize(static_cast<size_t>(options_.slots), last_row_.host.front());
  prefill(rows, document_count, longest, ids);
}

void InferenceModel::prefill(int64_t rows, int64_t document_count, int64_t longest_document, int64_t ids) {
  for (const Input* input : {&token_, &position_, &slot_, &document_offset_, &last_row_})
    upload(stream_, *input);
  scored_rows_ = options_.slots;
  const Batch batch{.token = view(token_.device, {rows}),
                    .position = view(position_.device, {rows}),
                    .document_offset = view(document_offset_.device, {prompt_rows_ + 1}),
                    .document_count = document_count,
                    .longest_document = longest_document,
                    .token_order = {},
                    .target_row = {},
                    .target = {}};
  model_.prefill(arena_, batch, cache_, view(slot_.device, {rows}), view(last_row_.device, {options_.slots}),
                 scores(options_.slots, ids));
}

void InferenceModel::run_step(std::span<const SlotTokens> items, int64_t ids) {
  const auto rows = static_cast<size_t>(options_.rows());
  const int64_t beams = options_.num_beams, tail = beams > 1 ? options_.max_new_tokens : 0;
  // Rows without an item are computed, too, so that there is one shape. They write where it does no harm:
  // with one beam to position 0, which the slot's next sequence overwrites; with several beams to the places
  // of the last new token, whose keys and values nobody reads.
  token_.host.assign(rows, 0);
  position_.host.assign(rows, 0);
  slot_.host.resize(rows);
  place_.host.assign(rows, 0);
  tail_first_.host.assign(rows, 0);
  tail_place_.host.assign(rows * static_cast<size_t>(tail), 0);
  for (size_t r = 0; r < rows; ++r) {
    const int64_t row = static_cast<int64_t>(r);
    slot_.host[r] = static_cast<int32_t>(row / beams);
    if (beams == 1) continue;
    place_.host[r] = static_cast<int32_t>(options_.places() - beams + row % beams);
    tail_place_.host[r * static_cast<size_t>(tail)] = place_.host[r];
  }
  for (const SlotTokens& item : items) {
    const int64_t row = item.slot * beams + item.beam;
    place_row(row, item);
    row_of_item_.push_back(static_cast<size_t>(row));
  }
  decode(ids);
}

void InferenceModel::place_row(int64_t row, const SlotTokens& item) {
  const auto r = static_cast<size_t>(row);
  RIPSTOP_CHECK(item.tokens.size() == 1, "{} tokens in a step", item.tokens.size());
  token_.host[r] = item.tokens[0];
  position_.host[r] = static_cast<int32_t>(item.first_position);
  if (options_.num_beams == 1) return;
  RIPSTOP_CHECK(item.beam < options_.num_beams && !item.places.empty() &&
                    std::ssize(item.places) <= options_.max_new_tokens &&
                    item.prompt + std::ssize(item.places) == item.first_position + 1,
                "{} places behind a prompt of {}, position {}", item.places.size(), item.prompt,
                item.first_position);
  place_.host[r] = item.places.back();
  tail_first_.host[r] = static_cast<int32_t>(item.prompt);
  std::copy(item.places.begin(), item.places.end(), tail_place_.host.begin() + row * options_.max_new_tokens);
}

void InferenceModel::decode(int64_t ids) {
  for (const Input* input : {&token_, &position_, &slot_}) upload(stream_, *input);
  scored_rows_ = options_.rows();
  const Shape rows{options_.rows()};
  CacheRows places{.cache = {}, .slot = view(slot_.device, rows), .position = view(position_.device, rows)};
  places.place = places.position;
  if (options_.num_beams > 1) {
    for (const Input* input : {&place_, &tail_first_, &tail_place_}) upload(stream_, *input);
    places.place = view(place_.device, rows);
    places.tail = {view(tail_first_.device, rows),
                   view(tail_place_.device, {options_.rows(), options_.max_new_tokens})};
  }
  model_.decode(arena_, view(token_.device, rows), cache_, places, scores(options_.rows(), ids));
}

NextTokenScores InferenceModel::scores(int64_t rows, int64_t ids) const {
  const Shape all{slices_, rows};
  if (!options_.all_logits)
    return {.ids = ids, .value = view(value_, all, DType::kFloat32), .id = view(id_, all)};
  return {.ids = ids,
          .logits = view(logits_, {slices_, rows, columns_}, DType::kFloat32),
          .statistics = view(statistics_, {slices_, rows, 3}, DType::kFloat32)};
}

const float* InferenceModel::on_host(const Buffer& buffer, int64_t floats, std::vector<float>& copy) const {
  if (stream_.device().kind == DeviceKind::kCpu) {
    stream_.synchronize();
    return static_cast<const float*>(buffer.data());
  }
  copy.resize(static_cast<size_t>(floats));
  copy_bytes(stream_, copy.data(), buffer.data(), 4 * floats);
  stream_.synchronize();
  return copy.data();
}

// Host memory for the logits of the last call, with each row in one piece.
float* InferenceModel::joined_logits() {
  if (joined_logits_.bytes() > 0) return static_cast<float*>(joined_logits_.data());
  host_joined_.resize(static_cast<size_t>(scored_rows_ * vocabulary_));
  return host_joined_.data();
}

std::vector<int32_t> InferenceModel::predictions() const {
  // Each slice of the vocabulary has its best token and that token's logit.
  std::vector<float> value(static_cast<size_t>(slices_ * scored_rows_));
  std::vector<int32_t> id(value.size());
  copy_bytes(stream_, value.data(), value_.data(), 4 * std::ssize(value));
  copy_bytes(stream_, id.data(), id_.data(), 4 * std::ssize(id));
  stream_.synchronize();
  std::vector<int32_t> best(id.begin(), id.begin() + scored_rows_);
  for (int64_t row = 0; row < scored_rows_; ++row) {
    const auto r = static_cast<size_t>(row);
    for (int64_t slice = 1; slice < slices_; ++slice) {
      const auto at = static_cast<size_t>(slice * scored_rows_ + row);
      if (value[at] <= value[r]) continue;  // slices ascend by id, so among equal logits the lowest id stays
      value[r] = value[at];
      best[r] = id[at];
    }
  }
  return best;
}

LossSum InferenceModel::evaluate(int64_t count, NextTokens next, FunctionRef<bool()> stop_requested) {
  return evaluate_batches(model_, count, next, batch_memory_, totals_, arena_, stop_requested);
}

// A plan runs all shapes once, because the plan must hold for every later call.
void InferenceModel::run_all_shapes() {
  for (int64_t rows = row_step_; rows <= prompt_rows_; rows += row_step_) {
    const int64_t longest = std::min(rows, options_.context);
    prefill(rows, std::min(rows, options_.slots + 1), longest, vocabulary_);
  }
  decode(vocabulary_);
  evaluate(
      1, [](int64_t) { return HostTokens{}; }, [] { return false; });
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
