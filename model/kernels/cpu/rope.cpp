// A pair (a, b) becomes (a cos - b sin, b cos + a sin).
#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

/// The sign bit in even lanes, which subtract: a cos - b sin.
constexpr Bits kEvenSign = (~kLaneNumbers & 1U) << 31;

}  // namespace

void rope(const KernelCall&, const Tensor& qkv, const Tensor& position, const Tensor& angle,
          const Heads& heads, Direction direction) {
  const int64_t size = heads.size, turned = heads.query + heads.key_value, row = heads.row();
  const int32_t* at = elements<int32_t>(position);
  const uint32_t turn_back = direction == Direction::kBackward ? 0x80000000U : 0U;
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(qkv.rows(), row, [&](int64_t n) {
      const float* cosine_sine = elements<float>(angle) + at[n] * size;
      for (int64_t h = 0; h < turned; ++h) {
        T* head = elements<T>(qkv) + n * row + h * size;
        each_vector(size, [&](int64_t i, auto lanes) {
          const Vector v = load(head + i, lanes), a = load(cosine_sine + i, lanes);
          // `a` holds (cosine, sine) pairs: both lanes of a pair get the cosine from the even lane and the
          // sine from the odd lane. XOR flips the sign of the sine without a branch.
          const Bits sines = reinterpret_cast<Bits>(a) ^ turn_back;
          const Bits signed_sines = shuffled<[](int n) { return n | 1; }>(sines, sines) ^ kEvenSign;
          store(head + i,
                v * shuffled<[](int n) { return n & ~1; }>(a, a) +
                    shuffled<[](int n) { return n ^ 1; }>(v, v) * reinterpret_cast<Vector>(signed_sines),
                lanes);
        });
      }
    });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
