// From a run's directory to a model that works: which checkpoint, which mesh, the weights.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "parallel/device_mesh.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"
#include "train/generate/inference_model.h"

namespace ripstop {

/// A checkpoint that was found, and the run it belongs to. Nothing of the weights is read yet.
struct TrainedModel {
  Checkpoint checkpoint;
  std::filesystem::path run;  ///< holds tokenizer.model and checkpoints/
  RunConfig config;           ///< that the run was trained with
};

/// Finds the checkpoint that `path` (a run or a checkpoint) and `which` ("best", "latest" or a step) mean.
/// `overrides` ("generation.key=value") are stronger than the config that the run was trained with. Collective:
/// rank 0 looks, all ranks get the same. Throws Error(kUsage) or Error(kStorage).
TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which, std::span<const std::string> overrides = {});

/// The device that this rank works on: as the run was trained where that can be had here, else what can.
/// Collective.
Device inference_device(MpiWorld& world, const TrainedModel& trained);

/// InferenceOptions::of the trained model, in its precision (float32 where the device has no bfloat16).
InferenceOptions inference_options(const TrainedModel& trained, const Device& device, int64_t slots,
                                   int64_t max_new_tokens);

/// The mesh replicate x 1 x the smallest tensor whose ranks fit into the memory of their nodes. Collective.
/// Throws Error(kResources), with the numbers, where none does, and where ranks run different builds, on
/// processors of different kinds.
MeshSizes inference_mesh(MpiWorld& world, const ModelConfig& config, const InferenceOptions& options,
                         const Device& device);

/// A trained model that works, on all ranks: mesh, memory and weights.
class LoadedModel {
 public:
  /// Collective. `world` outlives it. Throws Error(kResources) where the model does not fit, Error(kStorage)
  /// for a damaged checkpoint.
  LoadedModel(Io& io, MpiWorld& world, const TrainedModel& trained, const InferenceOptions& options,
              const Device& device);

  DeviceMesh& mesh() { return mesh_; }
  InferenceModel& model() { return model_; }
  const MemoryLedger& memory() const { return ledger_; }

 private:
  DeviceMesh mesh_;
  Stream stream_;
  MemoryLedger ledger_;
  InferenceModel model_;
};

}  // namespace ripstop
