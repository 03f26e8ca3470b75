#include "train/exchange/read/stored_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/process/block_threads.h"
#include "data/tokenizer/tokenizer.h"
#include "parallel/agreement.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/pretrained_weights.h"
#include "train/exchange/hugging_face/prompt_file.h"
#include "train/exchange/hugging_face/weights_hash.h"
#include "train/exchange/read/adapted_base.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// The longest context at which a pretrained model is evaluated unless more is asked for: the cache of keys
// and values of long-context models would fill the memory. An export says the context of its training.
constexpr int64_t kMostContext = 2048;

bool has_short_values(const PretrainedModel& model) {
  return std::all_of(model.tensors.begin(), model.tensors.end(),
                     [](const auto& entry) { return entry.second.stored.dtype != "F32"; });
}

// A config that evaluates the model: values of 16 bits in bfloat16, as training computes. Training needs a
// config of its own: what is required and means nothing here has the smallest value.
std::string config_of(const fs::path& directory, const PretrainedModel& model) {
  RunConfig config;
  config.run.directory = directory.string();
  config.model.pretrained = directory.string();
  config.data.directory = directory.string();
  config.data.sequence_length = std::min(model.config.max_position_embeddings, kMostContext);
  if (const std::optional<ExportedPrompt> prompt = read_prompt_json(directory))
    config.data.sequence_length = std::min(model.config.max_position_embeddings, prompt->context);
  config.train.steps = 1;
  config.train.global_batch_sequences = 1;
  config.optimizer.learning_rate = 1e-5;
  config.precision.compute = has_short_values(model) ? FloatChoice::kBfloat16 : FloatChoice::kFloat32;
  return to_toml(config);
}

// The sizes in a manifest must be those of its parameters.
void check_sizes(const Manifest& manifest) {
  // The table of a forged model would fill the memory.
  if (manifest.state.model.num_hidden_layers > std::ssize(manifest.units))
    fail(ExitCode::kStorage, "the checkpoint has {} units, too few for the {} layers of its model",
         manifest.units.size(), manifest.state.model.num_hidden_layers);
  check_same_parameters(manifest, stored_table(manifest.state));
}

[[noreturn]] void refuse_base(const fs::path& directory) {
  throw Error(ExitCode::kUsage,
              fmt::format("{} has no adapters, which alone have a base", directory.string()),
              "leave --base out");
}

// Elements of a unit's shard that one thread reads at once.
struct ShardPart {
  const UnitStates* unit = nullptr;
  int64_t begin = 0, end = 0;  // in the shard
};

// Calls body(unit, begin, end, to) for parts of the shards, several at once.
template <class Body>
void each_part(int64_t fsdp_index, std::span<const UnitStates> units, Body body) {
  constexpr int64_t kMostElements = int64_t{1} << 19;
  std::vector<ShardPart> parts;
  for (const UnitStates& unit : units)
    for (int64_t at = 0, end = unit.layout->shard_elements(); at < end; at += kMostElements)
      parts.push_back({&unit, at, std::min(at + kMostElements, end)});
  share_blocks(
      std::ssize(parts), kBlockThreads,
      [&](int64_t, int64_t number) {
        const ShardPart& part = parts[static_cast<size_t>(number)];
        const UnitLayout& layout = *part.unit->layout;
        const int64_t begin = fsdp_index * layout.shard_elements();
        body(layout, begin + part.begin, begin + part.end, part.unit->master + part.begin);
      },
      [](int64_t) {});
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
  if (path_exists(posix_io(), directory_ / "tokenizer.model"))
    state_.tokenizer_sha256 = Tokenizer(directory_).sha256();
}

std::string StoredModel::samples_hash() const {
  return is_pretrained() ? ripstop::samples_hash(*pretrained()) : sidecars_hash();
}

std::string StoredModel::weights_hash(Communicator& world, FunctionRef<void(int64_t percent)> watch) const {
  return is_pretrained() ? contents_hash(*pretrained(), world, watch) : sidecars_hash();
}

