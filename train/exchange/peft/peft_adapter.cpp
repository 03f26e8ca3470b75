#include "train/exchange/peft/peft_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "train/checkpoint/find_run.h"
#include "train/config/nearest_name.h"
#include "train/exchange/hugging_face/torch_file.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

constexpr int64_t kMostPeftBytes = int64_t{1} << 20;
constexpr int64_t kMostRank = int64_t{1} << 20;
constexpr size_t kMostPeftText = 256;
constexpr const char *kPeftType = "LORA", *kTaskType = "CAUSAL_LM", *kNoBias = "none";

// Keys that parse_peft_config reads, and keys that do not change what trained adapters compute.
constexpr std::array<std::string_view, 23> kAllowed = {
    "r",          "lora_alpha",   "loftq_config",   "megatron_config",
    "bias",       "use_rslora",   "megatron_core",  "init_lora_weights",
    "revision",   "auto_mapping", "inference_mode", "qalora_group_size",
    "peft_type",  "corda_config", "layers_pattern", "ensure_weight_tying",
    "task_type",  "peft_version", "target_modules", "base_model_name_or_path",
    "eva_config", "lora_dropout", "exclude_modules"};  // the tensors show whether a target was excluded

// Keys whose value must be empty or change nothing, each with the reason that the message gives.
constexpr std::pair<std::string_view, const char*> kNotDone[] = {
    {"use_dora", "ripstop has no DoRA"},
    {"rank_pattern", "in ripstop all adapters have one rank"},
    {"alpha_pattern", "in ripstop all adapters have one alpha"},
    {"modules_to_save", "ripstop trains adapters alone"},
    {"lora_bias", "ripstop's adapters have no biases"},
    {"layers_to_transform", "in ripstop every layer has the same adapters"},
    {"layer_replication", "in ripstop every layer has weights of its own"},
    {"trainable_token_indices", "ripstop trains adapters alone"},
    {"fan_in_fan_out", "LLaMA's matrices are [outputs, inputs]"}};

bool is_empty(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || (value.is_structured() && value.empty());
}

std::string brief(const Json& value) {
  return begin_of(text_of_json(value), 80);
}

class PeftReader : public JsonReader {
 public:
  PeftReader(const std::string& name, std::string_view text)
      : JsonReader(name, ExitCode::kInputData), json_(parse(text)) {}

  LoraConfig config() const {
    check_kind();
    for (const auto& [key, value] : json_.items()) check_key(key, value);
    check_begin();
    const LoraConfig lora{.rank = integer(json_, "r", 1, kMostRank),
                          .alpha = number(json_, "lora_alpha"),
                          .dropout = has("lora_dropout") ? number(json_, "lora_dropout") : 0.0,
                          .rslora = has("use_rslora") && flag(json_, "use_rslora"),
                          .targets = targets()};
    if (!std::isfinite(lora.alpha) || lora.alpha <= 0)
      refuse("'lora_alpha' must be above 0, it is {}", lora.alpha);
    if (!(lora.dropout >= 0 && lora.dropout < 1))
      refuse("'lora_dropout' must be at least 0 and below 1, it is {}", lora.dropout);
    return lora;
  }

 private:
  bool has(const char* key) const { return find(json_, key) != nullptr; }
  std::string word(const char* key) const { return text(json_, key, kMostPeftText); }

  void check_kind() const {
    if (word("peft_type") != kPeftType)
      refuse("has the peft_type '{}'; ripstop reads '{}'", word("peft_type"), kPeftType);
    if (has("task_type") && word("task_type") != kTaskType)
      refuse("has the task_type '{}'; ripstop's is '{}'", word("task_type"), kTaskType);
    if (has("bias") && word("bias") != kNoBias)
      refuse("trains biases (bias '{}'); ripstop's matrices have none", word("bias"));
  }

  void check_key(const std::string& key, const Json& value) const {
    if (std::ranges::count(kAllowed, key) > 0 || is_empty(value) || changes_nothing(key, value)) return;
    for (const auto& [not_done, why] : kNotDone)
      if (key == not_done) refuse("has {} {}: {}", key, brief(value), why);
    refuse("has {} {}, which ripstop does not know: it may change what the adapters compute",
           begin_of(key, kMostPeftText), brief(value));
  }

