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

inline constexpr const char* kSamePretrainedHint = "make the same model.pretrained visible on every node";

/// A config, the decisions on it (ResolvedRun), and their inputs.
struct DecidedRun : ResolvedRun {
  RunConfig config;                       ///< with the pretrained model's end tokens, if it had none
  Tokenizer tokenizer;                    ///< the first data set's
  std::vector<TokenDataset> datasets;     ///< the training sets
  std::vector<ValidationSet> validation;  ///< one for each data set
  Device device;
  RunTarget target;
  std::optional<PretrainedOrigin> pretrained;
  std::filesystem::path continued;  ///< rank 0's find_continued(); empty: none
  LibraryMemory library_memory;
  std::unique_ptr<DeviceMesh> ranks;

  std::filesystem::path directory() const { return config.run.directory; }
  std::filesystem::path metrics_file() const { return directory() / "metrics.jsonl"; }
  std::filesystem::path checkpoints() const { return directory() / "checkpoints"; }
  std::string host() const { return ranks->hosts()[static_cast<size_t>(ranks->position())]; }
};

/// Opens the data sets, chooses the device, resolves `config`, and makes the mesh. `world` must outlive the
/// result. Throws Error: kUsage for the config, kInputData for data set or pretrained model, kResources for
/// mesh, memory, or ranks that decide differently, kStorage for a damaged checkpoint. Collective.
DecidedRun decide_run(const RunConfig& config, MpiWorld& world, StartTimes& times);

}  // namespace ripstop
