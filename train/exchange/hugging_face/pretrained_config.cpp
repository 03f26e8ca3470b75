#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "data/files/whole_file.h"
#include "data/text/json_struct.h"
#include "data/text/utf8.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr int64_t kMostSize = int64_t{1} << 40;
constexpr size_t kMostTextBytes = 256;
constexpr const char* kActivation = "silu";

// An architecture of transformers.
struct Family {
  const char* architecture;
  const char* model_type;
  AttentionBias bias;         // used if attention_bias is false or absent
  AttentionBias bias_if_set;  // used if attention_bias is true
  bool qk_norm;
  bool has_window;        // every layer has the file's sliding_window
  ModelConfig if_absent;  // values of absent keys; a size that is below its range here must be in the file
};

// Source: transformers 5.24, models/*/configuration_*.py and modeling_*.py.
// clang-format off
constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", AttentionBias::kNone, AttentionBias::kQkvo, false, false,
     {.max_position_embeddings = 2048, .rms_norm_eps = 1e-6, .initializer_range = 0.02}},
    {"MistralForCausalLM", "mistral", AttentionBias::kNone, AttentionBias::kNone, false, true,
     {.num_key_value_heads = 8, .max_position_embeddings = 131072, .rms_norm_eps = 1e-6,
      .initializer_range = 0.02, .sliding_window = 4096}},
    {"Qwen2ForCausalLM", "qwen2", AttentionBias::kQkv, AttentionBias::kQkv, false, false,
     {.num_key_value_heads = 32, .max_position_embeddings = 32768, .rms_norm_eps = 1e-6,
      .initializer_range = 0.02, .sliding_window = 4096}},
    {"Qwen3ForCausalLM", "qwen3", AttentionBias::kNone, AttentionBias::kQkvo, true, false,
     {.num_key_value_heads = 32, .max_position_embeddings = 32768, .rms_norm_eps = 1e-6,
      .initializer_range = 0.02, .head_dim = 128, .sliding_window = 4096}},
};
// clang-format on

