#include "train/exchange/export_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/whole_file.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json id_or_null(int32_t id) {
  return id < 0 ? Json(nullptr) : Json(id);
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// A string literal of Python, which has all escapes of JSON's strings.
std::string python_text(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string number_text(const Json& object, const char* key, const char* member = nullptr) {
  if (!object.contains(key)) return "-";
  const Json& value = object[key];
  if (member != nullptr) return value.is_object() ? number_text(value, member) : "-";
  return value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : "-";
}

KnownScores scores_of(const Json& document, const std::string& name) {
  return {.name = name,
          .step = document.at("step").get<int64_t>(),
          .examples = document.at("examples").get<int64_t>(),
          .split = document.at("split").get<std::string>(),
          .loss = number_text(document, "loss"),
          .perplexity = number_text(document, "perplexity"),
          .rouge1 = number_text(document, "rouge1", "fmeasure"),
          .rouge2 = number_text(document, "rouge2", "fmeasure"),
          .rougeL = number_text(document, "rougeL", "fmeasure")};
}

std::string loading_text(const ModelCard& card) {
  std::string text = "## Use\n\n```python\n";
  text += card.has_tokenizer ? "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
                             : "from transformers import AutoModelForCausalLM\n\n";
  text += "directory = \".\"  # where this file lies\n";
  text += fmt::format("model = AutoModelForCausalLM.from_pretrained(directory, dtype=\"{}\")\n",
                      to_string(card.dtype));
  if (!card.has_tokenizer) return text + "```\n\nThe tokenizer is not here: the run had none.\n";
  text += "tokenizer = AutoTokenizer.from_pretrained(directory)\n\n";
  if (card.is_running_text || card.prompt_template.empty()) {
    text += "prompt = \"The\"\n";
  } else {
    text += "document = \"The text to summarize.\"\n";
    text +=
        fmt::format("prompt = {}.replace(\"{{document}}\", document)\n", python_text(card.prompt_template));
  }
  text +=
      "inputs = tokenizer(prompt, return_tensors=\"pt\")\n"
      "output = model.generate(**inputs)\n"
      "print(tokenizer.decode(output[0, inputs.input_ids.shape[1]:], skip_special_tokens=True).strip())\n"
      "```\n";
  return text;
}

std::string prompt_text(const ModelCard& card) {
  if (card.prompt_template.empty() || card.is_running_text) return "";
  return fmt::format(
      "\nThe prompt, in which `{{document}}` stands for the document, is\n\n```json\n{}\n```\n\n"
      "The summary follows after a space and ends with the end-of-sequence token. A document that is too "
      "long "
      "loses its end: prompt and summary\ntogether had at most {} tokens in training.\n",
      python_text(card.prompt_template), card.config->data.sequence_length);
}

std::string tokenizer_text(const ModelCard& card) {
  if (!card.has_tokenizer) return "";
  if (card.tokenizer_difference.empty())
    return "\n`AutoTokenizer` makes the same ids of a text as the tokenizer of the training did. Marks of "
           "special tokens in a text, such as `</s>`,\nare text (`split_special_tokens`).\n";
  return fmt::format("\nThe ids of `AutoTokenizer` may differ from those of the training: {}.\n",
                     card.tokenizer_difference);
}

std::string training_text(const ModelCard& card) {
  const CheckpointState& state = *card.state;
  const ModelConfig& model = state.model;
  std::string text = "\n## Training\n\n| | |\n|---|---|\n";
  const auto row = [&](const char* what, const std::string& value) {
    if (!value.empty()) text += fmt::format("| {} | {} |\n", what, value);
  };
  row("model",
      fmt::format("{} parameters: {} layers, hidden size {}, feed-forward {}, {} heads ({} key-value), "
                  "vocabulary {}",
                  parameter_count(model), model.num_hidden_layers, model.hidden_size, model.intermediate_size,
                  model.num_attention_heads, model.num_key_value_heads, model.vocab_size));
  if (!card.config->model.pretrained.empty()) row("weights before step 1", card.config->model.pretrained);
  row("steps", fmt::format("{} ({} updates)", state.step, state.updates));
  row("tokens", std::to_string(state.tokens));
  row("mesh", card.mesh.to_text());
  row("compute", std::string(to_string(card.config->precision.compute)));
  row("stored as", std::string(to_string(card.dtype)));
  row("learning rate",
      fmt::format("{}, {}", card.config->optimizer.learning_rate, to_string(card.config->schedule.kind)));
  row("sequence length", std::to_string(card.config->data.sequence_length));
  row("data set (XXH3-128 of its content)", state.data_content_hash);
  row("tokenizer (SHA-256)", state.tokenizer_sha256);
  if (state.best)
    row("best validation",
        fmt::format("{} {:.6g} at step {}", state.best->metric, state.best->value, state.best->step));
  row("exported by", card.written_by);
  return text;
}

std::string scores_text(const ModelCard& card) {
  if (card.scores.empty()) return "";
  std::string text =
      "\n## Evaluation\n\n| evaluation | step | split | examples | loss | perplexity | ROUGE-1 | ROUGE-2 | "
      "ROUGE-L |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (const KnownScores& s : card.scores)
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", s.name, s.step, s.split,
                        s.examples, s.loss, s.perplexity, s.rouge1, s.rouge2, s.rougeL);
  if (std::ranges::any_of(card.scores, [&](const KnownScores& s) { return s.step != card.state->step; }))
    text += fmt::format("\nThese weights are those of step {}.\n", card.state->step);
  return text;
}

}  // namespace

