// The small files of an export: what transformers reads beside the weights, and what people read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "train/checkpoint/manifest.h"
#include "train/config/run_config.h"
#include "train/exchange/export_layout.h"

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
  bool is_running_text = false;      ///< trained on texts without summaries
  std::string prompt_template;       ///< empty if it is not known
  std::string tokenizer_difference;  ///< TokenizerFiles::difference
  bool has_tokenizer = true;
  std::vector<KnownScores> scores;
  std::string written_by;  ///< version and commit of this program
};

/// README.md: what the model is, how to load and to prompt it, and where it comes from.
std::string model_card(const ModelCard& card);

}  // namespace ripstop
