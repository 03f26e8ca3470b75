// From a directory to a loaded model: which checkpoint, which mesh, the weights.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "parallel/device_mesh.h"
#include "train/config/run_config.h"
#include "train/exchange/read/stored_model.h"
#include "train/generate/inference_model.h"

namespace ripstop {

/// A model in files and the run that it belongs to. No weights are read yet.
struct TrainedModel {
  StoredModel stored;
  std::filesystem::path run;  ///< holds tokenizer.model; Hugging Face's directory if it is a model of theirs
  RunConfig config;           ///< the config of the training

  const CheckpointState& state() const { return stored.state(); }
};

/// Finds the model that `path` (a run, a checkpoint or a model of Hugging Face) and `which` name, as
/// find_stored_model() does. `overrides` ("generation.key=value") are stronger than the config of the
/// training. `base`: of a checkpoint of adapters. Rank 0 looks, and all ranks get the same. Collective.
/// Throws as find_stored_model and open_stored_model.
TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which, const BaseChoice& base = {},
                                std::span<const std::string> overrides = {});

/// InferenceOptions::of the trained model, in the precision of its training; in float32 if the device has no
/// fast bfloat16.
InferenceOptions inference_options(const TrainedModel& trained, const Device& device, int64_t slots,
                                   const GenerationSettings& settings);

/// The mesh replicate x 1 x tensor with the smallest tensor axis whose ranks fit into their memory.
/// Collective. Throws Error(kResources), with the numbers, if none fits, and if the ranks run different
/// builds or run on processors of different kinds.
MeshSizes inference_mesh(MpiWorld& world, const ModelConfig& config, const InferenceOptions& options,
                         const Device& device);

/// A trained model on all ranks: mesh, memory and weights. Owns all of them.
class LoadedModel {
 public:
  /// Reads the weights; each rank reads only its part. `world` must outlive this. Collective. Throws
  /// Error(kResources) if the model does not fit, and as StoredModel::read.
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
