// Reads the header of a safetensors file: which tensors it has, and where their bytes lie.
// Source: https://github.com/huggingface/safetensors, README, "Format".
//
//   8 bytes     N, the size of the header: unsigned, little-endian
//   N bytes     a JSON object, from each tensor's name to {"dtype", "shape", "data_offsets": [begin, end]};
//               "__metadata__" has texts; padded with spaces
//   the rest    the tensors, row-major and little-endian, without gaps; offsets count from here
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// A tensor in a file.
struct StoredTensor {
  std::string name;
  std::string dtype;           ///< as the file spells it: "F32", "F16", "BF16", "I64"
  std::vector<int64_t> shape;  ///< empty for a single number
  int64_t begin = 0;           ///< first byte in the file
  int64_t bytes = 0;

  /// "[512, 64]"
  std::string shape_text() const;
};

/// Bytes of an element of a dtype of safetensors; 0 if this version does not know it.
int64_t dtype_bytes(std::string_view dtype);

/// The tensors of `file`, by their place in it. Reads the header alone. Throws Error(kInputData), with the
/// file and what is wrong, if the header is damaged, larger than 32 MiB (that of a 70B model has 0.1) or
/// not JSON; if a tensor has an unknown dtype, a size that is not that of its shape, lies outside the file or
/// shares bytes with another; and if bytes belong to no tensor.
std::vector<StoredTensor> read_safetensors_header(const InputFile& file);

}  // namespace ripstop
