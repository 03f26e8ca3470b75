#include "train/exchange/write/export_files.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <optional>
#include <system_error>

#include "data/dataset/prompt_template.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

bool is_imported(const ModelCard& card) {
  return card.trained.state().step == 0;
}

bool writes_summaries(const ModelCard& card) {
  return !is_imported(card) && !card.prompt_template.empty();
}

bool needs_torch(const ModelCard& card) {
  return writes_summaries(card) && card.tokenizer.has_json;
}

// Python code that makes the prompt of ripstop. Python understands the escapes of text_of_json().
std::string prompt_function(const ModelCard& card) {
  const bool in_chat = !card.chat_template.empty();
  const TemplateParts parts = parse_template(card.prompt_template, in_chat);
  return fmt::format(
      "before, separator = {}, {}  # around the document\n"
      "context = {}  # tokens of prompt and summary together, at most\n\n\n"
      "def prompt_ids(document):\n"
      "    \"\"\"A document that is too long loses its last tokens, as in training.\"\"\"\n"
      "{}"
      "    encoded = tokenizer(before + document + separator, return_offsets_mapping=True{})\n"
      "    ids, places = encoded[\"input_ids\"], encoded[\"offset_mapping\"]\n"
      "    surplus = max(0, len(ids) + model.generation_config.max_new_tokens - context)\n"
      "    # The first token that reaches past the document: what follows stays.\n"
      "    end = next(i for i, place in enumerate(places) if place[1] > len(before) + len(document))\n"
      "    assert surplus < end, \"max_new_tokens leaves no room for the prompt\"\n"
      "    return ids[:end - surplus] + ids[end:]\n\n\n",
      text_of_json(parts.before), text_of_json(parts.separator), card.trained.context(),
      card.document == "document" ? "" : fmt::format("    document = {}\n", card.document),
      in_chat ? ", add_special_tokens=False" : "");
}

std::string generating_text(const ModelCard& card) {
  if (needs_torch(card))
    return prompt_function(card) +
           "inputs = torch.tensor([prompt_ids(\"The text to summarize.\")])\n"
           "output = model.generate(inputs, attention_mask=torch.ones_like(inputs))\n"
           "print(tokenizer.decode(output[0, inputs.shape[1]:], skip_special_tokens=True).strip())\n";
  const bool asks = !card.question.empty() && card.asked_by.empty();
  const std::string text = asks ? card.question : writes_summaries(card) ? card.prompt_template : "The";
  std::string around;
  if (asks || writes_summaries(card))
    around =
        fmt::format(".replace(\"{{document}}\", \"{}\")", asks ? "Who are you?" : "The text to summarize.");
  return fmt::format("prompt = {}{}\n", text_of_json(text), around) +
         fmt::format("inputs = tokenizer(prompt, return_tensors=\"pt\"{})\n",
                     asks ? ", add_special_tokens=False" : "") +
         "output = model.generate(**inputs)\n"
         "print(tokenizer.decode(output[0, inputs.input_ids.shape[1]:], skip_special_tokens=True).strip())\n";
}

// Python code that reads the tokenizer in `directory`, a Python expression.
std::string tokenizer_line(const ModelCard& card, const char* directory) {
  const PythonTokenizer& python = card.tokenizer.python;
  return fmt::format("tokenizer = {}.from_pretrained({}{})\n\n", python.class_name, directory,
                     python.options);
}