std::string list_of(const char* Family::*name) {
  std::vector<const char*> names;
  for (const Family& family : kFamilies) names.push_back(family.*name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// A member of rope_scaling and of rope_parameters.
struct RotaryMember {
  const char* name;
  const char* field;     // field of ModelConfig
  RopeType needed_from;  // this and all later types have the member
};

constexpr RotaryMember kRotaryMembers[] = {
    {"rope_theta", "rope_theta", RopeType::kDefault},
    {"rope_type", "rope_type", RopeType::kDefault},
    {"factor", "rope_factor", RopeType::kLinear},
    {"low_freq_factor", "rope_low_freq_factor", RopeType::kLlama3},
    {"high_freq_factor", "rope_high_freq_factor", RopeType::kLlama3},
    {"original_max_position_embeddings", "rope_original_max_position_embeddings", RopeType::kLlama3},
};

class PretrainedReader : public JsonReader {
 public:
  PretrainedReader(const std::string& name, std::string_view text)
      : JsonReader(name, ExitCode::kInputData), json_(parse(text)), family_(family()) {}

  void check_computation() const {
    if (find(json_, "hidden_act") != nullptr)
      if (const std::string name = text(json_, "hidden_act", kMostTextBytes);
          name != kActivation && name != "swish")  // another name of silu
        refuse("has hidden_act '{}'; ripstop computes '{}'", name, kActivation);
    if (flag_or("mlp_bias", false)) refuse("has mlp_bias; ripstop's feed-forward layers have no biases");
    if (find(json_, "quantization_config") != nullptr)
      refuse(
          "has quantization_config: quantized weights cannot be trained; use the model that they were made "
          "of");
    check_whole_heads(json_);
    if (find(json_, "layer_types") != nullptr)
      for (const Json& type : list(json_, "layer_types", 0, 1 << 12))
        if (type != "full_attention")
          refuse("has layers of {}; ripstop computes 'full_attention'", brief(type));
  }

  ModelConfig sizes() {
    take_family();
    take_rotary();
    ModelConfig model = family_.if_absent;
    model.sliding_window = 0;  // take_family() put the default into json_
    for_each_field(model, [&]<class T>(const char* name, T& value, ValueRange range = {}) {
      if constexpr (std::is_same_v<T, int64_t>)
        value = static_cast<double>(value) < range.least ? integer(json_, name, 1, kMostSize)
                                                         : size_or(name, value);
      else if constexpr (std::is_same_v<T, bool>)
        value = flag_or(name, value);
      else if constexpr (HasWords<T>)
        value = value_of<T>(text(json_, name, kMostTextBytes)).value();
      else
        value = number_or(json_, name, value);
    });
    if (model.rope_type == RopeType::kLinear && model.rope_factor == 1) model.rope_type = RopeType::kDefault;
    try {
      validate(model);
    } catch (const Error& error) {
      refuse("has an impossible model: {}", error.what());
    }
    model.head_dim = model.head_size();
    return model;
  }

 private:
  const Family& family() const {
    const std::string type = text(json_, "model_type", kMostTextBytes);
    const auto* const found = std::ranges::find(kFamilies, type, &Family::model_type);
    if (found == std::end(kFamilies))
      refuse("has the model_type '{}'; ripstop reads {}", type, list_of(&Family::model_type));
    if (find(json_, "architectures") == nullptr) return *found;
    const Json& names = list(json_, "architectures", 1, 16);
    if (names[0] != found->architecture &&
        (type != "llama" || names[0] != "LLaMAForCausalLM"))  // the name from before transformers had LLaMA
      refuse("is of {} with the model_type '{}'; ripstop reads {}", brief(names[0]), type,
             list_of(&Family::architecture));
    return *found;
  }

  // Writes what the family decides into json_, under the names of ModelConfig.
  void take_family() {
    const auto heads = json_.find("num_key_value_heads");
    if (heads == json_.end() ? family_.if_absent.num_key_value_heads == 0 : heads->is_null())
      json_["num_key_value_heads"] = Json(member(json_, "num_attention_heads"));
    json_["attention_bias"] =
        to_string(flag_or("attention_bias", false) ? family_.bias_if_set : family_.bias);
    json_["qk_norm"] = family_.qk_norm;
    json_["sliding_window"] = window();
  }

  // The window of every layer; null: no window. Qwen uses sliding_window, in some layers, if
  // use_sliding_window is true. LLaMA defines no window.
  Json window() const {
    const Json stated = json_.contains("sliding_window")       ? json_.at("sliding_window")
                        : family_.if_absent.sliding_window > 0 ? Json(family_.if_absent.sliding_window)
                                                               : Json();
    if (stated.is_null()) return stated;
    const int64_t window = integer({{"sliding_window", stated}}, "sliding_window", 1, kMostSize);
    if (family_.has_window) return window;
    // Qwen has windows in layers from max_window_layers on, or where layer_types says: here in none, because
    // there are too few layers, or check_computation() has refused other types than full_attention.
    if (family_.if_absent.sliding_window > 0 &&
        (find(json_, "layer_types") != nullptr ||
         size_or("max_window_layers", 28) >= integer(json_, "num_hidden_layers", 1, kMostSize)))
      return nullptr;
    if (flag_or("use_sliding_window", family_.if_absent.sliding_window == 0) &&
        window < size_or("max_position_embeddings", family_.if_absent.max_position_embeddings))
      refuse("has a sliding_window of {} positions, which ripstop reads of {} alone", window,
             "MistralForCausalLM");
    return nullptr;
  }

  // Writes the rotary parameters into json_, under the names of ModelConfig. transformers reads the object
  // rope_scaling if there is one, else rope_parameters. A rope_theta in that object replaces the rope_theta
  // of config.json.
  void take_rotary() {
    const Json outside = {{"rope_theta", number_or(json_, "rope_theta", ModelConfig{}.rope_theta)}};
    Json found;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const Json* const object = find(json_, key);
      if (object == nullptr) continue;
      if (!object->is_object()) refuse("has rotary parameters that are no object");
      if (object->empty()) continue;
      const Json rotary = rotary_of(*object, outside);
      for (const auto& [name, value] : rotary.items())
        if (!found.is_null() && found.value(name, Json()) != value)
          refuse("has two values of {}, {} by rope_scaling and {} by rope_parameters", name,
                 brief(found.value(name, Json())), brief(value));
      found = rotary;
    }
    if (found.is_null()) found = rotary_of(Json::object(), outside);
    for (const RotaryMember& member : kRotaryMembers) {
      json_.erase(member.field);
      if (found.contains(member.name)) json_[member.field] = found[member.name];
    }
  }

  // The members of `object` that its rope type needs. In older files the key of the rope type is "type".
  Json rotary_of(const Json& object, const Json& outside) const {
    for (const auto& [name, value] : object.items()) {
      if (value.is_object())
        refuse("has rotary parameters for '{}' alone; ripstop has one kind of layer", name);
      if (std::ranges::find(kRotaryMembers, name, &RotaryMember::name) == std::end(kRotaryMembers) &&
          name != "type" && name != "partial_rotary_factor" && !value.is_null())
        refuse("has the rotary parameter '{}', which ripstop does not know", name);
    }
    check_whole_heads(object);
    std::string type(to_string(RopeType::kDefault));
    for (const char* key : {"type", "rope_type"})
      if (find(object, key) != nullptr) type = text(object, key, kMostTextBytes);
    const std::optional<RopeType> rope = value_of<RopeType>(type);
    if (!rope)
      refuse("scales its rotary angles ('{}'); ripstop computes {}", type, fmt::join(kWords<RopeType>, ", "));
    if (rope == RopeType::kDefault && number_or(object, "factor", 1) != 1)
      refuse("scales its rotary angles by {}, without a type", number(object, "factor"));
    // transformers takes the number outside the object, else the one inside, else max_position_embeddings.
    constexpr const char* kOriginal = "original_max_position_embeddings";
    const Json* const other = find(json_, kOriginal);
    Json given = object;
    if (find(object, kOriginal) == nullptr)
      given[kOriginal] =
          other != nullptr
              ? *other
              : Json(size_or("max_position_embeddings", family_.if_absent.max_position_embeddings));
    Json found = outside;
    for (const RotaryMember& each : kRotaryMembers)
      if (rope >= each.needed_from &&
          (find(given, each.name) != nullptr || each.needed_from > RopeType::kDefault))
        found[each.name] = member(given, each.name);
    found["rope_type"] = type;
    if (rope == RopeType::kLlama3 && other != nullptr && *other != found[kOriginal])
      refuse("has two values of {}, {} and {}", kOriginal, brief(*other), brief(found[kOriginal]));
    return found;
  }

  void check_whole_heads(const Json& object) const {
    if (number_or(object, "partial_rotary_factor", 1) != 1)
      refuse("has a partial_rotary_factor; ripstop turns whole heads");
  }
  static std::string brief(const Json& value) { return begin_of(value.dump(), kMostTextBytes); }
  bool flag_or(const char* key, bool otherwise) const {
    return find(json_, key) == nullptr ? otherwise : flag(json_, key);
  }
  double number_or(const Json& object, const char* key, double otherwise) const {
    return find(object, key) == nullptr ? otherwise : number(object, key);
  }
  int64_t size_or(const char* key, int64_t otherwise) const {
    return find(json_, key) == nullptr ? otherwise : integer(json_, key, 1, kMostSize);
  }

  Json json_;
  const Family& family_;
};

bool describes(const Family& family, const ModelConfig& model) {
  // For LLaMA, transformers 5 refuses hidden sizes that the number of heads does not divide.
  const bool has_width =
      family.model_type != std::string_view("llama") || model.hidden_size % model.num_attention_heads == 0;
  return has_width && model.qk_norm == family.qk_norm && (model.sliding_window == 0 || family.has_window) &&
         (model.attention_bias == family.bias || model.attention_bias == family.bias_if_set);
}

const Family& family_of(const ModelConfig& model) {
  for (const Family& family : kFamilies)
    if (describes(family, model)) return family;
  std::string families;
  for (const Family& each : kFamilies)
    families +=
        fmt::format("{}{} with attention_bias {}{}{}{}", families.empty() ? "" : "; ", each.architecture,
                    to_string(each.bias),
                    each.bias == each.bias_if_set ? "" : fmt::format(" or {}", to_string(each.bias_if_set)),
                    each.qk_norm ? ", qk_norm" : "", each.has_window ? ", sliding_window" : "");
  throw Error(
      ExitCode::kUsage,
      fmt::format("no architecture of Hugging Face that ripstop writes has attention_bias {}, qk_norm {} "
                  "and sliding_window {} together, so the model could not be exported",
                  to_string(model.attention_bias), model.qk_norm, model.sliding_window),
      "there are " + families);
}

}  // namespace

