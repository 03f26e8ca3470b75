#include "train/exchange/read/stored_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/files/hash.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/hugging_face/model_tokenizer.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// Limit of the context without ripstop_prompt.json, because a longer key-value cache could fill the memory.
constexpr int64_t kMostContext = 2048;

// A config to evaluate the model with. A model of 16-bit values computes in bfloat16. Keys that only training
// needs have any valid value.
std::string config_of(const fs::path& directory, const PretrainedModel& model) {
  RunConfig config;
  config.run.directory = directory.string();
  config.model.pretrained = directory.string();
  config.data.directory = directory.string();
  const std::optional<ExportedPrompt> prompt = read_prompt_json(directory);
  const int64_t window = model.config.sliding_window;
  config.data.sequence_length =
      std::min({model.config.max_position_embeddings, prompt ? prompt->context : kMostContext,
                window > 0 ? window : INT64_MAX});
  config.train.steps = 1;
  config.train.global_batch_sequences = 1;
  config.optimizer.learning_rate = 1e-5;
  config.generation.eos_token_id = read_end_tokens(directory, model.config.vocab_size).ids;
  const auto is_short = [](const auto& entry) { return entry.second.dtype != "F32"; };
  config.precision.compute =
      std::ranges::all_of(model.tensors, is_short) ? FloatChoice::kBfloat16 : FloatChoice::kFloat32;
  return to_toml(config);
}

std::string sidecars_hash(const Manifest& manifest) {
  StreamHash hash;
  for (const StoredFile& file : manifest.files) hash.update(file.sidecar_hash);
  if (manifest.state.adapted) hash.update(manifest.state.adapted->hash);
  return hash.hex();
}

}  // namespace

StoredModel::StoredModel(Checkpoint checkpoint, std::unique_ptr<StoredModel> base)
    : directory_(checkpoint.directory),
      state_(checkpoint.manifest.state),
      source_(std::move(checkpoint)),
      base_(std::move(base)) {}

StoredModel::StoredModel(fs::path directory, PretrainedModel model)
    : directory_(std::move(directory)), source_(std::move(model)) {
  const auto& opened = std::get<PretrainedModel>(source_);
  state_.model = opened.config;
  state_.config = config_of(directory_, opened);
  state_.tokenizer_sha256 = read_tokenizer_sha256(directory_);
}

std::vector<std::string> StoredModel::notes() const {
  if (base() != nullptr) return base()->notes();
  return is_pretrained() ? wrappers_notes(directory_, pretrained()->wrappers) : std::vector<std::string>{};
}

std::string StoredModel::samples_hash() const {
  return is_pretrained() ? ripstop::samples_hash(*pretrained()) : sidecars_hash(checkpoint()->manifest);
}

std::string StoredModel::weights_hash(Communicator& world, FunctionRef<void(int64_t percent)> watch) const {
  return is_pretrained() ? contents_hash(*pretrained(), world, watch) : sidecars_hash(checkpoint()->manifest);
}

}  // namespace ripstop
