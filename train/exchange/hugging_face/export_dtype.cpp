#include "train/exchange/hugging_face/export_dtype.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/device/dtype.h"

namespace ripstop {
namespace {

// `infinity`: the bits of the infinite number, without its sign.
template <class Round>
std::optional<float> round_all(const float* from, int64_t count, uint16_t* to, uint16_t infinity,
                               Round round) {
  uint32_t infinite = 0;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = round(from[i]);
    infinite |= static_cast<uint32_t>((to[i] & 0x7fff) == infinity);
  }
  if (infinite == 0) return std::nullopt;
  // An infinite weight stays infinite: it was not lost here.
  for (int64_t i = 0; i < count; ++i)
    if ((to[i] & 0x7fff) == infinity && std::isfinite(from[i])) return from[i];
  return std::nullopt;
}

}  // namespace

std::string_view to_string(ExportDType dtype) {
  return dtype == ExportDType::kFloat32    ? "float32"
         : dtype == ExportDType::kBFloat16 ? "bfloat16"
                                           : "float16";
}

std::string_view safetensors_dtype(ExportDType dtype) {
  return dtype == ExportDType::kFloat32 ? "F32" : dtype == ExportDType::kBFloat16 ? "BF16" : "F16";
}

int64_t element_bytes(ExportDType dtype) {
  return dtype == ExportDType::kFloat32 ? 4 : 2;
}

std::optional<float> convert(const float* from, int64_t count, ExportDType dtype, void* to) {
  switch (dtype) {
    case ExportDType::kFloat32:
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return std::nullopt;
    case ExportDType::kBFloat16:
      return round_all(from, count, static_cast<uint16_t*>(to), 0x7f80,
                       [](float value) { return BFloat16(value).bits; });
    case ExportDType::kFloat16:
      return round_all(from, count, static_cast<uint16_t*>(to), 0x7c00, to_float16);
  }
  return std::nullopt;
}

}  // namespace ripstop
