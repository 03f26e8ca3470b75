#include "train/exchange/peft/peft_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr int64_t kMostPeftBytes = int64_t{1} << 20;
constexpr int64_t kMostRank = int64_t{1} << 20;
constexpr size_t kMostPeftText = 256;

// Keys that parse_peft_config takes.
constexpr std::array<std::string_view, 10> kTakenByPeft = {"peft_type",
                                                           "task_type",
                                                           "r",
                                                           "lora_alpha",
                                                           "lora_dropout",
                                                           "use_rslora",
                                                           "target_modules",
                                                           "base_model_name_or_path",
                                                           "bias",
                                                           "init_lora_weights"};

// Keys that change nothing in what adapters compute once they are there.
constexpr std::array<std::string_view, 12> kOfNoEffect = {
    "auto_mapping",        "revision",      "inference_mode",    "peft_version",
    "layers_pattern",      "megatron_core", "qalora_group_size", "megatron_config",
    "ensure_weight_tying", "eva_config",    "corda_config",      "loftq_config"};

// Keys that must be empty, and why.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kNotDone = {
    {{"use_dora", "ripstop has no DoRA"},
     {"rank_pattern", "in ripstop all adapters have one rank"},
     {"alpha_pattern", "in ripstop all adapters have one alpha"},
     {"modules_to_save", "ripstop trains adapters alone"},
     {"lora_bias", "ripstop's adapters have no biases"},
     {"layers_to_transform", "in ripstop every layer has the same adapters"},
     {"exclude_modules", "in ripstop every layer has the same adapters"},
     {"layer_replication", "in ripstop every layer has weights of its own"},
     {"trainable_token_indices", "ripstop trains adapters alone"},
     {"fan_in_fan_out", "LLaMA's matrices are [outputs, inputs]"}}};

// Whether a value says nothing: null, false, "", {} or [].
bool says_nothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || (value.is_structured() && value.empty());
}

// A value for a message.
std::string brief(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
}

class PeftReader : public JsonReader {
 public:
  PeftReader(const std::string& name, std::string_view text)
      : JsonReader(name, ExitCode::kInputData), file_(name), json_(parse(text)) {}

  PeftConfig config() const {
    check_kind();
    for (const auto& [key, value] : json_.items()) check_key(key, value);
    check_begin();
    PeftConfig config{.lora = {.rank = integer(json_, "r", 1, kMostRank),
                               .alpha = number(json_, "lora_alpha"),
                               .dropout = find(json_, "lora_dropout") ? number(json_, "lora_dropout") : 0.0,
                               .rslora = find(json_, "use_rslora") && flag(json_, "use_rslora"),
                               .targets = targets()},
                      .base = {}};
    if (!std::isfinite(config.lora.alpha) || config.lora.alpha <= 0)
      refuse("'lora_alpha' must be above 0, it is {}", config.lora.alpha);
    if (!(config.lora.dropout >= 0 && config.lora.dropout < 1))
      refuse("'lora_dropout' must be at least 0 and below 1, it is {}", config.lora.dropout);
    constexpr size_t kMostPathBytes = 4096;
    if (find(json_, "base_model_name_or_path") != nullptr)
      config.base = in_one_line(text(json_, "base_model_name_or_path", kMostPathBytes));
    return config;
  }

 private:
  void check_kind() const {
    if (const std::string type = text(json_, "peft_type", kMostPeftText); type != "LORA")
      refuse("has the peft_type '{}'; ripstop reads 'LORA'", type);
    if (find(json_, "task_type") != nullptr && text(json_, "task_type", kMostPeftText) != "CAUSAL_LM")
      refuse("has the task_type '{}'; ripstop's is 'CAUSAL_LM'", text(json_, "task_type", kMostPeftText));
    if (find(json_, "bias") != nullptr && text(json_, "bias", kMostPeftText) != "none")
      refuse("trains biases (bias '{}'); ripstop's matrices have none", text(json_, "bias", kMostPeftText));
  }

  void check_key(const std::string& key, const Json& value) const {
    const auto is_in = [&](const auto& keys) { return std::ranges::find(keys, key) != keys.end(); };
    if (is_in(kTakenByPeft) || is_in(kOfNoEffect) || says_nothing(value)) return;
    for (const auto& [not_done, why] : kNotDone)
      if (key == not_done) refuse("has {} {}: {}", key, brief(value), why);
    refuse("has {} {}, which ripstop does not know: it may change what the adapters compute",
           key.substr(0, kMostPeftText), brief(value));
  }

  // Initial values of these kinds leave the base as it is.
  void check_begin() const {
    const Json* begin = find(json_, "init_lora_weights");
    if (begin == nullptr || begin->is_boolean()) return;
    for (const char* kind : {"gaussian", "orthogonal", "eva"})
      if (*begin == kind) return;
    throw Error(
        ExitCode::kInputData,
        fmt::format("{}: has init_lora_weights {}, which may change the base that the adapters belong to",
                    file_, in_one_line(brief(*begin))),
        "save it once more with path_initial_model_for_weight_conversion of peft's save_pretrained, which "
        "makes "
        "adapters of the base itself");
  }

  std::array<bool, kLoraTargets.size()> targets() const {
    std::array<bool, kLoraTargets.size()> has{};
    const Json& given = member(json_, "target_modules");
    if (given == "all-linear") {
      has.fill(true);
      return has;
    }
    if (given.is_string())
      throw Error(ExitCode::kInputData,
                  fmt::format("{}: has the pattern {} as target_modules; ripstop reads a list of names",
                              file_, in_one_line(brief(given))),
                  "write the names that it finds in its place, as in [\"q_proj\", \"v_proj\"]");
    constexpr int64_t kMostTargets = 64;
    for (const Json& target : list(json_, "target_modules", 1, kMostTargets)) {
      const auto* const found =
          std::ranges::find(kLoraTargets, target.is_string() ? target.get<std::string>() : std::string());
      if (found == kLoraTargets.end())
        refuse("has adapters of {}; ripstop's are of {}", brief(target), fmt::join(kLoraTargets, ", "));
      has[static_cast<size_t>(found - kLoraTargets.begin())] = true;
    }
    return has;
  }

  std::string file_;
  Json json_;
};

// peft's alpha is a whole number, though it takes others, too.
Json number_of(double value) {
  constexpr double kMostWhole = 1e15;
  if (value == std::floor(value) && value < kMostWhole) return static_cast<int64_t>(value);
  return value;
}

}  // namespace

PeftConfig parse_peft_config(std::string_view text, const std::string& name) {
  return PeftReader(name, text).config();
}

PeftConfig read_peft_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPeftConfigFile;
  return parse_peft_config(read_plain_file(path, kMostPeftBytes, ExitCode::kInputData), path.string());
}

std::string peft_config_json(const LoraConfig& lora, const std::string& base) {
  // Every version of peft knows these keys. What is absent has its default, which does nothing.
  const Json json = {{"base_model_name_or_path", base.empty() ? Json(nullptr) : Json(base)},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"lora_alpha", number_of(lora.alpha)},
                     {"lora_dropout", lora.dropout},
                     {"modules_to_save", nullptr},
                     {"peft_type", "LORA"},
                     {"r", lora.rank},
                     {"target_modules", lora.target_names()},
                     {"task_type", "CAUSAL_LM"},
                     {"use_rslora", lora.rslora}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string lora_lines(const LoraConfig& lora) {
  return fmt::format("rank = {}, alpha = {}, targets = [\"{}\"], rslora = {}", lora.rank, lora.alpha,
                     fmt::join(lora.target_names(), "\", \""), lora.rslora);
}

}  // namespace ripstop
