#include "train/exchange/read/open_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "model/core/error.h"
#include "model/core/rounding.h"
#include "parallel/agreement.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/takeovers.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/read/weights_reader.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// The samples_hash of the model in `directory`. Does not open that model's base, because the search would
// never end if the model is the checkpoint whose base is wanted.
std::string samples_at(Io& io, const fs::path& directory) {
  if (is_pretrained_model(directory)) return open_stored_model(io, directory).samples_hash();
  return StoredModel(Checkpoint{directory, read_manifest(io, directory)}).samples_hash();
}

// The differences that change what a model with the same weights computes. Two keys do not count:
// max_position_embeddings only bounds positions, initializer_range only decides initial weights.
std::vector<ConfigDifference> config_differences(ModelConfig trained, const ModelConfig& found) {
  trained.max_position_embeddings = found.max_position_embeddings;
  trained.initializer_range = found.initializer_range;
  return compare_models(trained, found);
}

// Findings at the places where a base was looked for.
struct Findings {
  std::string text;
  std::string hint;        // empty: the usual hint
  bool is_unread = false;  // a place could not be read, so the base may be there
};

// The model at `path` if it is the base; else nullopt, with the reason in `found`.
std::optional<StoredModel> base_at(Io& io, const AdaptedBase& base, const ModelConfig& sizes,
                                   const fs::path& path, Findings& found) {
  const auto add = [&](const std::string& text) {
    const std::string name = path.string() + ": ";
    found.text += (found.text.empty() ? "" : "; ") + (text.starts_with(name) ? "" : name) + text;
  };
  bool has_samples = false;
  try {
    if (!directory_exists(io, path)) {
      add("no such directory");
      return std::nullopt;
    }
    const fs::path directory = find_stored_model(io, path, "best");
    if (samples_at(io, directory) != base.samples) {
      add("has other weights");
      return std::nullopt;
    }
    has_samples = true;
    StoredModel model = open_stored_model(io, directory);
    const std::vector<ConfigDifference> differences = config_differences(sizes, model.config());
    if (differences.empty()) return model;
    add("has another config.json, " + differences.front().text());
  } catch (const Error& error) {
    add(error.what());
    found.is_unread |= error.code() == ExitCode::kStorage;
    // The base has adapters itself, and their base is missing.
    if (has_samples && error.code() == ExitCode::kInputData)
      found.hint =
          "a model under the adapters of a base is looked for only where it was: put it back there, a "
          "symbolic link will do";
  }
  return std::nullopt;
}

[[noreturn]] void refuse_places(const AdaptedBase& base, const Findings& found) {
  throw Error(found.is_unread ? ExitCode::kStorage : ExitCode::kInputData,
              fmt::format("the model that the adapters were trained with is not there: {}", found.text),
              !found.hint.empty()
                  ? found.hint
                  : fmt::format("it was at {}: if it has moved, put it back there, or name its directory: "
                                "model.pretrained of train, --base of other verbs",
                                base.directory));
}

// Compares the start, the middle and the end of every unit of `base`, rounded, with `exported`.
bool is_export(Io& io, const StoredModel& exported, const StoredModel& base) {
  ModelConfig sizes = exported.config();
  // initializer_range is not compared, because an export writes another number in place of 0.
  sizes.initializer_range = base.config().initializer_range;
  if (sizes != base.config()) return false;
  // All tensors of an export have one dtype.
  const std::string& stored_dtype = exported.pretrained()->tensors.begin()->second.dtype;
  const ExportDType dtype = find_export_dtype(stored_dtype).value_or(ExportDType::kFloat32);
  WeightsReader of_export(io, exported), of_base(io, base);
  for (const std::vector<UnitSpec> table = parameter_table(sizes); const UnitSpec& unit : table) {
    constexpr int64_t kSample = int64_t{1} << 16;
    const UnitLayout whole(unit, 1, 0, 1);
    const int64_t parts = divide_up(whole.elements(), kSample);
    const UnitLayout layout = whole.finer(parts);
    const auto bytes_of = [&](WeightsReader& reader, int64_t part) {
      std::vector<float> values(static_cast<size_t>(layout.shard_elements()));
      reader.read(part, {.layout = &layout, .master = values.data()});
      std::vector<char> bytes(values.size() * static_cast<size_t>(element_bytes(dtype)));
      convert(values.data(), std::ssize(values), dtype, bytes.data());
      return bytes;
    };
    for (const int64_t part : {int64_t{0}, parts / 2, parts - 1})
      if (bytes_of(of_export, part) != bytes_of(of_base, part)) return false;
  }
  return true;
}

