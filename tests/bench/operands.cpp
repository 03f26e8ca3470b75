#include "tests/bench/operands.h"

#include <algorithm>
#include <random>

namespace ripstop {
namespace {

// Random numbers are drawn once and repeated, since a weight of a large model has 10^8 elements. Their count
// is a prime, so that rows differ.
constexpr size_t kDrawn = 1'000'003;

const std::vector<float>& normal_numbers() {
  static const std::vector<float> numbers = [] {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    std::vector<float> drawn(kDrawn);
    for (float& x : drawn) x = normal(generator);
    return drawn;
  }();
  return numbers;
}

// The random numbers in `dtype`.
std::vector<std::byte> stored_numbers(DType dtype, float scale) {
  const auto size = static_cast<size_t>(element_bytes(dtype));
  std::vector<std::byte> stored(kDrawn * size);
  for (size_t i = 0; i < kDrawn; ++i) {
    const float x = scale * normal_numbers()[i];
    if (dtype == DType::kFloat32) reinterpret_cast<float*>(stored.data())[i] = x;
    if (dtype == DType::kBFloat16) reinterpret_cast<BFloat16*>(stored.data())[i] = BFloat16(x);
  }
  return stored;
}

}  // namespace

Tensor Operands::room(DType dtype, const Shape& shape) {
  buffers_.emplace_back(device(), ledger_, MemoryCategory::kActivations,
                        shape.count() * element_bytes(dtype));
  return tensor_in(buffers_.back(), 0, dtype, shape);
}

Tensor Operands::zeros(DType dtype, const Shape& shape) {
  return room(dtype, shape);  // buffers are zeroed
}

Tensor Operands::tensor(DType dtype, const Shape& shape, float scale) {
  const Tensor t = room(dtype, shape);
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) return t;
  const std::vector<std::byte> stored = stored_numbers(dtype, scale);
  const auto period = static_cast<int64_t>(stored.size());
  for (int64_t at = 0; at < t.bytes(); at += period)
    copy_bytes(stream_, static_cast<std::byte*>(t.data) + at, stored.data(),
               std::min(period, t.bytes() - at));
  return t;
}

Tensor Operands::ids(const std::vector<int32_t>& values) {
  const Tensor t = room(DType::kInt32, {static_cast<int64_t>(values.size())});
  copy_bytes(stream_, t.data, values.data(), t.bytes());
  return t;
}

Tensor Operands::numbers(const std::vector<float>& values) {
  const Tensor t = room(DType::kFloat32, {static_cast<int64_t>(values.size())});
  copy_bytes(stream_, t.data, values.data(), t.bytes());
  return t;
}

KernelCall Operands::call(int64_t workspace_bytes) {
  if (workspace_bytes == 0) return {stream_, nullptr};
  return {stream_, room(DType::kInt32, {(workspace_bytes + 3) / 4}).data};
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += static_cast<double>(t.bytes());
  return bytes;
}

}  // namespace ripstop
