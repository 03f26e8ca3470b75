// Every kernel of the kernel table, with the shapes of one micro-batch of a model.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "tests/bench/operands.h"

namespace ripstop {

/// The sizes of a model and of a micro-batch.
struct StepShape {
  std::string name;
  ModelConfig model;
  int64_t sequences = 0, positions = 0;

  int64_t rows() const { return sequences * positions; }
  Heads heads() const { return {model.num_attention_heads, model.num_key_value_heads, model.head_size()}; }
};

/// One product, as the parameters of onednn_product.
struct ProductSizes {
  int64_t m = 0, k = 0, n = 0;
};

/// One measurement.
struct KernelRow {
  std::string name;  ///< "attention", "linear/qkv"
  DType dtype = DType::kFloat32;
  std::function<Work(Operands&)> make;  ///< makes the operands and the work on them
  /// The times that one rank does it in a micro-batch (AdamW: in a step); 0: not in training.
  double times = 0;
  std::optional<ProductSizes> product = std::nullopt;  ///< if it is a product
};

/// All rows with activation dtype `dtype`. Names of products begin with "linear".
std::vector<KernelRow> kernel_rows(const StepShape& shape, DType dtype);

}  // namespace ripstop
