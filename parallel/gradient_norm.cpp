#include "parallel/gradient_norm.h"

#include "model/core/rounding.h"

namespace ripstop {
namespace {

constexpr int64_t kSumsOfUnit = 2;  // one sum for replicated elements, one sum for all others

int64_t sums_bytes(size_t units) {
  return round_up(8 * kSumsOfUnit * static_cast<int64_t>(units), kMemoryAlignment);
}

}  // namespace

GradientNorm::GradientNorm(const Stream& stream, MemoryLedger& ledger, size_t units, int64_t largest)
    : stream_(stream.device(), /*urgent=*/false, stream.observer()),
      units_(units),
      memory_(stream.device(), ledger, MemoryCategory::kWorkspace,
              sums_bytes(units) + round_up(squared_norm_workspace_bytes(stream.device(), largest), 4)) {}

void GradientNorm::start(size_t unit, const Tensor& gradient, const Stream& writer) {
  stream_.wait_for(writer);
  const int64_t begin = sums_bytes(units_);
  const Tensor workspace = tensor_in(memory_, begin, DType::kInt32, {(memory_.bytes() - begin) / 4});
  add_squared_norm(stream_, gradient, of(unit, false), workspace);
}

void GradientNorm::finish(Context& context, const Tensor& total) {
  context.stream.wait_for(stream_);
  add_sum(context, all(), total);
  fill_zero(context, all());
}

Tensor GradientNorm::all() const {
  return tensor_in(memory_, 0, DType::kFloat64, {kSumsOfUnit * static_cast<int64_t>(units_)});
}

Tensor GradientNorm::of(size_t unit, bool replicated) const {
  return all().row_range(kSumsOfUnit * static_cast<int64_t>(unit) + (replicated ? 0 : 1), 1);
}

}  // namespace ripstop