ModelConfig parse_pretrained_config(std::string_view text, const std::string& name) {
  PretrainedReader reader(name, text);
  reader.check_computation();
  return reader.sizes();
}

ModelConfig read_pretrained_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  return parse_pretrained_config(read_plain_file(path, kMostBytes, ExitCode::kInputData), path.string());
}

std::string pretrained_architecture(const ModelConfig& model) {
  return family_of(model).architecture;
}

std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids) {
  const Family& family = family_of(model);
  FieldWriter fields;
  for_each_field(model, fields);
  Json rotary;
  for (const RotaryMember& member : kRotaryMembers) {
    if (model.rope_type >= member.needed_from) rotary[member.name] = fields.json[member.field];
    if (member.name != std::string_view(member.field)) fields.json.erase(member.field);
  }
  fields.json.erase("rope_type");
  fields.json.erase("qk_norm");
  // For transformers 5 rope_parameters and dtype, for 4 rope_theta, rope_scaling and torch_dtype.
  nlohmann::json sorted = fields.json;
  sorted.update({{"architectures", {family.architecture}},
                 {"attention_bias", model.attention_bias != AttentionBias::kNone},
                 {"attention_dropout", 0.0},
                 {"bos_token_id", FieldWriter::to_json(ids.bos)},
                 {"dtype", to_string(dtype)},
                 {"eos_token_id", eos_token_id_json(ids)},
                 {"head_dim", model.head_size()},
                 {"hidden_act", kActivation},
                 {"mlp_bias", false},
                 {"model_type", family.model_type},
                 {"pad_token_id", nullptr},
                 {"pretraining_tp", 1},
                 {"rope_parameters", rotary},
                 {"rope_scaling", nullptr},
                 {"sliding_window", nullptr},
                 {"torch_dtype", to_string(dtype)},
                 {"use_cache", true}});
  if (model.rope_type != RopeType::kDefault) {
    rotary.erase("rope_theta");
    sorted["rope_scaling"] = rotary;
  }
  if (model.sliding_window > 0) sorted["sliding_window"] = model.sliding_window;
  if (!(model.initializer_range > 0))
    sorted["initializer_range"] = 1 / std::sqrt(static_cast<double>(model.hidden_size));
  return text_of_json(Json(sorted), 2) + "\n";
}

}  // namespace ripstop
