// Every row of the kernel table at the shapes of one micro-batch of a model.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "tests/bench/operands.h"

namespace ripstop {

/// A model's sizes and a micro-batch.
struct StepShape {
  std::string name;
  ModelConfig model;
  int64_t sequences = 0, positions = 0;

  int64_t rows() const { return sequences * positions; }
  Heads heads() const { return {model.num_attention_heads, model.num_key_value_heads, model.head_size()}; }
};

/// One product, as onednn_product is asked for it.
struct ProductSizes {
  int64_t m = 0, k = 0, n = 0;
};

/// One measurement.
struct KernelRow {
  std::string name;  ///< "attention", "linear/qkv"
  DType dtype = DType::kFloat32;
  std::function<Work(Operands&)> make;  ///< operands and what to run on them
  /// How often one micro-batch does it on one rank (AdamW: how often one step does); 0: not in training.
  double times = 0;
  std::optional<ProductSizes> product = std::nullopt;  ///< where it is one
};

/// All rows in activation dtype `dtype`. The names of the linear ones begin with "linear".
std::vector<KernelRow> kernel_rows(const StepShape& shape, DType dtype);

}  // namespace ripstop
