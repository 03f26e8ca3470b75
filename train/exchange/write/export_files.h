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

/// The class of transformers that loads an exported tokenizer.
struct PythonTokenizer {
  const char* class_name = "AutoTokenizer";
  const char* options = "";  ///< arguments of from_pretrained after the directory
};

/// The tokenizer of an export.
struct ExportedTokenizer {
  SpecialIds ids = {};
  std::vector<std::pair<std::string, std::string>> texts = {};  ///< name and bytes
  /// A note for people on texts to which AutoTokenizer and Tokenizer::encode give different ids; empty if
  /// no such text is known.
  std::string difference = {};
  /// Whether `texts` has tokenizer.json, with which AutoTokenizer can map tokens to places in the text.
  bool has_json = false;
  bool is_carried_json = false;  ///< tokenizer.json is the run's own
  /// Whether names of special tokens in a text stay text; split_special_tokens in transformers.
  bool splits_special = true;
  PythonTokenizer python = {};

  bool is_there() const { return !texts.empty(); }
};

/// For a tokenizer.json: its files, byte for byte, and a tokenizer_config.json if it has none. For a
/// tokenizer.model: tokenizer.model, kTokenizerChoiceFile, tokenizer_config.json, special_tokens_map.json and
/// tokenizer.json; ripstop reads the first two. From the .model alone, LlamaTokenizer of transformers 5 gives
/// other ids to leading spaces and runs of spaces, hence tokenizer.json. With BPE, "<s>", "</s>" and "<unk>"
/// in a text stay text, as in ripstop. If tokenizer.json cannot describe the tokenizer, it is left out, and
/// `difference` says why. `longest`: the model's number of positions. Sources:
/// https://github.com/huggingface/tokenizers (the JSON form of Tokenizer);
/// https://github.com/google/sentencepiece (bpe_model.cc: the order of merges).
ExportedTokenizer exported_tokenizer(const Tokenizer& tokenizer, int64_t longest);

struct ExportedAdapters {
  LoraConfig lora;
  std::string base;  ///< base_model_name_or_path: the base's directory, or empty
  /// The command that exports the base; empty unless the base is known to be a checkpoint.
  std::string base_export = {};
};

/// Facts for the model card that only the model's owner knows; "": not given.
struct CardFacts {
  std::string license;   ///< "apache-2.0", as a hub names it
  std::string language;  ///< "en"
};

/// The facts of a model card. References are borrowed.
struct ModelCard {
  const TrainedModel& trained;  ///< the exported checkpoint
  ExportDType dtype = ExportDType::kFloat32;
  /// If set, the export has only these adapters.
  const ExportedAdapters* adapters = nullptr;
  const ExportedTokenizer& tokenizer;
  std::string prompt_template;     ///< empty if unknown, or if the training was not on summaries
  std::string chat_template = {};  ///< name of the prompt's chat template; "" if none
  std::string question = {};       ///< the prompt of a user's turn {document}, for a model of conversations
  /// The name of the chat template of `question` if `prompt_template` is another prompt, else empty.
  std::string asked_by = {};
  std::string document = "document";  ///< Python expression of the document as the chat template inserts it
  std::string written_by;             ///< version and commit of this program
  CardFacts facts = {};
};

/// The text of README.md: what the model is, how to load and prompt it, its origin, and the readable scores
/// in RUN/evaluation/*/scores.json. A model of step 0 is called an import that ripstop has not trained. For
/// adapters, the text says how to load them on their base.
std::string model_card(const ModelCard& card);

}  // namespace ripstop
