#include "train/report/model_text.h"

#include <fmt/format.h>

#include "data/text/json_struct.h"

namespace ripstop {

std::string model_text(const ModelConfig& model) {
  std::string text = fmt::format(
      "{} layers, hidden {}, feed-forward {}, {} heads ({} key-value), {} pieces{}", model.num_hidden_layers,
      model.hidden_size, model.intermediate_size, model.num_attention_heads, model.num_key_value_heads,
      model.vocab_size, model.tie_word_embeddings ? ", tied" : "");
  FieldWriter has, plain;
  for_each_field(model, has);
  for_each_field(ModelConfig{}, plain);
  bool is_part = false;
  for (const auto& [name, value] : has.json.items()) {
    is_part |= name == "head_dim";  // the fields before it are sizes and constants that every model has
    const bool differs =
        name == "head_dim" ? model.query_size() != model.hidden_size : value != plain.json[name];
    if (is_part && differs)
      text += fmt::format(", {} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace ripstop