std::string adapters_loading_text(const ModelCard& card) {
  const auto& [lora, base, base_export] = *card.adapters;
  const std::optional<AdaptedBase>& adapted = card.trained.state().adapted;
  // The type of the frozen weights in training, if known; else the type of the computation.
  const std::string dtype = adapted && !adapted->dtype.empty()
                                ? adapted->dtype
                                : std::string(to_string(card.trained.config.precision.compute));
  std::string text = "## Use\n\n";
  if (!base_export.empty())
    text += fmt::format(
        "`{}` is a checkpoint of ripstop, which peft does not read. Export it first:\n\n```\n{}\n```\n\n",
        base, base_export);
  return text +
         fmt::format(
             "```python\n{}"
             "from peft import PeftModel\n"
             "from transformers import AutoModelForCausalLM, {}\n\n"
             "base = {}  # the model that the adapters were trained beside\n"
             "model = AutoModelForCausalLM.from_pretrained(base, dtype=\"{}\")\n"
             "model = PeftModel.from_pretrained(model, \".\")  # where this file lies\n"
             "model.generation_config.max_new_tokens = {}\n",
             needs_torch(card) ? "import torch\n" : "", card.tokenizer.python.class_name,
             text_of_json(base_export.empty() ? base : kBaseExport), dtype,
             card.trained.config.generation.max_new_tokens) +
         tokenizer_line(card, card.tokenizer.is_there() ? "\".\"" : "base") + generating_text(card) +
         "```\n\n`model.merge_and_unload()` adds the adapters to the weights of the base.\n";
}

std::string loading_text(const ModelCard& card) {
  if (card.adapters != nullptr) return adapters_loading_text(card);
  std::string text = fmt::format(
      "## Use\n\n```python\n{}"
      "from transformers import AutoModelForCausalLM{}\n\n"
      "directory = \".\"  # where this file lies\n"
      "model = AutoModelForCausalLM.from_pretrained(directory, dtype=\"{}\")\n",
      needs_torch(card) ? "import torch\n" : "",
      card.tokenizer.is_there() ? fmt::format(", {}", card.tokenizer.python.class_name) : "",
      to_string(card.dtype));
  if (!card.tokenizer.is_there()) return text + "```\n\nThe tokenizer is not here: the run had none.\n";
  text += tokenizer_line(card, "directory") + generating_text(card) + "```\n";
  if (writes_summaries(card))
    text +=
        "\nThe same without Python, for a file of `{\"document\": \"...\"}` lines:\n\n```\n"
        "ripstop summarize . --input articles.jsonl --output summaries.jsonl\n```\n";
  if (card.dtype != ExportDType::kFloat32)
    text +=
        "\nIn 16 bits transformers and ripstop round differently, so texts may differ; in float32 they are "
        "equal.\n";
  return text;
}

std::string prompt_text(const ModelCard& card) {
  if (!writes_summaries(card)) return "";
  const std::string chat = fmt::format(
      "It is a user's turn by the chat template {}; the summary is the assistant's.", card.chat_template);
  return fmt::format(
      "\nThe prompt, in which `{{document}}` stands for the document, is\n\n```json\n{}\n```\n\n"
      "{} Prompt and summary "
      "together had at most {} tokens in\ntraining. A document that is too long loses its last tokens, as "
      "many as "
      "needed; the text around it stays whole.\n",
      text_of_json(card.prompt_template),
      card.chat_template.empty()
          ? "The summary follows after a space and ends with the end-of-sequence token."
          : chat,
      card.trained.context());
}

// The section on conversations, for a model whose documents have another prompt.
std::string questions_text(const ModelCard& card) {
  if (card.asked_by.empty()) return "";
  return fmt::format(
      "\nIt was also trained on conversations, by the chat template {0}, which chat_template.jinja has. A "
      "user's turn with\n`{{document}}` is asked so:\n\n```json\n{1}\n```\n\n```python\n"
      "tokenizer = {2}.from_pretrained(\".\", split_special_tokens=False)\n"
      "turns = [{{\"role\": \"user\", \"content\": \"Who are you?\"}}]\n"
      "inputs = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors=\"pt\", "
      "return_dict=True)\n```\n",
      card.asked_by, text_of_json(card.question), card.tokenizer.python.class_name);
}

