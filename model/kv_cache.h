#pragma once
#include <cstdint>

#include "model/config.h"
#include "model/device/tensor.h"

namespace ripstop {

/// Owns the key-value cache of generation: `slots` slots of `positions` places each (see CachedTail), for all
/// layers and this rank's key-value heads.
class KeyValueCache {
 public:
  KeyValueCache(const ModelConfig& config, int64_t tensor_count, int64_t slots, int64_t positions,
                DType dtype, const Device& device, MemoryLedger& ledger)
      : shape_{slots, positions, 2, config.key_value_size() / tensor_count},
        dtype_(dtype),
        memory_(device, ledger, MemoryCategory::kActivations,
                config.num_hidden_layers * shape_.count() * element_bytes(dtype)) {}

  /// The cache of one layer, [slots, positions, 2, K*D / t].
  Tensor layer(int64_t number) const {
    return tensor_in(memory_, number * shape_.count() * element_bytes(dtype_), dtype_, shape_);
  }

 private:
  Shape shape_;
  DType dtype_;
  Buffer memory_;
};

}  // namespace ripstop
