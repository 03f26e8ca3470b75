// Files of an export beside its weights: the tokenizer for transformers, the model card for people.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "model/lora.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/read/open_model.h"

namespace ripstop {

/// The files of a tokenizer.
struct TokenizerFiles {
  SpecialIds ids = {};
  std::vector<std::pair<std::string, std::string>> texts = {};  ///< name and bytes
  /// Which texts get other ids from AutoTokenizer than from Tokenizer::encode; empty if none is known.
  std::string difference = {};
  bool has_json = false;  ///< tokenizer.json is among them: AutoTokenizer says where in a text a token lies

  bool is_there() const { return !texts.empty(); }
};

/// tokenizer.model, tokenizer_config.json, special_tokens_map.json, and tokenizer.json, which transformers
/// prefers: LlamaTokenizer of transformers 5 makes other ids of leading spaces and of runs of them if it has
/// the .model alone. The marks of BOS, EOS and unk in a text are text, as they are for ripstop. Without
/// tokenizer.json, and with a difference, if the model has pieces of its user's or spaces at the ends of
/// words. `longest`: positions of the model. Sources: https://github.com/huggingface/tokenizers (the JSON
/// form of Tokenizer); https://github.com/google/sentencepiece (bpe_model.cc: the order of merges).
TokenizerFiles tokenizer_files(const Tokenizer& tokenizer, int64_t longest);

/// Adapters, and the model that they were trained beside.
struct ExportedAdapters {
  LoraConfig lora;
  std::string base;  ///< base_model_name_or_path: the model's directory, or empty
  /// How to make a model of Hugging Face of it, for people; empty if it is one, or not known.
  std::string base_export = {};
};

/// The facts of a model card. References are borrowed.
struct ModelCard {
  const TrainedModel& trained;  ///< a checkpoint
  ExportDType dtype = ExportDType::kFloat32;
  const ExportedAdapters* adapters = nullptr;  ///< the directory has these, for PEFT; null: a whole model
  const TokenizerFiles& tokenizer;
  std::string prompt_template;  ///< empty if it is not known, and of running text
  std::string written_by;       ///< version and commit of this program
};

/// README.md: what the model is, how to load and to prompt it, where it comes from, and the scores in
/// RUN/evaluation/*/scores.json, as far as they can be read. A model that was imported and not trained (step
/// 0) is called so, and not said to write summaries. The card of adapters says how to load them beside their
/// base.
std::string model_card(const ModelCard& card);

}  // namespace ripstop
