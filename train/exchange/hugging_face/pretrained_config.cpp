#include "train/exchange/hugging_face/pretrained_model.h"

#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "data/files/whole_file.h"
#include "data/text/json_struct.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr int64_t kMostSize = int64_t{1} << 40;
constexpr size_t kMostTextBytes = 256;
constexpr const char *kArchitecture = "LlamaForCausalLM", *kModelType = "llama", *kActivation = "silu";

// Values of absent keys. A size that is 0 here must be in the file.
constexpr ModelConfig kLlamaConfigDefaults{
    .max_position_embeddings = 2048, .rms_norm_eps = 1e-6, .initializer_range = 0.02};

class PretrainedReader : public JsonReader {
 public:
  PretrainedReader(const std::string& name, std::string_view text)
      : JsonReader(name, ExitCode::kInputData), json_(parse(text)) {}

  void check_kind() const {
    if (find(json_, "architectures") != nullptr) {
      const Json& names = list(json_, "architectures", 1, 16);
      if (names[0] != kArchitecture && names[0] != "LLaMAForCausalLM")  // the name before transformers had it
        refuse("is of {}; ripstop reads {}", names[0].dump().substr(0, kMostTextBytes), kArchitecture);
    }
    if (const std::string type = text(json_, "model_type", kMostTextBytes); type != kModelType)
      refuse("has the model_type '{}'; ripstop reads '{}'", type, kModelType);
  }

  void check_computation() const {
    if (find(json_, "hidden_act") != nullptr)
      if (const std::string name = text(json_, "hidden_act", kMostTextBytes);
          name != kActivation && name != "swish")  // another name of silu
        refuse("has hidden_act '{}'; ripstop computes '{}'", name, kActivation);
    for (const char* key : {"attention_bias", "mlp_bias"})
      if (flag_or(key, false)) refuse("has {}; ripstop's matrices have no biases", key);
    if (find(json_, "quantization_config") != nullptr)
      refuse(
          "has quantization_config: quantized weights cannot be trained; use the model that they were made "
          "of");
    check_whole_heads(json_);
    if (find(json_, "sliding_window") != nullptr && flag_or("use_sliding_window", true))
      if (const int64_t window = integer(json_, "sliding_window", 0, kMostSize);
          window < size_or("max_position_embeddings", kLlamaConfigDefaults.max_position_embeddings))
        refuse("has a sliding_window of {} positions; ripstop's attention sees the whole document", window);
    for (const char* key : {"rope_scaling", "rope_parameters"})
      if (const Json* rotary = find(json_, key)) check_rotary(*rotary);
  }

  ModelConfig sizes() {
    if (find(json_, "num_key_value_heads") == nullptr)
      json_["num_key_value_heads"] = Json(member(json_, "num_attention_heads"));
    json_["rope_theta"] = rope_theta();

    ModelConfig model = kLlamaConfigDefaults;
    for_each_field(model, [&]<class T>(const char* name, T& value) {
      if constexpr (std::is_same_v<T, int64_t>)
        value = value == 0 ? integer(json_, name, 1, kMostSize) : size_or(name, value);
      else if constexpr (std::is_same_v<T, bool>)
        value = flag_or(name, value);
      else
        value = number_or(json_, name, value);
    });
    try {
      validate(model);
    } catch (const Error& error) {
      refuse("has an impossible model: {}", error.what());
    }
    if (const int64_t size = size_or("head_dim", model.head_size()); size != model.head_size())
      refuse("has a head_dim of {}; ripstop's heads have hidden_size / num_attention_heads = {}", size,
             model.head_size());
    return model;
  }

 private:
  // Every "rope_type" scales the angles, except "default", and "linear" with the factor 1. Older files call
  // the key "type".
  void check_rotary(const Json& rotary) const {
    if (!rotary.is_object()) refuse("has rotary parameters that are no object");
    for (const auto& [name, value] : rotary.items())
      if (value.is_object())
        refuse("has rotary parameters for '{}' alone; ripstop has one kind of layer", name);
    const double factor = number_or(rotary, "factor", 1);
    for (const char* key : {"rope_type", "type"})
      if (const std::string kind =
              find(rotary, key) == nullptr ? "default" : text(rotary, key, kMostTextBytes);
          kind != "default" && (kind != "linear" || find(rotary, "factor") == nullptr))
        refuse("scales its rotary angles ('{}'); ripstop does not", kind);
    if (factor != 1) refuse("scales its rotary angles by {}; ripstop does not", factor);
    check_whole_heads(rotary);
  }
  // transformers reads the object rope_scaling if there is one, else rope_parameters. A rope_theta in that
  // object replaces the rope_theta of config.json.
  double rope_theta() const {
    const double outside = number_or(json_, "rope_theta", kLlamaConfigDefaults.rope_theta);
    std::optional<double> found;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const Json* const rotary = find(json_, key);
      if (rotary == nullptr || rotary->empty()) continue;
      const double theta = number_or(*rotary, "rope_theta", outside);
      if (found && theta != *found)
        refuse("has two values of rope_theta, {} by rope_scaling and {} by rope_parameters", *found, theta);
      found = theta;
    }
    return found.value_or(outside);
  }
  void check_whole_heads(const Json& object) const {
    if (number_or(object, "partial_rotary_factor", 1) != 1)
      refuse("has a partial_rotary_factor; ripstop turns whole heads");
  }
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
};

}  // namespace

ModelConfig parse_pretrained_config(std::string_view text, const std::string& name) {
  PretrainedReader reader(name, text);
  reader.check_kind();
  reader.check_computation();
  return reader.sizes();
}

ModelConfig read_pretrained_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  return parse_pretrained_config(read_plain_file(path, kMostBytes, ExitCode::kInputData), path.string());
}

std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids) {
  // transformers 5 reads rope_parameters and dtype, transformers 4 reads rope_theta and torch_dtype.
  nlohmann::json sorted = {{"architectures", {kArchitecture}},
                           {"attention_bias", false},
                           {"attention_dropout", 0.0},
                           {"bos_token_id", FieldWriter::to_json(ids.bos)},
                           {"dtype", to_string(dtype)},
                           {"eos_token_id", FieldWriter::to_json(ids.eos)},
                           {"head_dim", model.head_size()},
                           {"hidden_act", kActivation},
                           {"mlp_bias", false},
                           {"model_type", kModelType},
                           {"pad_token_id", nullptr},
                           {"pretraining_tp", 1},
                           {"rope_parameters", {{"rope_theta", model.rope_theta}, {"rope_type", "default"}}},
                           {"rope_scaling", nullptr},
                           {"torch_dtype", to_string(dtype)},
                           {"use_cache", true}};
  for_each_field(model, [&](const char* name, const auto& value) { sorted[name] = value; });
  if (!(model.initializer_range > 0))
    sorted["initializer_range"] = 1 / std::sqrt(static_cast<double>(model.hidden_size));
  return text_of_json(Json(sorted), 2) + "\n";
}

}  // namespace ripstop