std::string StoredModel::sidecars_hash() const {
  StreamHash hash;
  // The hashes of all files stand for the weights, without reading them again.
  for (const StoredFile& file : std::get<Checkpoint>(source_).manifest.files) hash.update(file.sidecar_hash);
  if (state_.adapted) hash.update(state_.adapted->hash);
  return hash.hex();
}

void StoredModel::read(Io& io, int64_t fsdp_index, std::span<const UnitStates> units) const {
  if (const PretrainedModel* model = pretrained()) {
    each_part(fsdp_index, units, [&](const UnitLayout& layout, int64_t begin, int64_t end, float* to) {
      read_pretrained(*model, layout, begin, end, to);
    });
    return;
  }
  if (base_) {
    base_->read(io, fsdp_index, units);
    WeightsReader reader(io, *this);
    each_part(fsdp_index, units, [&](const UnitLayout& layout, int64_t begin, int64_t end, float* to) {
      reader.add_adapters_to(layout, begin, end, to);
    });
    return;
  }
  RIPSTOP_CHECK(!state_.adapted, "{}: its base is not open", directory_.string());
  std::vector<UnitStates> masters;
  for (const UnitStates& unit : units) masters.push_back({.layout = unit.layout, .master = unit.master});
  try {
    CheckpointReader(io, std::get<Checkpoint>(source_)).read(fsdp_index, masters);
  } catch (const Error& error) {
    throw with_hint_for_damage(error, directory_);
  }
}

void StoredModel::read_elements(const UnitLayout& layout, int64_t begin, int64_t end, float* to) const {
  RIPSTOP_CHECK(is_pretrained(), "{} is a checkpoint", directory_.string());
  read_pretrained(std::get<PretrainedModel>(source_), layout, begin, end, to);
}

fs::path find_stored_model(Io& io, const fs::path& path, const std::string& which) {
  return is_pretrained_model(path) ? path : find_checkpoint(io, path, which);
}

StoredModel open_stored_model(Io& io, const fs::path& directory, const BaseChoice& choice) {
  if (is_pretrained_model(directory)) {
    if (!choice.directory.empty()) refuse_base(directory);
    return {directory, open_pretrained_model(directory)};
  }
  try {
    Checkpoint checkpoint{directory, read_manifest(io, directory)};
    check_sizes(checkpoint.manifest);
    const CheckpointState& state = checkpoint.manifest.state;
    require_not_superseded(io, directory, state.step, state.takeover);
    if (!state.adapted && !choice.directory.empty()) refuse_base(directory);
    std::unique_ptr<StoredModel> base;
    if (state.adapted && (choice.is_needed || !choice.directory.empty()))
      base = std::make_unique<StoredModel>(
          find_base(io, *state.adapted, state.model,
                    {choice.directory.empty() ? fs::path(state.adapted->directory) : choice.directory}));
    return StoredModel(std::move(checkpoint), std::move(base));
  } catch (const Error& error) {
    throw with_hint_for_damage(error, directory);
  }
}

void load_weights(Io& io, const StoredModel& model, Communicator& world,
                  const std::vector<const UnitLayout*>& layouts, std::span<float> staging,
                  FunctionRef<void(size_t unit, std::span<const float> weights)> take) {
  do_and_agree(world, [&] {
    for (size_t u = 0; u < layouts.size(); ++u) {
      const int64_t elements = layouts[u]->elements();
      RIPSTOP_CHECK(elements == layouts[u]->shard_elements(), "{} is laid out for several shards",
                    layouts[u]->unit().name);
      RIPSTOP_CHECK(elements <= std::ssize(staging), "{} elements for a unit of {}", staging.size(),
                    elements);
      const UnitStates unit{.layout = layouts[u], .master = staging.data()};
      model.read(io, /*fsdp_index=*/0, {&unit, 1});
      take(u, staging.first(static_cast<size_t>(elements)));
    }
  });
}

}  // namespace ripstop
