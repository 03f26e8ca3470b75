// README.md of an export: what the model is, for people.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/lora.h"
#include "train/checkpoint/manifest.h"
#include "train/config/run_config.h"
#include "train/exchange/write/export_layout.h"

namespace ripstop {

/// What RUN/evaluation says of one split.
struct KnownScores {
  std::string name;  ///< of its directory: "step_00001000-test"
  int64_t step = 0, examples = 0;
  std::string split;
  std::string loss, perplexity, rouge1, rouge2, rougeL;  ///< as text; "-" if it was not measured
};

/// The scores in `run`/evaluation/*/scores.json, by name. What cannot be read is left out.
std::vector<KnownScores> known_scores(const std::filesystem::path& run);

/// What a model card tells.
struct ModelCard {
  std::string title;  ///< name of the run
  const CheckpointState* state = nullptr;
  MeshSizes mesh;
  const RunConfig* config = nullptr;
  ExportDType dtype = ExportDType::kFloat32;
  const LoraConfig* adapters = nullptr;  ///< the directory has these adapters, for PEFT; null: a whole model
  std::string base;                      ///< of adapters: the directory of their model; empty if not known
  std::string base_export = {};          ///< ExportedAdapters::base_export
  bool is_running_text = false;          ///< trained on texts without summaries
  std::string prompt_template;           ///< empty if it is not known
  std::string tokenizer_difference;      ///< TokenizerFiles::difference
  bool has_tokenizer = true;
  bool has_tokenizer_json = true;  ///< AutoTokenizer says where in a text a token lies
  std::vector<KnownScores> scores;
  std::string written_by;  ///< version and commit of this program
};

/// README.md: what the model is, how to load and to prompt it, and where it comes from. A model that was
/// imported and not trained (step 0) is called so, and not said to write summaries. That of adapters says how
/// to load them beside their base.
std::string model_card(const ModelCard& card);

}  // namespace ripstop
