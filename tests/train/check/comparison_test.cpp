// The comparison of a shard with the whole unit on one rank: it finds each difference where it is, and no
// other.
#include "train/check/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/initialize.h"
#include "model/lora.h"

namespace ripstop {
namespace {

const ModelConfig kModel{.hidden_size = 40,
                         .intermediate_size = 52,
                         .num_hidden_layers = 1,
                         .num_attention_heads = 4,
                         .num_key_value_heads = 2,
                         .vocab_size = 61,
                         .max_position_embeddings = 8};

float value_of(const ParameterSpec& p, int64_t row, int64_t column) {
  return static_cast<float>(p.name.size()) + std::sin(static_cast<float>(row * 131 + column));
}

/// The flat buffer of a layout in which every logical element has its value and padding is zero.
std::vector<float> filled(const UnitLayout& layout) {
  std::vector<float> flat(static_cast<size_t>(layout.elements()));
  for (const Box& box : layout.boxes(0, layout.elements()))
    for (int64_t r = 0; r < box.rows; ++r)
      for (int64_t c = 0; c < box.columns; ++c)
        flat[static_cast<size_t>(box.offset + r * box.stride + c)] =
            value_of(*box.parameter, box.row + r, box.column + c);
  return flat;
}

/// A unit on a mesh and on one rank.
struct Unit {
  std::vector<UnitSpec> table = parameter_table(kModel);
  const UnitSpec& spec;
  UnitLayout whole;
  std::vector<float> expected;

