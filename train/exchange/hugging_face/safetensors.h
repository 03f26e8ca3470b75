// Safetensors files: where the bytes of each tensor lie, and the element types that an export writes.
// Source: https://github.com/huggingface/safetensors, README, "Format".
//
//   8 bytes     N, the size of the header: unsigned, little-endian
//   N bytes     a JSON object, from each tensor's name to {"dtype", "shape", "data_offsets": [begin, end]};
//               "__metadata__" maps to further texts; spaces pad the object
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
  size_t file = 0;             ///< index of the file, if a model has several files
  int64_t begin = 0;           ///< offset of the first byte in the file
  int64_t bytes = 0;

  /// The shape as text: "[512, 64]".
  std::string shape_text() const;
};

/// Bytes of an element of a safetensors dtype; 0 if this version does not know the dtype.
int64_t dtype_bytes(std::string_view dtype);

/// Returns the tensors of `file`, sorted by offset. Reads the header alone. The messages of errors have the
/// file and the fault.
/// Throws Error(kInputData) if the header is damaged, not JSON, or larger than 32 MiB (a 70B model has 0.1
/// MiB).
/// Throws Error(kInputData) if a tensor has an unknown dtype, a number of bytes that does not fit its shape,
/// or lies outside the file.
/// Throws Error(kInputData) unless every byte after the header belongs to exactly one tensor.
std::vector<StoredTensor> read_safetensors_header(const InputFile& file);

/// Element types that an export can write.
enum class ExportDType : uint8_t { kFloat32, kBFloat16, kFloat16 };
/// The name of the type in config.json and --dtype: "float32".
std::string_view to_string(ExportDType dtype);
/// The name of the type in safetensors files: "F32".
std::string_view safetensors_dtype(ExportDType dtype);
/// The type that has `name` in config.json or in safetensors files; nullopt if there is none.
std::optional<ExportDType> find_export_dtype(std::string_view name);
/// Bytes of an element.
int64_t element_bytes(ExportDType dtype);

/// Rounds to the nearest IEEE 754 binary16 number, ties to even; magnitudes from 65,520 on become infinite.
/// NaN stays NaN.
inline uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000U, size = bits & 0x7fffffffU;
  uint32_t half = 0;
  if (size > 0x7f800000U)  // NaN: quiet, with the upper bits of its payload
    half = 0x7e00U | (size >> 13 & 0x1ffU);
  else if (size >= 0x477ff000U)  // 65,520 and above become infinite
    half = 0x7c00U;
  else if (size >= 0x38800000U)  // 2^-14 and above: rounds 13 bits off and changes the exponent's bias
    half = (size + 0xfffU + (size >> 13 & 1U) - (112U << 23)) >> 13;
  else  // the last bits of 0.5 and of a subnormal half are both worth 2^-24: the sum with 0.5 rounds
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000U;
  return static_cast<uint16_t>(sign | half);
}

/// Writes `count` numbers to `to` in `dtype`, rounded to nearest, ties to even; float32 keeps every bit.
/// Returns nullopt; or, if a finite number is too large for `dtype`, the first such number, and `to` is
/// undefined.
std::optional<float> convert(const float* from, int64_t count, ExportDType dtype, void* to);

}  // namespace ripstop