std::string tokenizer_text(const ModelCard& card) {
  if (!card.tokenizer.is_there()) return "";
  if (card.tokenizer.is_carried_json)
    return fmt::format(
        "\nThe Python above makes the ids of the training. `AutoTokenizer` may make others{}{}, and "
        "transformers 5 builds some\nclasses of tokenizers anew, without all that tokenizer.json says.\n",
        card.tokenizer.difference.empty() ? "" : ": ", card.tokenizer.difference);
  if (card.tokenizer.difference.empty())
    return fmt::format(
        "\n`AutoTokenizer` makes the same ids of a text as ripstop does with `{}`. Marks of "
        "special tokens in a text, such as\n`</s>`, are {}.\n",
        card.tokenizer.texts.front().first,
        card.tokenizer.splits_special ? "text (`split_special_tokens`)" : "these tokens");
  return fmt::format("\nThe ids of `AutoTokenizer` may differ from those of the training: {}.\n",
                     card.tokenizer.difference);
}

std::string training_text(const ModelCard& card) {
  const CheckpointState& state = card.trained.state();
  const ModelConfig& model = state.model;
  const RunConfig& config = card.trained.config;
  const bool imported = is_imported(card);
  std::string text = fmt::format("\n## {}\n\n| | |\n|---|---|\n", imported ? "Origin" : "Training");
  const auto row = [&](const char* what, const std::string& value) {
    if (!value.empty()) text += fmt::format("| {} | {} |\n", what, value);
  };
  row("model", fmt::format("{}, {} parameters: {}", pretrained_architecture(model), parameter_count(model),
                           model_text(model)));
  const bool has_base = card.adapters != nullptr || state.adapted;
  row(imported   ? "weights of"
      : has_base ? "frozen weights"
                 : "weights before step 1",
      config.model.pretrained);
  if (imported) {
    row("training by ripstop", "none");
  } else {
    if (card.adapters != nullptr)
      row("adapters", adapters_text(card.adapters->lora));
    else if (state.adapted)
      row("adapters (LoRA), merged", adapters_text(state.adapted->lora));
    row("steps", fmt::format("{} ({} updates)", state.step, state.updates));
    row("tokens", std::to_string(state.tokens));
    row("mesh", card.trained.stored.checkpoint()->manifest.mesh.to_text());
    row("compute", std::string(to_string(config.precision.compute)));
  }
  row("stored as", std::string(to_string(card.dtype)));
  if (!imported) {
    row("learning rate",
        fmt::format("{}, {}", config.optimizer.learning_rate, to_string(config.schedule.kind)));
    row("sequence length", std::to_string(config.data.sequence_length));
    row("chat template", card.chat_template);
    row("chat template of conversations", card.asked_by);
    row("data set (XXH3-128 of its content)", state.data_content_hash);
  }
  row("tokenizer (SHA-256)", state.tokenizer_sha256);
  if (!imported && state.best)
    row("best validation",
        fmt::format("{} {:.6g} at step {}", state.best->metric, state.best->value, state.best->step));
  row("exported by", card.written_by);
  return text;
}

// A row of a table of scores, with "-" for a score that was not measured.
struct KnownScores {
  int64_t step = 0;
  std::string row;
};

KnownScores scores_of(const Json& document, const std::string& name) {
  const auto number = [](const Json& value) {
    return value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : "-";
  };
  KnownScores scores{document.at("step").get<int64_t>(), {}};
  scores.row = fmt::format("| {} | {} | {} | {} |", name, scores.step,
                           document.at("split").get<std::string>(), document.at("examples").get<int64_t>());
  for (const char* key : {"loss", "perplexity"})
    scores.row += fmt::format(" {} |", number(document.value(key, Json())));
  for (const char* key : {"rouge1", "rouge2", "rougeL"}) {
    const Json rouge = document.value(key, Json());
    scores.row += fmt::format(" {} |", rouge.is_object() ? number(rouge.value("fmeasure", Json())) : "-");
  }
  return scores;
}

