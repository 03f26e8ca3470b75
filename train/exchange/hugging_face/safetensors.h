// Safetensors files: the tensors in a file and where their bytes lie, the element types that an export
// writes. Source: https://github.com/huggingface/safetensors, README, "Format".
//
//   8 bytes     N, the size of the header: unsigned, little-endian
//   N bytes     a JSON object, from each tensor's name to {"dtype", "shape", "data_offsets": [begin, end]};
//               "__metadata__" has texts; padded with spaces
//   the rest    the tensors, row-major and little-endian, without gaps; offsets count from here
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// A tensor in a file.
struct StoredTensor {
  std::string name;
  std::string dtype;           ///< the file's spelling: "F32", "F16", "BF16", "I64"
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

/// Element types that an export may have.
enum class ExportDType : uint8_t { kFloat32, kBFloat16, kFloat16 };
/// "float32", as config.json and --dtype spell it.
std::string_view to_string(ExportDType dtype);
/// "F32", as safetensors spells it.
std::string_view safetensors_dtype(ExportDType dtype);
/// The type of either spelling; nullopt if it is none of them.
std::optional<ExportDType> find_export_dtype(std::string_view name);
int64_t element_bytes(ExportDType dtype);

/// The IEEE 754 binary16 number nearest to `value`, ties to even. From 65,520 on that is infinity; NaN stays
/// NaN.
inline uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000U, size = bits & 0x7fffffffU;
  uint32_t half = 0;
  if (size > 0x7f800000U)  // NaN: quiet, with the upper bits of its payload
    half = 0x7e00U | (size >> 13 & 0x1ffU);
  else if (size >= 0x477ff000U)  // 65,520
    half = 0x7c00U;
  else if (size >= 0x38800000U)  // 2^-14 and above: another bias of the exponent, 13 bits less
    half = (size + 0xfffU + (size >> 13 & 1U) - (112U << 23)) >> 13;
  else  // the last bit of 0.5 is worth 2^-24, as that of a subnormal half: the sum rounds
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000U;
  return static_cast<uint16_t>(sign | half);
}

/// Writes `count` numbers in `dtype`, rounded to nearest, ties to even; float32 keeps every bit. Returns the
/// first number that is finite and that `dtype` cannot hold; `to` is not defined then.
std::optional<float> convert(const float* from, int64_t count, ExportDType dtype, void* to);

}  // namespace ripstop
