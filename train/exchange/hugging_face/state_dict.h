// The pickle of a state dict: names, shapes and places of tensors. The reader knows the few opcodes and names
// that torch.save writes for a state dict, and runs nothing: a Python name only selects a case of the reader.
// Source: Python, Lib/pickletools.py (opcodes); PyTorch, torch/serialization.py (persistent ids) and
// torch/_utils.py (_rebuild_tensor_v2, _rebuild_parameter).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// A tensor of a state dict: a view of a storage, which is an array that several tensors may share.
struct PickledTensor {
  std::string name = {};
  std::string dtype = {};        ///< the spelling of safetensors: "F32"
  std::string storage = {};      ///< the name of the storage: "17"
  int64_t storage_elements = 0;  ///< number of elements in the storage
  int64_t offset = 0;            ///< index in the storage of the tensor's first element
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  ///< in elements; not negative; one for each dim
};

/// The maximum size of a pickle for read_state_dict: a model of 70B has 0.1 MiB.
inline constexpr int64_t kMostPickleBytes = int64_t{16} << 20;

/// The tensors of `pickle`, in the pickle's order. Messages call it `name`. Throws Error(kInputData), with
/// the fault:
/// - if the pickle is damaged, or has an opcode, a protocol or a name of Python beyond those of state dicts;
/// - if the result is not a dict of tensors, or two tensors have one name;
/// - if a tensor's elements do not lie in its storage, or a size or a stride is negative or too large.
std::vector<PickledTensor> read_state_dict(std::string_view pickle, const std::string& name);

}  // namespace ripstop
