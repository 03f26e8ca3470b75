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

/// Limits of a tensor in a file that is read: its elements (products of its sizes stay within 64 bits), its
/// dimensions and the bytes of its name.
inline constexpr int64_t kMostElements = int64_t{1} << 56;
inline constexpr size_t kMostDims = 8, kMostNameBytes = 512;

struct StoredTensor {
  std::string name;
  std::string dtype;           ///< the code of safetensors: "F32", "F16", "BF16", "I64"
  std::vector<int64_t> shape;  ///< empty for a single number
  size_t file = 0;             ///< index of the file, if a model has several files
  int64_t begin = 0;           ///< offset of the first byte in the file
  int64_t bytes = 0;           ///< from the first element to the last, gaps included
  /// Elements in the file from one index of a dim to the next. Empty: row-major, without gaps.
  std::vector<int64_t> strides = {};
  /// Bytes of a piece: each piece of the tensor has its own hash.
  static constexpr int64_t kPieceBytes = int64_t{1} << 20;
  /// The XXH3-64 of each piece; the last piece may be shorter. Empty until contents_hash has read the tensor;
  /// from then on, read_stored compares what it reads. `mutable`: hashing a tensor does not change it.
  mutable std::vector<uint64_t> piece_hashes = {};

  /// The shape as text: "[512, 64]".
  std::string shape_text() const;
};

/// Bytes of an element; 0 for an unknown dtype.
int64_t dtype_bytes(std::string_view dtype);

/// Throws Error(kInputData) if `begin`, the first bytes of `file`, show that the file is a Git LFS pointer or
/// a web page in place of the weights.
void refuse_other_files(const InputFile& file, std::string_view begin);

/// The tensors of `file`, sorted by offset. Reads only the header. Throws Error(kInputData), with file and
/// fault:
/// - if the header is damaged, not JSON, or larger than 32 MiB (a 70B model has 0.1 MiB);
/// - if a tensor has an unknown dtype, a number of bytes that does not fit its shape, or lies outside the
///   file;
/// - unless every byte after the header belongs to exactly one tensor.
std::vector<StoredTensor> read_safetensors_header(const InputFile& file);

enum class ExportDType : uint8_t { kFloat32, kBFloat16, kFloat16 };
/// The name in config.json and --dtype: "float32".
std::string_view to_string(ExportDType dtype);
/// The name in safetensors files: "F32".
std::string_view safetensors_dtype(ExportDType dtype);
/// The type with `name` in config.json or in safetensors files; nullopt if there is none.
std::optional<ExportDType> find_export_dtype(std::string_view name);
int64_t element_bytes(ExportDType dtype);

/// Rounds to the nearest IEEE 754 binary16, ties to even. From 65,520 on, magnitudes become infinite. NaN
/// stays NaN.
inline uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000U, size = bits & 0x7fffffffU;
  uint32_t half = 0;
  if (size > 0x7f800000U)  // NaN: quiet, with the upper bits of its payload
    half = 0x7e00U | (size >> 13 & 0x1ffU);
  else if (size >= 0x477ff000U)  // 65,520
    half = 0x7c00U;
  else if (size >= 0x38800000U)  // 2^-14 and above: rounds 13 bits off, changes the exponent's bias
    half = (size + 0xfffU + (size >> 13 & 1U) - (112U << 23)) >> 13;
  else  // subnormal, in units of 2^-24: the last bit of 0.5f is a unit, so adding 0.5f rounds to units
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000U;
  return static_cast<uint16_t>(sign | half);
}

/// Writes `count` numbers to `to` in `dtype`, rounded to nearest, ties to even; float32 keeps every bit. If a
/// finite number is too large for `dtype`, returns the first such number and leaves `to` undefined; else
/// nullopt.
std::optional<float> convert(const float* from, int64_t count, ExportDType dtype, void* to);

}  // namespace ripstop
