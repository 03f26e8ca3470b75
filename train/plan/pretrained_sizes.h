#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"
#include "model/config.h"
#include "train/config/run_config.h"
#include "train/plan/run_target.h"

namespace ripstop {

/// The checkpoint with which run.continue_from begins a new run; the newest one if the key names a run. Empty
/// without the key, or if run.directory has checkpoints of its own. Throws Error(kUsage) if the key names no
/// checkpoint, Error(kStorage) if the checkpoint is damaged or superseded.
std::filesystem::path find_continued(Io& io, const RunConfig& config);

/// The model from which a run with model.pretrained takes its sizes.
struct PretrainedOrigin {
  /// The newest whole checkpoint of the run if the run has begun, else find_continued(), else the model that
  /// model.pretrained names.
  std::filesystem::path directory;
  bool has_begun = false;  ///< `directory` is a checkpoint of this run, or find_continued()
};

/// The origin for a config with model.pretrained. Reads only directories and manifests. If the model does not
/// exist, throws Error(kUsage), with a hint, for a run without checkpoints, and Error(kStorage) for a run
/// that has checkpoints, but no whole one. Also throws like find_stored_model and find_continued.
PretrainedOrigin find_pretrained_origin(Io& io, const RunConfig& config);

/// The sizes from config.json or the manifest. Throws like read_pretrained_config and read_manifest.
ModelConfig read_model_sizes(Io& io, const std::filesystem::path& directory);

/// The ids that end texts of the model in `directory`, ascending: read_end_tokens(), or those in the config
/// of a checkpoint; none if this version cannot read it. Throws like read_end_tokens and read_manifest.
std::vector<int32_t> read_model_ends(Io& io, const std::filesystem::path& directory);

/// A note if the texts of a run end at `ends`, the end tokens of its pretrained model, and `ends` lacks the
/// EOS of `tokenizer`, at which the data set's summaries end; else "".
std::string end_tokens_note(const RunConfig& config, const std::vector<int32_t>& ends,
                            const Tokenizer& tokenizer);

/// Reads sizes and end tokens of model.pretrained into `target`; nothing without that key. If the run has not
/// begun, also checks that the adapters of lora.adapter fit the model and [lora]. Throws like
/// find_pretrained_origin, read_model_sizes, read_model_ends and open_first_adapters.
void read_pretrained_for_plan(const RunConfig& config, RunTarget& target);

}  // namespace ripstop
