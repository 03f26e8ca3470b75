#pragma once
#include "parallel/device_mesh.h"
#include "train/exchange/read/open_model.h"
#include "train/generate/inference_model.h"

namespace ripstop {

/// InferenceOptions::of() in the precision of the training, or in float32 on a device without fast bfloat16.
InferenceOptions inference_options(const TrainedModel& trained, const Device& device, int64_t slots,
                                   const GenerationSettings& settings, int64_t pieces);

/// A trained model in the memory of all ranks. The mesh has fsdp 1, the smallest tensor axis with which the
/// model fits into each rank's memory, and replicas.
class LoadedModel {
 public:
  /// Reads the weights; each rank reads only its part. `world` must outlive this object. Throws like
  /// read_weights(), and Error(kResources) if the model does not fit or the ranks run different builds or
  /// kinds of processors. Collective.
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
