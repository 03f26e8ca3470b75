#include "model/adapters.h"

#include <algorithm>
#include <cmath>

#include "model/core/philox.h"
#include "model/ops/ops.h"
#include "model/ops/tensor_axis.h"

namespace ripstop {

Adapters::Adapters(const PhysicalTensor& matrix, const std::vector<AdapterSpec>& adapters,
                   const LoraConfig& lora, int64_t tensor_count)
    : rank_(lora.rank),
      scale_(lora.scale()),
      dropout_(lora.dropout),
      by_columns_(matrix.parts.front().cut == Cut::kColumns) {
  int64_t output = 0, row = 0;
  for (const ParameterSpec& part : matrix.parts) {
    const int64_t outputs = part.slice_rows(tensor_count);
    const auto found = std::find_if(adapters.begin(), adapters.end(), [&](const AdapterSpec& adapter) {
      return adapter.matrix.name == part.name;
    });
    if (found != adapters.end()) {
      parts_.push_back({hash_of_name(found->a.name), output, outputs, row});
      row += outputs;
    }
    output += outputs;
  }
}

DropoutBits Adapters::bits_of(const Context& context, const Part& part, int64_t first_row) const {
  const DropoutPlace& at = *context.dropout;
  const auto step = static_cast<uint64_t>(at.step);
  const PhiloxBlock key = philox({static_cast<uint32_t>(part.name), static_cast<uint32_t>(part.name >> 32),
                                  static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
                                 at.seed);
  return {.key = uint64_t{key[1]} << 32 | key[0],
          .threshold = static_cast<uint32_t>(std::min(std::round(dropout_ * 0x1p32), 0x1p32 - 1)),
          .first_row = first_row,
          .first_column = by_columns_ ? context.tensor.index() * a.value.cols() : 0,
          .sequence_length = at.sequence_length,
          .first_sequence = at.first_sequence,
          .sequence_step = at.sequence_step};
}

// Calls body(input, first, count) for columns [first, first + count) of the low rows. Without dropout there
// is one call, for all columns, and `input` is x. With dropout there is one call for each adapter, and
// `input` is x after the adapter's dropout.
template <class Body>
void Adapters::each_input(Context& context, const Tensor& x, int64_t first_row, Body body) const {
  if (!drops(context)) return body(x, int64_t{0}, width());
  const Frame scratch(context.arena);
  const Tensor input = context.arena.allocate(x.dtype, x.shape);
  for (size_t p = 0; p < parts_.size(); ++p) {
    dropout(context, x, bits_of(context, parts_[p], first_row), input);
    body(input, static_cast<int64_t>(p) * rank_, rank_);
  }
}

void Adapters::down(Context& context, const Tensor& x, int64_t first_row, const Tensor& u) const {
  each_input(context, x, first_row, [&](const Tensor& input, int64_t first, int64_t count) {
    linear(context, input, a.value.row_range(first, count), u.column_range(first, count));
  });
  scale_low(context, u);
}

void Adapters::up(Context& context, const Tensor& u, const Tensor& y) const {
  for (size_t p = 0; p < parts_.size(); ++p)
    linear(context, of_part(u, p), b.value.row_range(parts_[p].first_b, parts_[p].outputs),
           y.column_range(parts_[p].first_output, parts_[p].outputs), Accumulate::kYes);
}

void Adapters::up_backward_input(Context& context, const Tensor& dy, const Tensor& du) const {
  for (size_t p = 0; p < parts_.size(); ++p)
    linear_backward_input(context, dy.column_range(parts_[p].first_output, parts_[p].outputs),
                          b.value.row_range(parts_[p].first_b, parts_[p].outputs), of_part(du, p));
}

void Adapters::up_backward_weight(Context& context, const Tensor& dy, const Tensor& u) const {
  for (size_t p = 0; p < parts_.size(); ++p)
    linear_backward_weight(context, dy.column_range(parts_[p].first_output, parts_[p].outputs), of_part(u, p),
                           b.gradient.row_range(parts_[p].first_b, parts_[p].outputs), b.accumulate);
}

void Adapters::down_backward_weight(Context& context, const Tensor& du, const Tensor& x,
                                    int64_t first_row) const {
  each_input(context, x, first_row, [&](const Tensor& input, int64_t first, int64_t count) {
    linear_backward_weight(context, du.column_range(first, count), input, a.gradient.row_range(first, count),
                           a.accumulate);
  });
}

void Adapters::down_backward_input(Context& context, const Tensor& du, int64_t first_row,
                                   const Tensor& dx) const {
  if (!drops(context)) return linear_backward_input(context, du, a.value, dx, Accumulate::kYes);
  const Frame scratch(context.arena);
  const Tensor through = context.arena.allocate(dx.dtype, dx.shape);
  for (size_t p = 0; p < parts_.size(); ++p) {
    linear_backward_input(context, of_part(du, p), a.value.row_range(static_cast<int64_t>(p) * rank_, rank_),
                          through);
    add_dropout(context, through, bits_of(context, parts_[p], first_row), dx);
  }
}

}  // namespace ripstop
