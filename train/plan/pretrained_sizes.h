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

/// The checkpoint with which run.continue_from begins a new run: if it names a run, the newest one. Empty
/// without that key, and if run.directory has checkpoints of its own. Throws Error(kUsage) if it names no
/// checkpoint, Error(kStorage) if the checkpoint is damaged or superseded.
std::filesystem::path find_continued(Io& io, const RunConfig& config);

/// The model from which a run with model.pretrained takes its sizes.
struct PretrainedOrigin {
  /// The newest whole checkpoint of the run if the run has begun, else find_continued(), else the model that
  /// model.pretrained names.
  std::filesystem::path directory;
  bool has_begun = false;  ///< `directory` is a checkpoint of the run itself, or the one that it continues
};

/// The origin for a config with model.pretrained. Reads only directories and manifests. Throws Error(kUsage),
/// with the path to type instead, if the run has not begun and the directory does not exist; Error(kStorage)
/// if it does not exist and the run has only unreadable checkpoints; and the errors of find_stored_model and
/// find_continued.
PretrainedOrigin find_pretrained_origin(Io& io, const RunConfig& config);

/// The sizes from config.json or the manifest. Throws like read_pretrained_config and read_manifest.
ModelConfig read_model_sizes(Io& io, const std::filesystem::path& directory);

/// The ids that end texts of the model in `directory`, ascending, from its files (read_end_tokens) or from a
/// checkpoint's config. Throws like read_end_tokens, read_manifest and parse_run_config.
std::vector<int32_t> read_model_ends(Io& io, const std::filesystem::path& directory);

/// A note if a run's texts end at `ends`, the end tokens of its pretrained model, and these lack the EOS of
/// `tokenizer`, which ends the data set's summaries; else "".
std::string end_tokens_note(const RunConfig& config, const std::vector<int32_t>& ends,
                            const Tokenizer& tokenizer);

/// Reads sizes and end tokens of model.pretrained into `target`; nothing without that key. If the run has not
/// begun, also checks that the adapters of lora.adapter fit the model and [lora]. Throws like
/// find_pretrained_origin, read_model_sizes, read_model_ends and open_first_adapters.
void read_pretrained_for_plan(const RunConfig& config, RunTarget& target);

}  // namespace ripstop