  explicit Unit(size_t number) : spec(table[number]), whole(spec, 1, 0, 1), expected(filled(whole)) {}
  std::vector<ParameterError> compare(const UnitLayout& layout, int64_t begin, std::span<const float> shard,
                                      const Baseline& baseline = {}) const {
    const auto read = [&](int64_t first, std::span<float> to) {
      std::copy_n(expected.begin() + first, to.size(), to.begin());
    };
    return compare_shard(layout, begin, shard, whole, read, squared_norms(whole, read, baseline), baseline);
  }
};

constexpr size_t kLayer = 1;

TEST(Comparison, EqualElementsHaveNoErrorOnAnyMesh) {
  for (size_t u = 0; u < 3; ++u)
    for (const int64_t tensor : {1, 2})
      for (const int64_t fsdp : {1, 2, 3})
        for (int64_t t = 0; t < tensor; ++t)
          for (int64_t f = 0; f < fsdp; ++f) {
            const Unit unit(u);
            const UnitLayout layout(unit.spec, tensor, t, fsdp);
            const std::vector<float> flat = filled(layout);
            const int64_t n = layout.shard_elements();
            const auto shard = std::span(flat).subspan(static_cast<size_t>(f * n), static_cast<size_t>(n));
            for (const ParameterError& error : unit.compare(layout, f * n, shard)) {
              EXPECT_EQ(error.squared_error, 0);
              EXPECT_EQ(error.worst_block, 0);
              EXPECT_TRUE(error.finite);
            }
            EXPECT_EQ(largest_padding(layout, f * n, shard), 0);
          }
}

TEST(Comparison, OneWrongElementIsFoundWhereItIs) {
  const Unit unit(kLayer);
  const UnitLayout layout(unit.spec, 2, 1, 3);
  for (size_t p = 0; p < layout.slices().size(); ++p) {
    const Box& slice = layout.slices()[p];
    std::vector<float> flat = filled(layout);
    const int64_t row = slice.rows - 1, column = slice.columns - 1;
    const int64_t at = slice.offset + row * slice.stride + column;
    flat[static_cast<size_t>(at)] += 1;
    const int64_t begin = at / layout.shard_elements() * layout.shard_elements();
    const std::vector<ParameterError> errors = unit.compare(
        layout, begin,
        std::span(flat).subspan(static_cast<size_t>(begin), static_cast<size_t>(layout.shard_elements())));
    for (size_t other = 0; other < errors.size(); ++other) {
      SCOPED_TRACE(slice.parameter->name + ", " + layout.slices()[other].parameter->name);
      EXPECT_NEAR(errors[other].squared_error, other == p ? 1 : 0, 1e-5);
      EXPECT_EQ(errors[other].worst_block > 1e-3, other == p);
    }
    EXPECT_EQ(errors[p].row, slice.parameter->vector ? 0 : slice.row + row) << "a vector is one row";
  }
}

// A block of small elements is measured by the parameter's average, a block of large elements by its own.
TEST(Comparison, ABlockIsMeasuredByItsOwnSizeOrTheAverage) {
  Unit unit(0);
  const UnitLayout& layout = unit.whole;
  const Box& table = layout.slices().front();
  ASSERT_EQ(table.parameter->name, "tok_embeddings.weight");
  std::fill(unit.expected.begin(), unit.expected.end(), 0.0F);
  const auto row = [&](std::vector<float>& flat, int64_t r) {
    return flat.begin() + table.offset + r * table.stride;
  };
  std::fill_n(row(unit.expected, 3), table.columns, 10.0F);
  std::vector<float> found = unit.expected;
  *row(found, 3) += 1;
  std::vector<ParameterError> errors = unit.compare(layout, 0, found);
  EXPECT_NEAR(errors[0].worst_block, 1 / (10 * std::sqrt(40.0)), 1e-6);
  EXPECT_EQ(errors[0].row, 3);
  found = unit.expected;
  *row(found, 7) += 1;  // where one rank has zeros
  errors = unit.compare(layout, 0, found);
  EXPECT_NEAR(errors[0].worst_block, std::sqrt(61.0) / (10 * std::sqrt(40.0)), 1e-6);
  EXPECT_EQ(errors[0].row, 7);
  std::fill(unit.expected.begin(), unit.expected.end(), 0.0F);
  found = unit.expected;
  *row(found, 7) = 1e-30F;
  EXPECT_TRUE(std::isinf(unit.compare(layout, 0, found)[0].worst_block)) << "nothing was expected at all";
}

TEST(Comparison, UpdatesAreMeasuredWithoutTheInitialWeights) {
  Unit unit(0);
  const Box& table = unit.whole.slices().front();
  const ParameterSpec& p = *table.parameter;
  std::vector<float> initial(static_cast<size_t>(p.count()));
  initial_values(p, 9, 0, p.count(), initial.data());
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < p.columns; ++c)
      unit.expected[static_cast<size_t>(table.offset + r * table.stride + c)] =
          initial[static_cast<size_t>(r * p.columns + c)] + 0.5F;
  const auto read = [&](int64_t first, std::span<float> to) {
    std::copy_n(unit.expected.begin() + first, to.size(), to.begin());
  };
  const Baseline baseline(9);
  EXPECT_NEAR(squared_norms(unit.whole, read, baseline)[0], 0.25 * static_cast<double>(p.count()), 1e-3);
  std::vector<float> found = unit.expected;
  for (float& value : found) value += 0.05F;
  EXPECT_NEAR(unit.compare(unit.whole, 0, found, baseline)[0].worst_block, 0.1, 1e-4);
}

TEST(Comparison, ValuesThatAreNotFiniteAreFound) {
  const Unit unit(kLayer);
  const Box& slice = unit.whole.slices().back();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> found = unit.expected;
    found[static_cast<size_t>(slice.offset)] = bad;
    const std::vector<ParameterError> errors = unit.compare(unit.whole, 0, found);
    EXPECT_FALSE(errors.back().finite);
    EXPECT_TRUE(errors.front().finite);
    EXPECT_FALSE(errors.back().worst_block <= 1);
    ParameterError all = errors.back();
    all.add(errors.front());
    EXPECT_FALSE(all.finite);
    EXPECT_FALSE(all.worst_block <= 1) << "an error that is no number stays the worst";
  }
}

TEST(Comparison, PaddingIsFound) {
  const Unit unit(2);  // norm and head: 61 ids
  const UnitLayout layout(unit.spec, 2, 1, 1);
  std::vector<float> flat = filled(layout);
  EXPECT_EQ(largest_padding(layout, 0, flat), 0);
  flat.back() = -2;
  EXPECT_EQ(largest_padding(layout, 0, flat), 2);
  flat.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isinf(largest_padding(layout, 0, flat)));
}

TEST(CheckValues, AreInitialOnesButForB) {
  const AdapterSpec adapter = adapter_specs(kModel, {.rank = 3, .alpha = 1})[0];
  for (const ParameterSpec& p : {adapter.matrix, adapter.a}) {
    std::vector<float> found(16), expected(16);
    check_values(p, 5, 2, 16, found.data());
    initial_values(p, 5, 2, 16, expected.data());
    EXPECT_EQ(found, expected) << p.name;
  }
  std::vector<float> b(static_cast<size_t>(adapter.b.count())), part(7);
  check_values(adapter.b, 5, 0, std::ssize(b), b.data());
  check_values(adapter.b, 5, 4, 7, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), b.begin() + 4));
  const auto size = static_cast<float>(1 / std::sqrt(static_cast<double>(adapter.b.rows)));
  for (const float value : b) {
    EXPECT_NE(value, 0);
    EXPECT_LE(std::abs(value), size);
  }
}

}  // namespace
}  // namespace ripstop
