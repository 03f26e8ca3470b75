#include "train/exchange/read/adapted_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "data/files/directory.h"
#include "model/core/error.h"
#include "model/core/rounding.h"
#include "parallel/agreement.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/export_dtype.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// StoredModel::samples_hash of the model in `directory`. Does not open what lies under its adapters, if it
// has any: that may be the very checkpoint whose base is looked for.
std::string samples_at(Io& io, const fs::path& directory) {
  if (is_pretrained_model(directory)) return open_stored_model(io, directory).samples_hash();
  return StoredModel(Checkpoint{directory, read_manifest(io, directory)}).samples_hash();
}

// What changes the numbers of a model with the same weights. The others bound positions or are of first
// values.
std::vector<ConfigDifference> config_differences(ModelConfig trained, const ModelConfig& found) {
  trained.max_position_embeddings = found.max_position_embeddings;
  trained.initializer_range = found.initializer_range;
  return compare_models(trained, found);
}

// What was found where a base was looked for.
struct Findings {
  std::string text;
  std::string hint;        // what helps, if that is known; else empty
  bool is_unread = false;  // a place could not be read: the base may be there
};

// The model at `path` if it has the samples; else nothing, and what is wrong with it is added to `found`.
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
    // It is the base, and has adapters itself: only what lies under them is missing.
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

// The dtype of an export, which all of its tensors have.
ExportDType dtype_of(const PretrainedModel& model) {
  const std::string& stored = model.tensors.begin()->second.stored.dtype;
  for (const ExportDType dtype : {ExportDType::kBFloat16, ExportDType::kFloat16})
    if (safetensors_dtype(dtype) == stored) return dtype;
  return ExportDType::kFloat32;
}

// Whether the weights of `exported`, at the begin, in the middle and at the end of every unit, are those of
// `base`, rounded.
bool is_export(Io& io, const StoredModel& exported, const StoredModel& base) {
  ModelConfig sizes = exported.config();
  sizes.initializer_range = base.config().initializer_range;  // Hugging Face knows no 0
  if (sizes != base.config()) return false;
  const ExportDType dtype = dtype_of(*exported.pretrained());
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

}  // namespace

fs::path place_of_base(const fs::path& path) {
  const fs::path place = fs::absolute(path).lexically_normal();
  return place.has_filename() ? place : place.parent_path();
}

std::vector<fs::path> places_of_base(const AdaptedBase& base, const std::string& pretrained_then,
                                     const std::string& pretrained_now) {
  if (pretrained_now != pretrained_then) return {place_of_base(pretrained_now)};
  return {base.directory, place_of_base(pretrained_now)};
}

StoredModel find_base(Io& io, const AdaptedBase& base, const ModelConfig& sizes,
                      const std::vector<fs::path>& places) {
  Findings found;
  for (auto path = places.begin(); path != places.end(); ++path)
    if (std::find(places.begin(), path, *path) == path)
      if (std::optional<StoredModel> model = base_at(io, base, sizes, *path, found)) return *std::move(model);
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
  // Ranks that see other files would otherwise part here.
  if (all_ranks(world, found.has_value())) require_base_weights(world, *found, base);
}

}  // namespace ripstop
