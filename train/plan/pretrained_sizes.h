// The sizes of the model that model.pretrained names.
#pragma once
#include <filesystem>

#include "data/files/io.h"
#include "model/config.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Where a run with model.pretrained has its sizes from.
struct PretrainedOrigin {
  /// The newest whole checkpoint of the run if it has begun, else the model that model.pretrained names: a
  /// directory of Hugging Face, or a checkpoint (the best one of a run).
  std::filesystem::path directory;
  /// The run goes on from a checkpoint of its own, and needs the pretrained model no more.
  bool has_begun = false;
};

/// Finds it for a config whose model.pretrained is not empty. Looks at directories and manifests only. Throws
/// Error(kUsage), with what to type instead, if the run has not begun and there is no such model; as
/// find_stored_model.
PretrainedOrigin find_pretrained_origin(Io& io, const RunConfig& config);

/// The sizes of the model in `directory`, from its config.json or its manifest. Throws as
/// read_pretrained_config and read_manifest.
ModelConfig read_model_sizes(Io& io, const std::filesystem::path& directory);

/// The sizes of the model of a config whose model.pretrained is not empty. If the run has not
/// begun, also checks the adapters that lora.adapter names, as train does: throws if they are missing or do
/// not fit the model and [lora]. Throws as find_pretrained_origin, read_model_sizes and open_first_adapters.
ModelConfig read_sizes_for_plan(Io& io, const RunConfig& config);

}  // namespace ripstop
