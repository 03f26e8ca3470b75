#include "parallel/unit_layout.h"

#include <algorithm>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

// Slice number `index` of `count`, without the padding at the end of the last slices.
Box slice_of(const ParameterSpec& p, int64_t offset, int64_t count, int64_t index) {
  const int64_t rows = p.slice_rows(count), columns = p.slice_columns(count);
  const int64_t row = p.cut == Cut::kRows ? std::min(index * rows, p.rows) : 0;
  const int64_t column = p.cut == Cut::kColumns ? std::min(index * columns, p.columns) : 0;
  return {.parameter = &p,
          .row = row,
          .column = column,
          .rows = std::min(rows, p.rows - row),
          .columns = std::min(columns, p.columns - column),
          .offset = offset,
          .stride = columns};
}

// Rows [row, row + rows) and columns [column, column + columns) of a box, counted from the box's first
// row and column, and clipped to the box.
Box cut_box(const Box& slice, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  rows = std::min(rows, slice.rows - row);
  columns = std::min(columns, slice.columns - column);
  if (rows <= 0 || columns <= 0) return {};
  return {.parameter = slice.parameter,
          .row = slice.row + row,
          .column = slice.column + column,
          .rows = rows,
          .columns = columns,
          .offset = slice.offset + row * slice.stride + column,
          .stride = slice.stride};
}

// Appends boxes that cover elements [begin, end) of a slice: end of a row, whole rows, start of a row.
void append_boxes(const Box& slice, int64_t begin, int64_t end, std::vector<Box>& boxes) {
  const int64_t stride = slice.stride;
  const auto append = [&](const Box& box) {
    if (!box.empty()) boxes.push_back(box);
  };
  int64_t row = begin / stride;
  const int64_t column = begin % stride;
  if (column != 0) {
    const int64_t stop = std::min(end - row * stride, stride);
    append(cut_box(slice, row, 1, column, stop - column));
    ++row;
  }
  const int64_t last = end / stride;
  if (row < last) append(cut_box(slice, row, last - row, 0, stride));
  if (last >= row && end % stride != 0) append(cut_box(slice, last, 1, 0, end % stride));
}

}  // namespace

UnitLayout::UnitLayout(const UnitSpec& unit, int64_t tensor_count, int64_t tensor_index, int64_t fsdp_count)
    : unit_(&unit), fsdp_count_(fsdp_count) {
  int64_t at = 0;
  for (const PhysicalTensor& tensor : unit.tensors) {
    tensor_offsets_.push_back(at);
    int64_t offset = at;
    for (const ParameterSpec& p : tensor.parts) {
      slices_.push_back(slice_of(p, offset, tensor_count, tensor_index));
      offset += p.slice_rows(tensor_count) * p.slice_columns(tensor_count);
    }
    // Begin tensors at a multiple of the grain, so that SIMD loads are aligned.
    at = round_up(offset, kGrain);
    if (tensor.replicated()) {
      RIPSTOP_CHECK(replicated_elements_ == tensor_offsets_.back(),
                    "replicated tensors of {} do not come first", unit.name);
      replicated_elements_ = at;
    }
    if (tensor.parts.front().vector) {
      RIPSTOP_CHECK(vector_elements_ == tensor_offsets_.back(), "vectors of {} do not come first", unit.name);
      vector_elements_ = at;
    }
  }
  elements_ = round_up(at, fsdp_count * kGrain);
}

UnitLayout UnitLayout::finer(int64_t parts) const {
  UnitLayout layout = *this;
  layout.fsdp_count_ *= parts;
  layout.elements_ = round_up(elements_, layout.fsdp_count_ * kGrain);
  return layout;
}

std::vector<Box> UnitLayout::boxes(int64_t begin, int64_t end) const {
  std::vector<Box> found;
  for (const Box& slice : slices_) {
    const int64_t first = std::max(begin, slice.offset) - slice.offset;
    const int64_t stop = std::min(end, slice.offset + slice.rows * slice.stride) - slice.offset;
    if (first < stop) append_boxes(slice, first, stop, found);
  }
  return found;
}

void zero_padding(const UnitLayout& layout, int64_t begin, int64_t end, void* to, DType dtype) {
  int64_t at = begin;
  const int64_t size = element_bytes(dtype);
  const auto zero_up_to = [&](int64_t stop) {
    std::fill_n(static_cast<std::byte*>(to) + (at - begin) * size, (stop - at) * size, std::byte{0});
  };
  for (const Box& box : layout.boxes(begin, end))
    for (int64_t row = 0; row < box.rows; ++row) {
      zero_up_to(box.offset + row * box.stride);
      at = box.offset + row * box.stride + box.columns;
    }
  zero_up_to(end);
}

Box intersection(const Box& a, const Box& b) {
  // Names are compared, because a checkpoint has its own table of parameters.
  RIPSTOP_CHECK(a.parameter->name == b.parameter->name, "boxes of {} and {}", a.parameter->name,
                b.parameter->name);
  const int64_t row = std::max(a.row, b.row), column = std::max(a.column, b.column);
  return cut_box(a, row - a.row, b.row + b.rows - row, column - a.column, b.column + b.columns - column);
}

}  // namespace ripstop