  // Whether a rank_pattern or alpha_pattern gives every matrix the value of r or lora_alpha, or
  // layers_to_transform lists layers 0, 1, 2, ... The tensors show whether the model has more layers.
  bool changes_nothing(const std::string& key, const Json& value) const {
    if (key == "layers_to_transform" && value.is_array()) {
      for (size_t layer = 0; layer < value.size(); ++layer)
        if (value[layer] != layer) return false;
      return true;
    }
    const char* const of_all = key == "rank_pattern" ? "r" : key == "alpha_pattern" ? "lora_alpha" : nullptr;
    if (of_all == nullptr || !value.is_object()) return false;
    for (const auto& [name, own] : value.items()) {
      // A key is a regular expression that matches the end of a matrix's name; a plain word matches itself.
      const bool word = std::ranges::all_of(name, [](uint8_t c) { return std::isalnum(c) != 0 || c == '_'; });
      if (own != member(json_, of_all) && (!word || std::ranges::count(kLoraTargets, name) > 0)) return false;
    }
    return true;
  }

  // Throws if init_lora_weights may mean initial values that change the base.
  void check_begin() const {
    const Json* begin = find(json_, "init_lora_weights");
    if (begin == nullptr || begin->is_boolean()) return;
    for (const char* kind : {"gaussian", "orthogonal", "eva"})
      if (*begin == kind) return;
    refuse_with(
        "save it once more with path_initial_model_for_weight_conversion of peft's save_pretrained, which "
        "makes adapters of the base itself",
        "has init_lora_weights {}, which may change the base that the adapters belong to", brief(*begin));
  }

  std::array<bool, kLoraTargets.size()> targets() const {
    std::array<bool, kLoraTargets.size()> has{};
    const Json& given = member(json_, "target_modules");
    if (given == "all-linear") {
      has.fill(true);
      return has;
    }
    if (given.is_string())
      refuse_with("write the names that it finds in its place, as in [\"q_proj\", \"v_proj\"]",
                  "has the pattern {} as target_modules; ripstop reads a list of names", brief(given));
    constexpr int64_t kMostTargets = 16384;
    for (const Json& target : list(json_, "target_modules", 1, kMostTargets)) {
      // Takes q_proj from "model.layers.0.self_attn.q_proj": the tensors show whether all layers have it.
      const std::string name = target.is_string() ? target.get<std::string>() : "";
      const auto* const found = std::ranges::find(kLoraTargets, name.substr(name.rfind('.') + 1));
      if (found == kLoraTargets.end())
        refuse("has adapters of {}; ripstop's are of {}", brief(target), fmt::join(kLoraTargets, ", "));
      has[static_cast<size_t>(found - kLoraTargets.begin())] = true;
    }
    return has;
  }

  Json json_;
};

// A JSON number, without a point if it is whole, because PEFT writes alpha as an integer.
Json number_of(double value) {
  constexpr double kMostWhole = 1e15;
  if (value == std::floor(value) && value < kMostWhole) return static_cast<int64_t>(value);
  return value;
}

constexpr const char *kPeftWeights = "adapter_model.safetensors", *kPickledWeights = "adapter_model.bin";

// The file with the weights. Throws if a file of the adapters is missing.
fs::path find_weights(const fs::path& directory) {
  const auto has = [&](const char* name) { return is_file(directory / name); };
  if (!has(kPeftConfigFile)) {
    const fs::path below = find_below(directory, kPeftConfigFile);
    refuse_directory(directory, fmt::format("has no {}", kPeftConfigFile),
                     has("config.json") ? "it is a whole model: give it as model.pretrained"
                     : !below.empty()   ? fmt::format("adapters are deeper: give lora.adapter={}",
                                                      shell_word(below.string()))
                                        : hint_for_link(directory / kPeftConfigFile));
  }
  for (const char* name : {kPeftWeights, kPickledWeights})
    if (has(name)) return directory / name;
  refuse_directory(directory, fmt::format("has no {} and no {}", kPeftWeights, kPickledWeights),
                   hint_for_link(directory / kPeftWeights));
}

// Throws if the model cannot have the adapters that `lora` describes. Without this check, the error would be
// about a missing tensor.
void require_possible(const fs::path& directory, const LoraConfig& lora, const ModelConfig& model) {
  try {
    validate(lora, model);
  } catch (const Error& error) {
    refuse_directory(directory,
                     fmt::format("is not for this model, or has too high a rank: {}", error.what()),
                     "the numbers are those of its adapter_config.json, not of [lora]");
  }
}

}  // namespace