std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids) {
  const double deviation = model.initializer_range > 0
                               ? model.initializer_range
                               : 1 / std::sqrt(static_cast<double>(model.hidden_size));
  // transformers 5 reads rope_parameters and dtype, 4 reads rope_theta and torch_dtype.
  return json_text({{"architectures", {"LlamaForCausalLM"}},
                    {"attention_bias", false},
                    {"attention_dropout", 0.0},
                    {"bos_token_id", id_or_null(ids.bos)},
                    {"dtype", to_string(dtype)},
                    {"eos_token_id", id_or_null(ids.eos)},
                    {"head_dim", model.head_size()},
                    {"hidden_act", "silu"},
                    {"hidden_size", model.hidden_size},
                    {"initializer_range", deviation},
                    {"intermediate_size", model.intermediate_size},
                    {"max_position_embeddings", model.max_position_embeddings},
                    {"mlp_bias", false},
                    {"model_type", "llama"},
                    {"num_attention_heads", model.num_attention_heads},
                    {"num_hidden_layers", model.num_hidden_layers},
                    {"num_key_value_heads", model.num_key_value_heads},
                    {"pad_token_id", nullptr},
                    {"pretraining_tp", 1},
                    {"rms_norm_eps", model.rms_norm_eps},
                    {"rope_parameters", {{"rope_theta", model.rope_theta}, {"rope_type", "default"}}},
                    {"rope_scaling", nullptr},
                    {"rope_theta", model.rope_theta},
                    {"tie_word_embeddings", model.tie_word_embeddings},
                    {"torch_dtype", to_string(dtype)},
                    {"use_cache", true},
                    {"vocab_size", model.vocab_size}});
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

std::vector<KnownScores> known_scores(const fs::path& run) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  std::vector<KnownScores> found;
  std::error_code error;
  for (fs::directory_iterator at(run / "evaluation", error), end; !error && at != end; at.increment(error)) {
    try {
      const std::string text = read_plain_file(at->path() / "scores.json", kMostBytes, ExitCode::kInputData);
      found.push_back(scores_of(Json::parse(text), at->path().filename().string()));
    } catch (const Error&) {
      continue;  // an evaluation that is not done has none
    } catch (const Json::exception&) {
      continue;
    }
  }
  std::ranges::sort(found, {}, &KnownScores::name);
  return found;
}

std::string model_card(const ModelCard& card) {
  std::string text = fmt::format(
      "---\nlibrary_name: transformers\npipeline_tag: {}\ntags:\n- llama\n- ripstop\n---\n\n# {}\n\n",
      card.is_running_text ? "text-generation" : "summarization", card.title);
  text += fmt::format("A LLaMA-2-style transformer{}, trained with ripstop; the checkpoint of step {}.\n\n",
                      card.is_running_text ? "" : " that writes summaries", card.state->step);
  text += loading_text(card);
  text += prompt_text(card);
  text += tokenizer_text(card);
  text += training_text(card);
  text += scores_text(card);
  return text;
}

}  // namespace ripstop
