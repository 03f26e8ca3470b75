#include "train/exchange/hugging_face/pretrained_model.h"

#include <string>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr int64_t kMostSize = int64_t{1} << 40;
constexpr size_t kMostTextBytes = 256;

// Every error says in which model people find the key.
class PretrainedReader : public JsonReader {
 public:
  PretrainedReader(const std::string& name, std::string_view text)
      : JsonReader(name, ExitCode::kInputData), json_(parse(text)) {}

  void check_kind() const;
  void check_computation() const;
  void check_rotary(const Json& rotary) const;
  double rope_theta() const;
  ModelConfig sizes() const;

 private:
  // What is absent or null has the default of LlamaConfig.
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

void PretrainedReader::check_kind() const {
  if (find(json_, "architectures") != nullptr) {
    const Json& names = list(json_, "architectures", 1, 16);
    if (!names[0].is_string() || names[0].get<std::string>() != "LlamaForCausalLM")
      refuse("is of {}; ripstop reads LlamaForCausalLM", names[0].dump().substr(0, kMostTextBytes));
  }
  if (const std::string type = text(json_, "model_type", kMostTextBytes); type != "llama")
    refuse("has the model_type '{}'; ripstop reads 'llama'", type);
}

void PretrainedReader::check_computation() const {
  if (find(json_, "hidden_act") != nullptr && text(json_, "hidden_act", kMostTextBytes) != "silu")
    refuse("has hidden_act '{}'; ripstop computes 'silu'", text(json_, "hidden_act", kMostTextBytes));
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (flag_or(key, false)) refuse("has {}; ripstop's matrices have no biases", key);
  if (find(json_, "quantization_config") != nullptr)
    refuse(
        "has quantization_config: quantized weights cannot be trained; use the model that they were made of");
  if (number_or(json_, "partial_rotary_factor", 1) != 1)
    refuse("has a partial_rotary_factor; ripstop turns whole heads");
  if (find(json_, "sliding_window") != nullptr && flag_or("use_sliding_window", true) &&
      integer(json_, "sliding_window", 0, kMostSize) < size_or("max_position_embeddings", 2048))
    refuse("has a sliding_window of {} positions; ripstop's attention sees the whole document",
           integer(json_, "sliding_window", 0, kMostSize));
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const Json* rotary = find(json_, key)) check_rotary(*rotary);
}

// {"rope_type": "default"} is none; older files say "type".
void PretrainedReader::check_rotary(const Json& rotary) const {
  if (!rotary.is_object()) refuse("has rotary parameters that are no object");
  for (const char* key : {"rope_type", "type"})
    if (find(rotary, key) != nullptr && text(rotary, key, kMostTextBytes) != "default")
      refuse("scales its rotary angles ('{}'); ripstop does not", text(rotary, key, kMostTextBytes));
  if (number_or(rotary, "factor", 1) != 1) refuse("scales its rotary angles; ripstop does not");
  if (number_or(rotary, "partial_rotary_factor", 1) != 1)
    refuse("has a partial_rotary_factor; ripstop turns whole heads");
}

double PretrainedReader::rope_theta() const {
  const Json* parameters = find(json_, "rope_parameters");
  const double outside = number_or(json_, "rope_theta", 10000.0);
  return parameters == nullptr ? outside : number_or(*parameters, "rope_theta", outside);
}

ModelConfig PretrainedReader::sizes() const {
  ModelConfig model;
  model.hidden_size = integer(json_, "hidden_size", 1, kMostSize);
  model.intermediate_size = integer(json_, "intermediate_size", 1, kMostSize);
  model.num_hidden_layers = integer(json_, "num_hidden_layers", 1, kMostSize);
  model.num_attention_heads = integer(json_, "num_attention_heads", 1, kMostSize);
  model.num_key_value_heads = size_or("num_key_value_heads", model.num_attention_heads);
  model.vocab_size = integer(json_, "vocab_size", 1, kMostSize);
  model.max_position_embeddings = size_or("max_position_embeddings", 2048);
  model.rms_norm_eps = number_or(json_, "rms_norm_eps", 1e-6);
  model.rope_theta = rope_theta();
  model.tie_word_embeddings = flag_or("tie_word_embeddings", false);
  model.initializer_range = number_or(json_, "initializer_range", 0.02);
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

}  // namespace

ModelConfig parse_pretrained_config(std::string_view text, const std::string& name) {
  const PretrainedReader reader(name, text);
  reader.check_kind();
  reader.check_computation();
  return reader.sizes();
}

ModelConfig read_pretrained_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  return parse_pretrained_config(read_whole_file(path, kMostBytes, ExitCode::kInputData), path.string());
}

}  // namespace ripstop
