// The files of an export beside its weights, which transformers, peft and people read.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "model/config.h"
#include "model/lora.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/read/open_model.h"

namespace ripstop {

/// Ids of special tokens; -1 if no tokenizer says them.
struct SpecialIds {
  int32_t bos = -1, eos = -1;
};

/// config.json of a LlamaForCausalLM, for transformers 4 and 5. parse_pretrained_config reads back an equal
/// ModelConfig, but for an initializer_range of 0, which transformers does not know: it gets its value.
std::string pretrained_config_json(const ModelConfig& model, ExportDType dtype, const SpecialIds& ids);

/// generation_config.json. Padding is EOS: the model was never trained on another token for it.
std::string generation_config_json(const GenerationSection& generation, const SpecialIds& ids);

/// The files of a tokenizer; none of a default one.
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