// Throws unless `manifest` has the parameters of its model, with the same sizes.
void check_sizes(const Manifest& manifest) {
  // A forged manifest may state more layers than fit into memory.
  if (manifest.state.model.num_hidden_layers > std::ssize(manifest.units))
    fail(ExitCode::kStorage, "the checkpoint has {} units, too few for the {} layers of its model",
         manifest.units.size(), manifest.state.model.num_hidden_layers);
  check_same_parameters(manifest.units, stored_table(manifest.state));
}

[[noreturn]] void refuse_base(const fs::path& directory) {
  throw Error(ExitCode::kUsage,
              fmt::format("{} has no adapters, which alone have a base", directory.string()),
              "leave --base out");
}

// "runs/a" for "runs/a/checkpoints/step_00000060": messages name the run as the user does. Absolute if
// `checkpoint` does not spell its folder: ".", "step_00000060" or "../step_00000060".
fs::path run_of(const fs::path& checkpoint) {
  fs::path folder = folder_of_checkpoint(checkpoint);
  if (folder.filename() == "." || folder.filename() == "..") folder = normal_path(checkpoint).parent_path();
  if (folder.filename() != "checkpoints") return folder;
  return folder_of(folder);
}

}  // namespace

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

int64_t TrainedModel::context() const {
  return std::min(config.data.sequence_length, state().model.max_position_embeddings);
}

namespace {

ExampleKind kind_of_first_set(const TrainedModel& trained) {
  if (const std::optional<StartEvent> start = first_start(trained.run / "metrics.jsonl"))
    return value_of<ExampleKind>(start->data.kind).value_or(ExampleKind::kSummary);
  try {
    const fs::path file = fs::path(trained.config.data.first()) / "prepare.json";
    const auto json = nlohmann::json::parse(read_plain_file(file, 1 << 24, ExitCode::kInputData));
    const auto& source = json.at("arguments").at("source");
    if (source == "messages") return ExampleKind::kConversation;
    return source == "text" ? ExampleKind::kText : ExampleKind::kSummary;
  } catch (const std::exception&) {
    const std::optional<ExportedPrompt> prompt = read_prompt_json(trained.run);
    return prompt && prompt->has_turns ? ExampleKind::kConversation : ExampleKind::kSummary;
  }
}

}  // namespace

ExampleKind trained_kind(const TrainedModel& trained) {
  const ExampleKind kind = kind_of_first_set(trained);
  return kind == ExampleKind::kText && read_question_choice(trained.run) ? ExampleKind::kConversation : kind;
}

std::optional<Tokenizer> question_tokenizer(const fs::path& run, const Tokenizer& tokenizer,
                                            std::vector<int32_t>& ends) {
  const std::optional<TokenizerChoice> choice = read_question_choice(run);
  if (!choice) return std::nullopt;
  Tokenizer asked(tokenizer.files().path, *choice);
  for (const Tokenizer* each : {&tokenizer, &std::as_const(asked)})
    if (each->has_eos() && !std::ranges::binary_search(ends, each->eos()))
      ends.insert(std::ranges::lower_bound(ends, each->eos()), each->eos());
  return asked;
}

TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which, const BaseChoice& base,
                                std::span<const std::string> overrides) {
  std::optional<TrainedModel> trained;
  // A run that trains may remove the checkpoint that was found: the next try finds a newer one.
  constexpr int kTries = 3;
  for (int tries = 1; !trained; ++tries) {
    // Only rank 0 looks, because "latest" may change while a run trains: ranks could find different
    // checkpoints.
    const std::string found = from_rank_0(world, [&] { return find_stored_model(io, path, which).string(); });
    try {
      do_and_agree(world, [&] {
        StoredModel stored = open_stored_model(io, found, base);
        RunConfig config = parse_run_config(stored.state().config, found, overrides);
        fs::path run = stored.is_pretrained() ? stored.directory() : run_of(stored.directory());
        trained.emplace(TrainedModel{std::move(stored), std::move(run), std::move(config)});
      });
    } catch (const Error&) {
      trained.reset();
      std::error_code ignored;  // a throw of one rank would leave the others in the vote
      const bool is_gone = fs::symlink_status(found, ignored).type() == fs::file_type::not_found;
      if (tries == kTries || !any_rank(world, is_gone)) throw;
    }
  }
  if (trained->stored.is_pretrained()) {
    // A Hugging Face model has no hashes of its own, and its copies on several nodes may differ.
    std::string facts;
    do_and_agree(world, [&] {
      facts = fmt::format("{}, {}, texts end at {}", trained->stored.samples_hash(),
                          fields_text(trained->stored.config()),
                          fmt::join(trained->config.generation.eos_token_id, ", "));
    });
    require_equal(world, ExitCode::kInputData, "the model", facts, fmt::format("rank {}", world.rank()),
                  "make the same directory visible on every node");
  }
  require_bases(world, trained->stored);
  return *std::move(trained);
}

fs::path normal_path(const fs::path& path) {
  return without_slash(fs::absolute(path).lexically_normal());
}

std::vector<fs::path> places_of_base(const AdaptedBase& base, const std::string& pretrained_then,
                                     const std::string& pretrained_now) {
  const fs::path now = normal_path(pretrained_now);
  if (pretrained_now != pretrained_then || base.directory == now) return {now};
  return {base.directory, now};
}

StoredModel find_base(Io& io, const AdaptedBase& base, const ModelConfig& sizes,
                      const std::vector<fs::path>& places) {
  Findings found;
  for (const fs::path& path : places)
    if (std::optional<StoredModel> model = base_at(io, base, sizes, path, found)) return *std::move(model);
  refuse_places(base, found);
}

void require_base_weights(Communicator& world, const StoredModel& found, const AdaptedBase& base,
                          FunctionRef<void(int64_t percent)> watch) {
  if (found.weights_hash(world, watch) == base.hash) return;
  throw Error(
      ExitCode::kInputData,
      fmt::format("{} is not the model that the adapters were trained with: its files have the same tensors, "
                  "and other bytes in them",
                  found.directory().string()),
      "they were changed or damaged: put the model back, or name its directory: model.pretrained of train, "
      "--base of other verbs");
}

void require_bases(Communicator& world, const StoredModel& model) {
  if (model.is_pretrained()) check_storages(*model.pretrained(), world);
  for (const StoredModel* at = &model; at->base() != nullptr; at = at->base())
    require_base_weights(world, *at->base(), *at->state().adapted);
}

void require_base_or_export(Io& io, Communicator& world, const AdaptedBase& base, const ModelConfig& sizes,
                            const fs::path& directory) {
  std::optional<StoredModel> found;
  do_and_agree(world, [&] {
    Findings problem;
    found = base_at(io, base, sizes, directory, problem);
    if (found) return;
    if (is_pretrained_model(directory)) {
      Findings at_its_place;
      const std::optional<StoredModel> known = base_at(io, base, sizes, base.directory, at_its_place);
      if (known && is_export(io, open_stored_model(io, directory), *known)) return;
      if (!known) {
        problem.text += "; whether it is an export of the base cannot be told: " + at_its_place.text;
        problem.hint = at_its_place.hint;
      }
    }
    refuse_places(base, problem);
  });
  // Ranks may see different files, but all must make the same collective calls.
  if (all_ranks(world, found.has_value())) require_base_weights(world, *found, base);
}

}  // namespace ripstop
