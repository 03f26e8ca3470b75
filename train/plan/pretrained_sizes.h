// The sizes of the model that model.pretrained names.
#pragma once
#include <filesystem>

#include "data/files/io.h"
#include "model/config.h"
#include "train/config/run_config.h"

namespace ripstop {

/// The model from which a run with model.pretrained takes its sizes.
struct PretrainedOrigin {
  /// The newest whole checkpoint of the run if the run has begun, else the model that model.pretrained names:
  /// a directory of Hugging Face, a checkpoint, or the best checkpoint of a run.
  std::filesystem::path directory;
  bool has_begun = false;  ///< `directory` is a checkpoint of the run itself
};

/// Finds the origin for a config with model.pretrained. Reads only directories and manifests.
/// Throws Error(kUsage), with the path to type instead, if the run has not begun and there is no such
/// directory.
/// Throws Error(kStorage) if there is none and the run has only checkpoints that cannot be read.
/// Throws as find_stored_model.
PretrainedOrigin find_pretrained_origin(Io& io, const RunConfig& config);

/// The sizes of the model in `directory`, from its config.json or its manifest. Throws as
/// read_pretrained_config and read_manifest.
ModelConfig read_model_sizes(Io& io, const std::filesystem::path& directory);

/// The sizes of the model of a config with model.pretrained. If the run has not begun, also checks, as train
/// does, that the adapters of lora.adapter fit the model and [lora]. Throws as find_pretrained_origin,
/// read_model_sizes and open_first_adapters.
ModelConfig read_sizes_for_plan(Io& io, const RunConfig& config);

}  // namespace ripstop
