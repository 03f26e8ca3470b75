#include "train/check/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/initialize.h"

namespace ripstop {
namespace {

// Elements read to the host at once, unless a row has more.
constexpr int64_t kElementsAtOnce = int64_t{1} << 20;

// Turns a vector into one row, because blocks are parts of rows, and a vector has rows of one element.
Box as_row(Box box) {
  if (box.parameter->vector) {
    std::swap(box.row, box.column);
    std::swap(box.rows, box.columns);
    box.stride = box.columns;
  }
  return box;
}

struct RowPart {
  int64_t row = 0, column = 0, count = 0;
};

// Subtracts check_values from `elements`, which holds rows [first, first + rows) of a box.
void subtract_initial(const Box& box, int64_t first, int64_t rows, uint64_t seed,
                      std::vector<float>& elements) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> initial(static_cast<size_t>(box.columns));
    check_values(*box.parameter, seed, (box.row + first + r) * box.parameter->columns + box.column,
                 box.columns, initial.data());
    float* const row = elements.data() + r * box.stride;
    for (int64_t c = 0; c < box.columns; ++c) row[c] -= initial[static_cast<size_t>(c)];
  }
}

// Calls body(part, elements, elements less the baseline) for each block of a box.
void for_blocks(const Box& box, ReadElements read, const Baseline& baseline,
                FunctionRef<void(const RowPart& part, std::span<const float> elements,
                                 std::span<const float> less_baseline)>
                    body) {
  const int64_t rows_at_once = std::clamp<int64_t>(kElementsAtOnce / box.stride, 1, box.rows);
  std::vector<float> elements, less_baseline;
  for (int64_t first = 0; first < box.rows; first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, box.rows - first);
    elements.resize(static_cast<size_t>((rows - 1) * box.stride + box.columns));
    read(box.offset + first * box.stride, elements);
    less_baseline = elements;
    if (baseline) subtract_initial(box, first, rows, *baseline, less_baseline);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < box.columns; c += kComparedBlock) {
        const RowPart part{box.row + first + r, box.column + c, std::min(kComparedBlock, box.columns - c)};
        const auto at = static_cast<size_t>(r * box.stride + c), count = static_cast<size_t>(part.count);
        body(part, std::span(elements).subspan(at, count), std::span(less_baseline).subspan(at, count));
      }
  }
}

double squared_norm(std::span<const float> elements) {
  double norm = 0;
  for (const float value : elements) norm += static_cast<double>(value) * value;
  return norm;
}

// `norm`: sum of (expected - baseline)^2 over the block; `average`: mean of (expected - baseline)^2 over the
// parameter. `expected` includes the baseline.
ParameterError compare_block(const RowPart& part, std::span<const float> found,
                             std::span<const float> expected, double norm, double average) {
  ParameterError error{.row = part.row, .column = part.column};
  for (size_t i = 0; i < found.size(); ++i) {
    const double a = found[i], b = expected[i];
    error.squared_error += (a - b) * (a - b);
    error.finite = error.finite && std::isfinite(a) && std::isfinite(b);
  }
  if (error.squared_error == 0) return error;
  error.worst_block =
      std::sqrt(error.squared_error / std::max(norm, average * static_cast<double>(found.size())));
  return error;
}

}  // namespace

void check_values(const ParameterSpec& parameter, uint64_t seed, int64_t first, int64_t count, float* out) {
  if (parameter.initial.kind != Initial::Kind::kZeros)
    return initial_values(parameter, seed, first, count, out);
  ParameterSpec filled = parameter;
  filled.initial = {Initial::Kind::kUniform, 1 / std::sqrt(static_cast<double>(parameter.rows))};
  initial_values(filled, seed, first, count, out);
}

void ParameterError::add(const ParameterError& part) {
  squared_error += part.squared_error;
  finite = finite && part.finite;
  // NaN counts as the largest error.
  if (std::isnan(worst_block) || part.worst_block <= worst_block) return;
  worst_block = part.worst_block;
  row = part.row;
  column = part.column;
}

std::vector<double> squared_norms(const UnitLayout& layout, ReadElements read, const Baseline& baseline) {
  std::vector<double> norms;
  for (const Box& slice : layout.slices()) {
    double norm = 0;
    for_blocks(as_row(slice), read, baseline,
               [&](const RowPart&, std::span<const float>, std::span<const float> less_baseline) {
                 norm += squared_norm(less_baseline);
               });
    norms.push_back(norm);
  }
  return norms;
}

std::vector<ParameterError> compare_shard(const UnitLayout& layout, int64_t begin,
                                          std::span<const float> shard, const UnitLayout& whole,
                                          ReadElements read, std::span<const double> norms,
                                          const Baseline& baseline) {
  const std::vector<Box>& slices = layout.slices();
  RIPSTOP_CHECK(slices.size() == whole.slices().size() && slices.size() == norms.size(),
                "{} and {} parameters, {} norms", slices.size(), whole.slices().size(), norms.size());
  std::vector<ParameterError> errors(slices.size());
  for (const Box& part_of_shard : layout.boxes(begin, begin + std::ssize(shard))) {
    size_t p = 0;
    while (slices[p].parameter != part_of_shard.parameter) ++p;
    // The rows and columns of part_of_shard in the buffer of one rank alone.
    const Box there = as_row(intersection(whole.slices()[p], part_of_shard)), box = as_row(part_of_shard);
    const double average = norms[p] / static_cast<double>(box.parameter->count());
    for_blocks(
        there, read, baseline,
        [&](const RowPart& part, std::span<const float> expected, std::span<const float> less_baseline) {
          const int64_t at =
              box.offset - begin + (part.row - box.row) * box.stride + part.column - box.column;
          const auto found = shard.subspan(static_cast<size_t>(at), static_cast<size_t>(part.count));
          errors[p].add(compare_block(part, found, expected, squared_norm(less_baseline), average));
        });
  }
  return errors;
}

double largest_padding(const UnitLayout& layout, int64_t begin, std::span<const float> shard) {
  std::vector<bool> is_padding(shard.size(), true);
  for (const Box& box : layout.boxes(begin, begin + std::ssize(shard)))
    for (int64_t r = 0; r < box.rows; ++r) {
      const auto first = is_padding.begin() + (box.offset - begin + r * box.stride);
      std::fill(first, first + box.columns, false);
    }
  double largest = 0;
  for (size_t i = 0; i < shard.size(); ++i) {
    if (!is_padding[i]) continue;
    if (!std::isfinite(shard[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(static_cast<double>(shard[i])));
  }
  return largest;
}

}  // namespace ripstop
