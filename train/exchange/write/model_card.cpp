#include "train/exchange/write/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/dataset/prompt_template.h"
#include "data/files/whole_file.h"
#include "model/config.h"
#include "train/exchange/peft/peft_config.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

int64_t context_of(const ModelCard& card) {
  return std::min(card.config->data.sequence_length, card.state->model.max_position_embeddings);
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

bool is_imported(const ModelCard& card) {
  return card.state->step == 0;
}

bool writes_summaries(const ModelCard& card) {
  return !card.is_running_text && !is_imported(card) && !card.prompt_template.empty();
}

// For generating_text.
bool needs_torch(const ModelCard& card) {
  return writes_summaries(card) && card.has_tokenizer && card.has_tokenizer_json;
}

// Python that makes a prompt as ripstop makes it.
std::string prompt_function(const ModelCard& card) {
  const TemplateParts parts = parse_template(card.prompt_template);
  return fmt::format(
      "before, separator = {}, {}  # around the document\n"
      "context = {}  # tokens of prompt and summary together, at most\n\n\n"
      "def prompt_ids(document):\n"
      "    \"\"\"A document that is too long loses its last tokens, as in training.\"\"\"\n"
      "    encoded = tokenizer(before + document + separator, return_offsets_mapping=True)\n"
      "    ids, places = encoded[\"input_ids\"], encoded[\"offset_mapping\"]\n"
      "    surplus = max(0, len(ids) + model.generation_config.max_new_tokens - context)\n"
      "    # The first token that reaches past the document: what follows stays.\n"
      "    end = next(i for i, place in enumerate(places) if place[1] > len(before) + len(document))\n"
      "    assert surplus < end, \"max_new_tokens leaves no room for the prompt\"\n"
      "    return ids[:end - surplus] + ids[end:]\n\n\n",
      python_text(parts.before), python_text(parts.separator), context_of(card));
}

std::string generating_text(const ModelCard& card) {
  if (needs_torch(card))
    return prompt_function(card) +
           "inputs = torch.tensor([prompt_ids(\"The text to summarize.\")])\n"
           "output = model.generate(inputs, attention_mask=torch.ones_like(inputs))\n"
           "print(tokenizer.decode(output[0, inputs.shape[1]:], skip_special_tokens=True).strip())\n";
  const std::string prompt = writes_summaries(card)
                                 ? fmt::format("{}.replace(\"{{document}}\", \"The text to summarize.\")",
                                               python_text(card.prompt_template))
                                 : "\"The\"";
  return "prompt = " + prompt +
         "\n"
         "inputs = tokenizer(prompt, return_tensors=\"pt\")\n"
         "output = model.generate(**inputs)\n"
         "print(tokenizer.decode(output[0, inputs.input_ids.shape[1]:], skip_special_tokens=True).strip())\n";
}

// What training held of the frozen weights, as far as is known.
std::string frozen_dtype(const ModelCard& card) {
  const auto& adapted = card.state->adapted;
  return adapted && !adapted->dtype.empty() ? adapted->dtype
                                            : std::string(to_string(card.config->precision.compute));
}

// Of adapters, whose model lies elsewhere.
std::string adapters_loading_text(const ModelCard& card) {
  const std::string base_text =
      card.base_export.empty()
          ? ""
          : fmt::format(
                "`{}` is a checkpoint of ripstop, which peft does not read. Export it first:\n\n"
                "```\n{}\n```\n\n",
                card.base, card.base_export);
  return fmt::format(
             "## Use\n\n{}```python\n{}"
             "from peft import PeftModel\n"
             "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
             "base = {}  # the model that the adapters were trained beside\n"
             "model = AutoModelForCausalLM.from_pretrained(base, dtype=\"{}\")\n"
             "model = PeftModel.from_pretrained(model, \".\")  # where this file lies\n"
             "model.generation_config.max_new_tokens = {}\n"
             "tokenizer = AutoTokenizer.from_pretrained({})\n\n",
             base_text, needs_torch(card) ? "import torch\n" : "",
             python_text(card.base_export.empty() ? card.base : kBaseExport), frozen_dtype(card),
             card.config->generation.max_new_tokens, card.has_tokenizer ? "\".\"" : "base") +
         generating_text(card) + "```\n\n" +
         "`model.merge_and_unload()` adds the adapters to the weights of the base.\n";
}

std::string loading_text(const ModelCard& card) {
  if (card.adapters != nullptr) return adapters_loading_text(card);
  std::string text = "## Use\n\n```python\n";
  if (needs_torch(card)) text += "import torch\n";
  text += card.has_tokenizer ? "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
                             : "from transformers import AutoModelForCausalLM\n\n";
  text += "directory = \".\"  # where this file lies\n";
  text += fmt::format("model = AutoModelForCausalLM.from_pretrained(directory, dtype=\"{}\")\n",
                      to_string(card.dtype));
  if (!card.has_tokenizer) return text + "```\n\nThe tokenizer is not here: the run had none.\n";
  text += "tokenizer = AutoTokenizer.from_pretrained(directory)\n\n";
  text += generating_text(card) + "```\n";
  if (writes_summaries(card))
    text +=
        "\nThe same without Python, for a file of `{\"document\": \"...\"}` lines:\n\n```\n"
        "ripstop summarize . --input articles.jsonl --output summaries.jsonl\n```\n";
  return text;
}

std::string prompt_text(const ModelCard& card) {
  if (!writes_summaries(card)) return "";
  return fmt::format(
      "\nThe prompt, in which `{{document}}` stands for the document, is\n\n```json\n{}\n```\n\n"
      "The summary follows after a space and ends with the end-of-sequence token. Prompt and summary "
      "together "
      "had at most {} tokens in\ntraining. A document that is too long loses its last tokens, as many as "
      "needed; the text around it stays whole.\n",
      python_text(card.prompt_template), context_of(card));
}

std::string tokenizer_text(const ModelCard& card) {
  if (!card.has_tokenizer) return "";
  if (card.tokenizer_difference.empty())
    return "\n`AutoTokenizer` makes the same ids of a text as ripstop does with `tokenizer.model`. Marks of "
           "special "
           "tokens in a text, such as\n`</s>`, are text (`split_special_tokens`).\n";
  return fmt::format("\nThe ids of `AutoTokenizer` may differ from those of the training: {}.\n",
                     card.tokenizer_difference);
}

std::string table_row(const char* what, const std::string& value) {
  return value.empty() ? "" : fmt::format("| {} | {} |\n", what, value);
}

std::string size_row(const ModelConfig& model) {
  return table_row(
      "model",
      fmt::format("{} parameters: {} layers, hidden size {}, feed-forward {}, {} heads ({} key-value), "
                  "vocabulary {}",
                  parameter_count(model), model.num_hidden_layers, model.hidden_size, model.intermediate_size,
                  model.num_attention_heads, model.num_key_value_heads, model.vocab_size));
}

// Of a model that ripstop has only passed on.
std::string origin_text(const ModelCard& card) {
  return "\n## Origin\n\n| | |\n|---|---|\n" + size_row(card.state->model) +
         table_row("weights of", card.config->model.pretrained) + table_row("training by ripstop", "none") +
         table_row("stored as", std::string(to_string(card.dtype))) +
         table_row("tokenizer (SHA-256)", card.state->tokenizer_sha256) +
         table_row("exported by", card.written_by);
}

std::string training_text(const ModelCard& card) {
  if (is_imported(card)) return origin_text(card);
  const CheckpointState& state = *card.state;
  std::string text = "\n## Training\n\n| | |\n|---|---|\n" + size_row(state.model);
  const auto row = [&](const char* what, const std::string& value) { text += table_row(what, value); };
  const bool has_base = card.adapters != nullptr || state.adapted;
  row(has_base ? "frozen weights" : "weights before step 1", card.config->model.pretrained);
  if (card.adapters != nullptr)
    row("adapters", adapters_text(*card.adapters));
  else if (state.adapted)
    row("adapters (LoRA), merged", adapters_text(state.adapted->lora));
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
  std::string text =
      fmt::format("---\nlibrary_name: {}\npipeline_tag: {}\ntags:\n- llama\n{}- ripstop\n---\n\n# {}\n\n",
                  card.adapters != nullptr ? "peft" : "transformers",
                  writes_summaries(card) ? "summarization" : "text-generation",
                  card.adapters != nullptr ? "- lora\n" : "", card.title);
  if (is_imported(card))
    text += fmt::format(
        "A LLaMA-2-style transformer, stored by ripstop and not trained by it: the weights are those of "
        "`{}`, as "
        "they were imported.\n\n",
        card.config->model.pretrained);
  else
    text +=
        fmt::format("{} LLaMA-2-style transformer{}, trained with ripstop; the checkpoint of step {}.\n\n",
                    card.adapters != nullptr ? "LoRA adapters of a" : "A",
                    writes_summaries(card) ? " that writes summaries" : "", card.state->step);
  text += loading_text(card);
  text += prompt_text(card);
  text += tokenizer_text(card);
  text += training_text(card);
  text += scores_text(card);
  return text;
}

}  // namespace ripstop