// The scores in `run`/evaluation/*/scores.json by directory name. Skips files that cannot be read.
std::map<std::string, KnownScores> known_scores(const fs::path& run) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  std::map<std::string, KnownScores> found;
  std::error_code error;
  for (fs::directory_iterator at(run / "evaluation", error), end; !error && at != end; at.increment(error)) {
    try {
      const std::string text = read_plain_file(at->path() / "scores.json", kMostBytes, ExitCode::kInputData);
      const std::string name = at->path().filename().string();
      found.emplace(name, scores_of(JsonReader(name, ExitCode::kInputData).parse(text), name));
    } catch (const std::exception&) {
      continue;  // an unfinished evaluation has no scores.json
    }
  }
  return found;
}

std::string scores_text(const ModelCard& card) {
  const std::map<std::string, KnownScores> all = known_scores(card.trained.run);
  if (all.empty()) return "";
  std::string text =
      "\n## Evaluation\n\n| evaluation | step | split | examples | loss | perplexity | ROUGE-1 | ROUGE-2 | "
      "ROUGE-L |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  const int64_t step = card.trained.state().step;
  bool has_other_steps = false;
  for (const auto& [name, scores] : all) {
    text += scores.row + "\n";
    has_other_steps |= scores.step != step;
  }
  return text + (has_other_steps ? fmt::format("\nThese weights are those of step {}.\n", step) : "");
}

// "acme/tiny" for /cache/models--acme--tiny/snapshots/HASH, a model in the cache of the hub; else `base`.
std::string hub_name(const std::string& base) {
  for (const fs::path& part : fs::path(base))
    if (std::string name = part.string(); name.starts_with("models--"))
      return name.find("--", 8) == std::string::npos ? name.substr(8)
                                                     : name.replace(name.find("--", 8), 2, "/").substr(8);
  return base;
}

// The YAML by which a hub finds and groups models. Source: https://huggingface.co/docs/hub/model-cards
std::string front_matter(const ModelCard& card) {
  const bool is_peft = card.adapters != nullptr;
  std::string text = fmt::format("---\nlibrary_name: {}\npipeline_tag: text-generation\n",
                                 is_peft ? "peft" : "transformers");
  if (is_peft && !card.adapters->base.empty())
    text += fmt::format("base_model: {}\n", text_of_json(hub_name(card.adapters->base)));
  if (!card.facts.license.empty()) text += fmt::format("license: {}\n", card.facts.license);
  // YAML reads a plain `no`, the code of Norwegian, as false.
  if (!card.facts.language.empty())
    text += fmt::format("language:\n- {}\n", card.facts.language == "no" ? "'no'" : card.facts.language);
  const bool is_llama = pretrained_architecture(card.trained.state().model) == "LlamaForCausalLM";
  return text + fmt::format("tags:\n{}{}{}- ripstop\n---\n\n", is_llama ? "- llama\n" : "",
                            is_peft ? "- lora\n" : "", writes_summaries(card) ? "- summarization\n" : "");
}

}  // namespace

std::string model_card(const ModelCard& card) {
  std::string text =
      front_matter(card) + fmt::format("# {}\n\n", normal_path(card.trained.run).filename().string());
  if (is_imported(card))
    text += fmt::format(
        "A LLaMA-style transformer, stored by ripstop and not trained by it: the weights are those of "
        "`{}`, as they were imported.\n\n",
        card.trained.config.model.pretrained);
  else
    text += fmt::format("{} LLaMA-style transformer{}, trained with ripstop; the checkpoint of step {}.\n\n",
                        card.adapters != nullptr ? "LoRA adapters of a" : "A",
                        writes_summaries(card) ? " that writes summaries" : "", card.trained.state().step);
  return text + loading_text(card) + prompt_text(card) + questions_text(card) + tokenizer_text(card) +
         training_text(card) + scores_text(card);
}

}  // namespace ripstop
