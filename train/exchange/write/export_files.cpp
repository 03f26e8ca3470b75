#include "train/exchange/write/export_files.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

Json id_or_null(int32_t id) {
  return id < 0 ? Json(nullptr) : Json(id);
}

std::string json_text(const auto& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids) {
  const double deviation = model.initializer_range > 0
                               ? model.initializer_range
                               : 1 / std::sqrt(static_cast<double>(model.hidden_size));
  // transformers 5 reads rope_parameters and dtype, 4 reads rope_theta and torch_dtype. The keys are sorted.
  nlohmann::json json = {{"architectures", {"LlamaForCausalLM"}},
                         {"attention_bias", false},
                         {"attention_dropout", 0.0},
                         {"bos_token_id", id_or_null(ids.bos)},
                         {"dtype", to_string(dtype)},
                         {"eos_token_id", id_or_null(ids.eos)},
                         {"head_dim", model.head_size()},
                         {"hidden_act", "silu"},
                         {"mlp_bias", false},
                         {"model_type", "llama"},
                         {"pad_token_id", nullptr},
                         {"pretraining_tp", 1},
                         {"rope_parameters", {{"rope_theta", model.rope_theta}, {"rope_type", "default"}}},
                         {"rope_scaling", nullptr},
                         {"torch_dtype", to_string(dtype)},
                         {"use_cache", true}};
  for_each_field(model, [&](const char* name, const auto& value) { json[name] = value; });
  json["initializer_range"] = deviation;
  return json_text(json);
}

namespace {

Json early_stopping_of(EarlyStopping rule) {
  if (rule == EarlyStopping::kNever) return "never";
  return rule == EarlyStopping::kTrue;
}

}  // namespace

std::string generation_config_json(const GenerationSection& generation, const SpecialIds& ids) {
  Json json = {
      {"bos_token_id", id_or_null(ids.bos)}, {"eos_token_id", id_or_null(ids.eos)},
      {"pad_token_id", id_or_null(ids.eos)}, {"max_new_tokens", generation.max_new_tokens},
      {"num_beams", generation.num_beams},   {"no_repeat_ngram_size", generation.no_repeat_ngram_size}};
  // transformers warns of settings that change nothing.
  if (generation.min_new_tokens > 0) json["min_new_tokens"] = generation.min_new_tokens;
  if (generation.num_beams > 1) {
    json["length_penalty"] = generation.length_penalty;
    json["early_stopping"] = early_stopping_of(generation.early_stopping);
  }
  if (generation.do_sample) {
    json["do_sample"] = true;
    json["temperature"] = generation.temperature;
    json["top_k"] = generation.top_k;  // 0 is off there, too; absent would be 50
    json["top_p"] = generation.top_p;
  }
  return json_text(json);
}

}  // namespace ripstop
