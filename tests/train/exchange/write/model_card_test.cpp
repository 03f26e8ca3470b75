#include "train/exchange/write/export_files.h"

#include <gtest/gtest.h>

#include "tests/data/scratch_directory.h"
#include "tests/expect_has.h"
#include "tests/train/exchange/exported_model.h"

namespace ripstop {
namespace {

TrainedModel card_subject(CheckpointState state, const std::filesystem::path& run,
                          const ModelConfig& model = exported_model()) {
  state.model = model;
  Manifest manifest;
  manifest.state = std::move(state);
  return {StoredModel(Checkpoint{run / "checkpoints/step", std::move(manifest)}), run, {}};
}

TEST(ModelCard, SaysWhatTheModelIs) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "evaluation/step_00000007-test/scores.json",
              R"({"step": 7, "split": "test", "examples": 5, "loss": 2.5, "perplexity": 12.1825,)"
              R"( "rouge1": {"fmeasure": 0.25}, "rouge2": {"fmeasure": 0.125}, "rougeL": null})");
  write_bytes(scratch / "evaluation/step_00000008-test/scores.json", "{");
  write_bytes(scratch / "evaluation/step_00000008-deep/scores.json",
              R"({"step": 8, "split": "test", "examples": 5, "loss": )" + deep_list() + "}");
  std::filesystem::create_directories(scratch / "evaluation/step_00000009-test");
  CheckpointState state;
  state.step = 9;
  state.tokens = 123456;
  state.data_content_hash = "0123456789abcdef";
  state.best = BestSoFar{"loss", 2.25, 9};
  TrainedModel trained = card_subject(state, scratch.path());
  trained.config.data.sequence_length = 96;
  ExportedTokenizer tokenizer{.texts = {{kSentencePieceFile, ""}}, .has_json = true};
  ModelCard card{.trained = trained,
                 .tokenizer = tokenizer,
                 .prompt_template = "Read \"this\":\n{document}\n\nTL;DR:",
                 .written_by = "ripstop 9.9"};
  const std::string text = model_card(card);
  EXPECT_TRUE(
      text.starts_with("---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n"
                       "- llama\n- summarization\n- ripstop\n---\n"))
      << text;
  EXPECT_HAS(text, R"(before, separator = "Read \"this\":\n", "\n\nTL;DR:"  # around the document)");
  EXPECT_HAS(text, "context = 96  # tokens of prompt and summary together, at most");
  EXPECT_HAS(text, "ripstop summarize . --input");
  EXPECT_HAS(text, "| data set (XXH3-128 of its content) | 0123456789abcdef |");
  EXPECT_HAS(text, "| best validation | loss 2.25 at step 9 |");
  EXPECT_EQ(text.find("| step_00000008"), std::string::npos) << "cannot be read";
  EXPECT_HAS(text, "| step_00000007-test | 7 | test | 5 | 2.5000 | 12.1825 | 0.2500 | 0.1250 | - |");
  EXPECT_HAS(text, "These weights are those of step 9.");
  EXPECT_HAS(text, "ripstop 9.9");
  // Without tokenizer.json nobody says which tokens are the document's.
  tokenizer.has_json = false;
  EXPECT_HAS(model_card(card),
             R"(prompt = "Read \"this\":\n{document}\n\nTL;DR:".replace("{document}", "The text)");
  EXPECT_EQ(model_card(card).find("offset_mapping"), std::string::npos);
  card.prompt_template.clear();
  card.facts = {.license = "apache-2.0", .language = "en"};
  EXPECT_HAS(
      model_card(card),
      "pipeline_tag: text-generation\nlicense: apache-2.0\nlanguage:\n- en\ntags:\n- llama\n- ripstop\n");
  card.facts.language = "no";
  EXPECT_HAS(model_card(card), "\n- 'no'\n");
  tokenizer.difference = "it has user-defined pieces";
  EXPECT_HAS(model_card(card), "may differ from those of the training: it has user-defined pieces");
  tokenizer.texts.clear();
  EXPECT_HAS(model_card(card), "The tokenizer is not here");
}

// The prompt has the text of the chat template: the tokenizer must add nothing.
TEST(ModelCard, ShowsTheWholePromptOfAChatTemplate) {
  const ScratchDirectory scratch;
  CheckpointState state;
  state.step = 9;
  const TrainedModel trained = card_subject(state, scratch.path());
  const ExportedTokenizer tokenizer{.texts = {{kTokenizerJsonFile, ""}}, .has_json = true};
  const std::string text = model_card({.trained = trained,
                                       .tokenizer = tokenizer,
                                       .prompt_template = "<|user|>\n{document}<|end|>\n<|assistant|>\n",
                                       .chat_template = "zephyr",
                                       .written_by = "ripstop 9.9"});
  EXPECT_HAS(text, R"(before, separator = "<|user|>\n", "<|end|>\n<|assistant|>\n")");
  EXPECT_HAS(text, "return_offsets_mapping=True, add_special_tokens=False)");
  EXPECT_HAS(text, "It is a user's turn by the chat template zephyr; the summary is the assistant's.");
  EXPECT_EQ(text.find("follows after a space"), std::string::npos);
}

TEST(ModelCard, NamesTheArchitectureAndItsParts) {
  const auto card = [](AttentionBias bias) {
    ModelConfig model = exported_model();
    model.attention_bias = bias;
    const TrainedModel trained = card_subject({}, "runs/a", model);
    return model_card({.trained = trained, .tokenizer = {}, .prompt_template = "", .written_by = ""});
  };
  EXPECT_HAS(card(AttentionBias::kNone), "\n| model | LlamaForCausalLM, ");
  EXPECT_HAS(card(AttentionBias::kNone),
             ": 3 layers, hidden 64, feed-forward 172, 8 heads (2 key-value), 503 pieces, tied |\n");
  EXPECT_HAS(card(AttentionBias::kNone), "\n- llama\n");
  EXPECT_HAS(card(AttentionBias::kQkv), "\n| model | Qwen2ForCausalLM, ");
  EXPECT_HAS(card(AttentionBias::kQkv), ", 503 pieces, tied, attention_bias qkv |\n");
  EXPECT_EQ(card(AttentionBias::kQkv).find("\n- llama\n"), std::string::npos);
}

// A hub links adapters to their base by its name there.
TEST(ModelCard, AdaptersNameTheirBase) {
  const TrainedModel trained = card_subject({}, "runs/a");
  ExportedAdapters adapters{.lora = {.rank = 1, .alpha = 2}, .base = "/models/tiny"};
  const ModelCard card{
      .trained = trained, .adapters = &adapters, .tokenizer = {}, .prompt_template = "", .written_by = ""};
  EXPECT_HAS(model_card(card),
             "library_name: peft\npipeline_tag: text-generation\nbase_model: \"/models/tiny\"\n");
  adapters.base = "/hub/models--acme--tiny-1b/snapshots/0a1b";
  EXPECT_HAS(model_card(card), "\nbase_model: \"acme/tiny-1b\"\n");
  adapters.base = "";
  EXPECT_EQ(model_card(card).find("base_model:"), std::string::npos);
}

// Nobody must think that ripstop made these weights.
TEST(ModelCard, AnImportIsNotCalledTrained) {
  CheckpointState state;
  state.tokenizer_sha256 = "abcdef";
  TrainedModel trained = card_subject(state, "imported");
  trained.config.model.pretrained = "models/tinyllama-1.1b";
  const std::string text = model_card({.trained = trained,
                                       .tokenizer = {},
                                       .prompt_template = "{document}\n\nTL;DR:",
                                       .written_by = "ripstop 9.9"});
  EXPECT_HAS(text, "not trained by it: the weights are those of `models/tinyllama-1.1b`");
  EXPECT_HAS(text, "pipeline_tag: text-generation");
  EXPECT_HAS(text, "\n# imported\n");
  EXPECT_HAS(text, "| training by ripstop | none |");
  for (const char* untrue :
       {"trained with ripstop", "## Training", "| steps |", "learning rate", "summarize"})
    EXPECT_EQ(text.find(untrue), std::string::npos) << untrue;
}

}  // namespace
}  // namespace ripstop
