#pragma once
#include <vector>

#include "model/block.h"
#include "model/embedding.h"
#include "model/head_loss.h"

namespace ripstop {

/// One rank's slice of a model. The owner of the parameters' memory (parallel/fsdp_unit.h) sets the layers'
/// views. parallel/sharded_transformer.cpp has the loop over the layers.
class Transformer {
 public:
  /// Makes the rotation angles of positions [0, positions). Throws Error(kResources) if `tensor_count` ranks
  /// cannot cut the heads.
  Transformer(const ModelConfig& config, const LoraConfig& lora, int64_t tensor_count, int64_t tensor_index,
              int64_t positions, const Stream& stream, MemoryLedger& ledger);

  Embedding embedding;
  std::vector<Block> blocks;
  HeadLoss head;

  const ModelConfig& config() const { return config_; }
  const Parameter& output() const { return config_.tie_word_embeddings ? embedding.table : head.output; }
  /// [positions, D/2, 2] float32: cosine and sine of position * inverse_frequency(i), computed in float64.
  const Tensor& angle() const { return angle_; }
  /// The parameters of unit number `unit` of unit_table, in the order of its tensors.
  std::vector<Parameter*> parameters(size_t unit);

 private:
  void set_adapters(const LoraConfig& lora, int64_t tensor_count);

  ModelConfig config_;
  Buffer angle_memory_;
  Tensor angle_;
};

}  // namespace ripstop
