// Runs a recorded operation graph of cuDNN on memory of this process, one operation after another, in
// float32.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tests/emulated_device/cudnn_record.h"

namespace ripstop::emulated {

/// Operands of an execution: memory by the unique ids of tensors, and the scalars, which were read at the
/// call.
struct GraphMemory {
  std::map<int64_t, void*> pointers;
  std::map<int64_t, float> scalars;
  /// Whether an operation may touch [data, data + bytes).
  std::function<bool(const void* data, int64_t bytes)> allowed;
};

/// Why the interpreter cannot run `graph`; nullopt if it can.
std::optional<std::string> not_interpreted(const GraphRecord& graph);

/// Runs the graph. Virtual tensors are rounded to their dtype; the operands of a product to bfloat16 if one
/// of them has it, as tensor cores do; sums are float32. Elements of a product beyond its lengths, and rows
/// of a ragged tensor beyond the length of their document, are NaN when they are read, and are not written to
/// a ragged tensor. Throws std::runtime_error if memory is touched that is not allowed, or a reshape does not
/// keep addresses.
void interpret(const GraphRecord& graph, const GraphMemory& memory);

}  // namespace ripstop::emulated
