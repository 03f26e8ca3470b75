// A trained model that is loaded to score and to write: its mesh, its memory, its weights.
#pragma once
#include "parallel/device_mesh.h"
#include "train/exchange/read/open_model.h"
#include "train/generate/inference_model.h"

namespace ripstop {

/// InferenceOptions::of the trained model, in the precision of its training; in float32 if the device has no
/// fast bfloat16.
InferenceOptions inference_options(const TrainedModel& trained, const Device& device, int64_t slots,
                                   const GenerationSettings& settings);

/// A trained model on all ranks: mesh, memory and weights. Owns all of them. The mesh is replicate x 1 x
/// tensor with the smallest tensor axis whose ranks fit into their memory.
class LoadedModel {
 public:
  /// Reads the weights; each rank reads only its part. `world` must outlive this. Collective. Throws
  /// Error(kResources), with the numbers, if the model does not fit, and if the ranks run different builds or
  /// run on processors of different kinds; and as read_weights.
  LoadedModel(Io& io, MpiWorld& world, const TrainedModel& trained, const InferenceOptions& options,
              const Device& device);

  DeviceMesh& mesh() { return mesh_; }
  InferenceModel& model() { return model_; }

 private:
  DeviceMesh mesh_;
  Stream stream_;
  MemoryLedger ledger_;
  InferenceModel model_;
};

}  // namespace ripstop
