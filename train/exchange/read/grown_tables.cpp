#include "train/exchange/read/grown_tables.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/core/error.h"
#include "model/core/rounding.h"
#include "model/initialize.h"

namespace ripstop {
namespace {

constexpr int64_t kPiece = int64_t{1} << 18;  // elements that are read at once

bool is_table(const ParameterSpec& parameter) {
  return parameter.name == "tok_embeddings.weight" || parameter.name == "output.weight";
}

// Calls take(first, values) with the elements [begin, end) of a stored parameter, row-major, in pieces.
template <class Take>
void each_piece(const GrownTables::ReadStored& read, const ParameterSpec& stored, int64_t begin, int64_t end,
                const Take& take) {
  const UnitSpec unit{.name = stored.name, .tensors = {{{stored}}}};
  const UnitLayout whole(unit, 1, 0, 1), pieces = whole.finer(divide_up(whole.elements(), kPiece));
  const Box& all = whole.slices().front();
  RIPSTOP_CHECK(all.offset == 0 && all.stride == stored.columns, "{} has gaps between its rows", stored.name);
  const int64_t size = pieces.shard_elements();
  std::vector<float> piece(static_cast<size_t>(size));
  for (int64_t shard = begin / size; shard * size < end; ++shard) {
    read(shard, {.layout = &pieces, .master = piece.data()});
    const int64_t from = std::max(begin, shard * size), to = std::min(end, (shard + 1) * size);
    take(from, std::span<const float>(piece).subspan(static_cast<size_t>(from - shard * size),
                                                     static_cast<size_t>(to - from)));
  }
}

}  // namespace

GrownTables::GrownTables(const VocabularyGrowth& growth, int64_t stored_rows, ReadStored read)
    : growth_(growth), stored_rows_(stored_rows), read_(std::move(read)) {}

bool GrownTables::has(const UnitSpec& unit) const {
  return std::ranges::any_of(unit.tensors, [&](const PhysicalTensor& tensor) {
    return is_table(tensor.parts.front()) && tensor.parts.front().rows > stored_rows_;
  });
}

void GrownTables::read(const UnitLayout& layout, int64_t begin, int64_t end, float* to) {
  zero_padding(layout, begin, end, to, DType::kFloat32);
  // Units with a table are not cut by columns: a box is a part of a row, or whole rows without gaps.
  for (const Box& box : layout.boxes(begin, end)) {
    if (box.empty()) continue;
    const ParameterSpec& parameter = *box.parameter;
    float* const at = to + (box.offset - begin);
    const int64_t known =
        is_table(parameter) ? std::clamp<int64_t>(stored_rows_ - box.row, 0, box.rows) : box.rows;
    if (known > 0) read_rows(parameter, box.row * parameter.columns + box.column, known * box.columns, at);
    for (int64_t row = known; row < box.rows; ++row)
      add_row(parameter, box.row + row, box.column, box.columns, at + row * box.stride);
  }
}

// Reads the elements [first, first + count) of the stored parameter, row-major.
void GrownTables::read_rows(const ParameterSpec& parameter, int64_t first, int64_t count, float* to) {
  ParameterSpec stored = parameter;
  if (is_table(stored)) stored.rows = stored_rows_;
  each_piece(read_, stored, first, first + count, [&](int64_t from, std::span<const float> values) {
    std::ranges::copy(values, to + (from - first));
  });
}

void GrownTables::add_row(const ParameterSpec& parameter, int64_t row, int64_t column, int64_t columns,
                          float* to) {
  const Columns& of_table = columns_of(parameter);
  std::vector<float> normal(static_cast<size_t>(columns));
  if (growth_.how == ResizeVocabulary::kNormal) {
    ParameterSpec standard = parameter;
    standard.initial = {Initial::Kind::kNormal, 1};
    initial_values(standard, growth_.seed, row * parameter.columns + column, columns, normal.data());
  }
  for (int64_t i = 0; i < columns; ++i) {
    const auto c = static_cast<size_t>(column + i);
    to[i] =
        static_cast<float>(of_table.mean[c] + of_table.deviation[c] * double{normal[static_cast<size_t>(i)]});
  }
}

const GrownTables::Columns& GrownTables::columns_of(const ParameterSpec& parameter) {
  const std::lock_guard lock(mutex_);
  if (const auto found = columns_.find(parameter.name); found != columns_.end()) return found->second;
  ParameterSpec stored = parameter;
  stored.rows = stored_rows_;
  const auto width = static_cast<size_t>(stored.columns);
  std::vector<double> sums(width), squares(width);
  each_piece(read_, stored, 0, stored.count(), [&](int64_t from, std::span<const float> values) {
    size_t c = static_cast<size_t>(from) % width;
    for (const float value : values) {
      sums[c] += double{value};
      squares[c] += double{value} * double{value};
      if (++c == width) c = 0;
    }
  });
  Columns columns;
  const auto rows = static_cast<double>(stored_rows_);
  for (size_t c = 0; c < width; ++c) {
    columns.mean.push_back(sums[c] / rows);
    columns.deviation.push_back(
        std::sqrt(std::max(squares[c] / rows - columns.mean[c] * columns.mean[c], 0.0)));
  }
  return columns_.emplace(parameter.name, std::move(columns)).first->second;
}

}  // namespace ripstop
