#include "parallel/unit_layout.h"

#include <algorithm>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

Placement place(const ParameterSpec& p, int64_t offset, int64_t count, int64_t index) {
  Placement s{
      .parameter = &p, .offset = offset, .rows = p.slice_rows(count), .columns = p.slice_columns(count)};
  s.first_row = p.cut == Cut::kRows ? std::min(index * s.rows, p.rows) : 0;
  s.first_column = p.cut == Cut::kColumns ? std::min(index * s.columns, p.columns) : 0;
  s.valid_rows = std::min(s.rows, p.rows - s.first_row);
  s.valid_columns = std::min(s.columns, p.columns - s.first_column);
  return s;
}

/// Rows [row, row + rows) and columns [column, column + columns) of a slice, without its padding.
Box cut_box(const Placement& s, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  rows = std::min(rows, s.valid_rows - row);
  columns = std::min(columns, s.valid_columns - column);
  if (rows <= 0 || columns <= 0) return {};
  return {.parameter = s.parameter,
          .row = s.first_row + row,
          .column = s.first_column + column,
          .rows = rows,
          .columns = columns,
          .offset = s.offset + row * s.columns + column,
          .stride = s.columns};
}

/// Elements [begin, end) of a slice: the rest of a first row, whole rows, the beginning of a last row.
void append_boxes(const Placement& s, int64_t begin, int64_t end, std::vector<Box>& boxes) {
  const auto append = [&](const Box& box) {
    if (!box.empty()) boxes.push_back(box);
  };
  int64_t row = begin / s.columns;
  const int64_t column = begin % s.columns;
  if (column != 0) {
    const int64_t stop = std::min(end - row * s.columns, s.columns);
    append(cut_box(s, row, 1, column, stop - column));
    ++row;
  }
  const int64_t last = end / s.columns;
  if (row < last) append(cut_box(s, row, last - row, 0, s.columns));
  if (last >= row && end % s.columns != 0) append(cut_box(s, last, 1, 0, end % s.columns));
}

}  // namespace

UnitLayout::UnitLayout(const UnitSpec& unit, int64_t tensor_count, int64_t tensor_index, int64_t fsdp_count)
    : unit_(&unit), fsdp_count_(fsdp_count) {
  int64_t at = 0;
  for (const PhysicalTensor& tensor : unit.tensors) {
    tensor_offsets_.push_back(at);
    int64_t offset = at;
    for (const ParameterSpec& p : tensor.parts) {
      placements_.push_back(place(p, offset, tensor_count, tensor_index));
      offset += placements_.back().rows * placements_.back().columns;
    }
    at = round_up(offset, kGrain);
    if (tensor.replicated()) {
      RIPSTOP_CHECK(replicated_elements_ == tensor_offsets_.back(),
                    "replicated tensors of {} do not come first", unit.name);
      replicated_elements_ = at;
    }
  }
  elements_ = round_up(at, fsdp_count * kGrain);
}

std::vector<Box> UnitLayout::boxes(int64_t begin, int64_t end) const {
  std::vector<Box> found;
  for (const Placement& s : placements_) {
    const int64_t first = std::max(begin, s.offset) - s.offset;
    const int64_t stop = std::min(end, s.offset + s.rows * s.columns) - s.offset;
    if (first < stop) append_boxes(s, first, stop, found);
  }
  return found;
}

Box intersection(const Box& a, const Box& b) {
  RIPSTOP_CHECK(a.parameter->name == b.parameter->name, "boxes of {} and {}", a.parameter->name,
                b.parameter->name);
  const int64_t row = std::max(a.row, b.row), column = std::max(a.column, b.column);
  const int64_t rows = std::min(a.row + a.rows, b.row + b.rows) - row;
  const int64_t columns = std::min(a.column + a.columns, b.column + b.columns) - column;
  if (rows <= 0 || columns <= 0) return {};
  return {.parameter = a.parameter,
          .row = row,
          .column = column,
          .rows = rows,
          .columns = columns,
          .offset = a.offset + (row - a.row) * a.stride + (column - a.column),
          .stride = a.stride};
}

}  // namespace ripstop