LoraConfig parse_peft_config(std::string_view text, const std::string& name) {
  return PeftReader(name, text).config();
}

LoraConfig read_peft_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPeftConfigFile;
  return parse_peft_config(read_plain_file(path, kMostPeftBytes, ExitCode::kInputData), path.string());
}

std::string peft_config_json(const LoraConfig& lora, const std::string& base) {
  // The defaults of PEFT's other keys have no effect.
  const Json config = {{"base_model_name_or_path", base.empty() ? Json(nullptr) : Json(base)},
                       {"bias", kNoBias},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"lora_alpha", number_of(lora.alpha)},
                       {"lora_dropout", lora.dropout},
                       {"modules_to_save", nullptr},
                       {"peft_type", kPeftType},
                       {"r", lora.rank},
                       {"target_modules", lora.target_names()},
                       {"task_type", kTaskType},
                       {"use_rslora", lora.rslora}};
  return text_of_json(config, 2) + "\n";
}

std::string lora_lines(const LoraConfig& lora) {
  return fmt::format("rank = {}, alpha = {}, targets = [\"{}\"], rslora = {}", lora.rank, lora.alpha,
                     fmt::join(lora.target_names(), "\", \""), lora.rslora);
}

std::string PeftAdapter::weights_hash() const {
  for (const ZipMember& storage : storages) check_member(file, storage);
  StreamHash hash;
  hash.update(lora_lines(lora));
  hash_bytes(file, 0, file.bytes(), hash);
  return hash.hex();
}

PeftAdapter open_peft_adapter(const fs::path& directory, const ModelConfig& model) {
  const fs::path weights = find_weights(directory);
  PeftAdapter adapter{.directory = directory,
                      .lora = read_peft_config(directory),
                      .model = model,
                      .file = InputFile(weights),
                      .tensors = {}};
  require_possible(directory, adapter.lora, model);
  WeightsHeader header = read_weights_header(adapter.file);
  NamedTensors found;
  for (const StoredTensor& stored : header.tensors) found.emplace(stored.name, stored);
  adapter.storages = std::move(header.storages);
  adapter.wrappers = take_off_wrappers(found, /*adapters=*/true);
  adapter.tensors =
      take_parameters(directory, adapter_table(model, adapter.lora), "with this model and rank it is", found);
  require_no_others(directory, found, "its targets do not have");
  return adapter;
}

std::optional<PeftAdapter> open_first_adapters(const LoraSection& lora, const ModelConfig& model) {
  if (lora.adapter.empty()) return std::nullopt;
  if (!directory_exists(posix_io(), lora.adapter)) {
    const std::string near = hint_for_absent(lora.adapter, "lora.adapter=", kPeftConfigFile);
    throw Error(
        ExitCode::kUsage,
        fmt::format("lora.adapter = \"{}\": {}", lora.adapter,
                    path_exists(posix_io(), lora.adapter) ? "is not a directory" : "no such directory"),
        near.empty() ? fmt::format("give a directory with {} and {}", kPeftConfigFile, kPeftWeights) : near);
  }
  if (is_run(posix_io(), lora.adapter))
    throw Error(ExitCode::kUsage,
                fmt::format("lora.adapter = \"{}\" is a run, and adapters of PEFT are needed", lora.adapter),
                fmt::format("ripstop checkpoint export --format peft {} OUTPUT, and give OUTPUT",
                            shell_word(lora.adapter)));
  PeftAdapter adapter = open_peft_adapter(lora.adapter, model);
  LoraConfig same = adapter.lora;
  same.dropout = lora.dropout;
  if (same != lora)
    throw Error(ExitCode::kUsage,
                fmt::format("lora.adapter {} has {}, [lora] says {}", adapter.directory.string(),
                            lora_lines(same), lora_lines(lora)),
                "write in [lora] what the adapters have");
  return adapter;
}

void read_peft(const PeftAdapter& adapter, const UnitLayout& layout, int64_t begin, int64_t end, float* to) {
  read_stored(layout, begin, end, to, adapter.model.head_size(), [&](const std::string& name) {
    return StoredPlace{adapter.file, adapter.tensors.at(name)};
  });
}

}  // namespace ripstop
