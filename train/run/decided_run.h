// DecidedRun: the inputs and decisions of a run, which the ranks compare before any of them allocates memory.
#pragma once
#include <memory>
#include <optional>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "parallel/device_mesh.h"
#include "train/config/run_config.h"
#include "train/plan/pretrained_sizes.h"
#include "train/plan/resolved_run.h"
#include "train/run/library_memory.h"
#include "train/run/start_times.h"
#include "train/run/validation.h"

namespace ripstop {

/// The hint of the error for a model.pretrained that differs between nodes.
inline constexpr const char* kSamePretrainedHint = "make the same model.pretrained visible on every node";

/// The config with every "auto" decided, and all inputs of the decisions. Never changes.
struct DecidedRun : ResolvedRun {
  RunConfig config;
  Tokenizer tokenizer;
  TokenDataset dataset;  ///< the training set
  ValidationSet validation;
  Device device;
  RunTarget target;
  std::optional<PretrainedOrigin> pretrained;  ///< set if model.pretrained is given
  LibraryMemory library_memory;
  std::unique_ptr<DeviceMesh> ranks;  ///< the ranks as a mesh

  std::filesystem::path directory() const { return config.run.directory; }
  std::filesystem::path metrics_file() const { return directory() / "metrics.jsonl"; }
  std::filesystem::path checkpoints() const { return directory() / "checkpoints"; }
  std::string host() const { return ranks->hosts()[static_cast<size_t>(ranks->position())]; }
};

/// Reads the data sets, chooses the device, resolves `config`, makes the mesh, and refuses ranks that differ.
/// `world` must outlive the result. Throws Error: kUsage for the config, kInputData for the data set,
/// kResources for mesh or memory. Collective.
DecidedRun decide_run(const RunConfig& config, MpiWorld& world, StartTimes& times);

}  // namespace ripstop
