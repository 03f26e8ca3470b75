// The interpreter of cuDNN's graphs: each operation against a plain loop in float64.
#include "tests/emulated_device/cudnn_interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "model/device/dtype.h"
#include "tests/emulated_device/cudnn_test_queue.h"
#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

using Extents = std::array<int64_t, 4>;
using Kind = OperationRecord::Kind;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}
Extents packed(const Extents& e) {
  return {e[1] * e[2] * e[3], e[2] * e[3], e[3], 1};
}
int64_t count(const Extents& e) {
  return e[0] * e[1] * e[2] * e[3];
}

// Builds a graph, fills its inputs with random numbers, and reads its outputs.
class InterpreterTest : public testing::Test {
 protected:
  TensorHandle tensor(const Extents& extents, const Extents& strides, cudnnDataType_t type = CUDNN_DATA_FLOAT,
                      TensorHandle ragged = nullptr) {
    const auto t = std::make_shared<GraphTensorRecord>();
    t->type = type;
    t->extents = extents;
    t->strides = strides;
    t->id = ++last_id_;
    t->alignment = 16;
    t->ragged_offset = std::move(ragged);
    return t;
  }
  TensorHandle tensor(const Extents& extents) { return tensor(extents, packed(extents)); }
  TensorHandle virtual_tensor(const Extents& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return virtual_tensor(extents, packed(extents), type);
  }
  TensorHandle virtual_tensor(const Extents& extents, const Extents& strides, cudnnDataType_t type) {
    auto t = std::make_shared<GraphTensorRecord>(*tensor(extents, strides, type));
    t->is_virtual = true;
    return t;
  }
  TensorHandle scalar(float value) {
    auto t = std::make_shared<GraphTensorRecord>(*tensor({1, 1, 1, 1}));
    t->by_value = true;
    memory_.scalars[t->id] = value;
    return t;
  }
  TensorHandle integers(const std::vector<int64_t>& values) {
    const auto size = static_cast<int64_t>(values.size());
    auto t = tensor({size, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT64);
    blocks_.push_back(block_of(values));
    memory_.pointers[t->id] = blocks_.back().data();
    return t;
  }
  TensorHandle lengths(const std::vector<int32_t>& values) {
    const auto size = static_cast<int64_t>(values.size());
    auto t = tensor({size, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT32);
    blocks_.push_back(block_of(values));
    memory_.pointers[t->id] = blocks_.back().data();
    return t;
  }

  /// Memory of `elements` elements for a tensor: random, or NaN for an output.
  void bind(const TensorHandle& t, int64_t elements, bool output = false) {
    const bool narrow = t->type == CUDNN_DATA_BFLOAT16;
    blocks_.emplace_back(elements * (narrow ? 2 : 4));
    std::normal_distribution<float> normal(0, 1);
    for (int64_t i = 0; i < elements && !output; ++i) {
      if (narrow) blocks_.back().as<BFloat16>()[i] = BFloat16(normal(generator_));
      if (!narrow) blocks_.back().as<float>()[i] = normal(generator_);
    }
    memory_.pointers[t->id] = blocks_.back().data();
  }
  void bind(const TensorHandle& t) { bind(t, count(t->extents)); }
  void bind_output(const TensorHandle& t) { bind(t, count(t->extents), true); }

  double element(const TensorHandle& t, int64_t i) const {
    const void* data = memory_.pointers.at(t->id);
    return t->type == CUDNN_DATA_BFLOAT16
               ? static_cast<double>(static_cast<float>(static_cast<const BFloat16*>(data)[i]))
               : static_cast<double>(static_cast<const float*>(data)[i]);
  }
  double element(const TensorHandle& t, int64_t b, int64_t h, int64_t i, int64_t j) const {
    const Extents& s = t->strides;
    const Extents& e = t->extents;
    return element(t, (e[0] == 1 ? 0 : b * s[0]) + (e[1] == 1 ? 0 : h * s[1]) + (e[2] == 1 ? 0 : i * s[2]) +
                          (e[3] == 1 ? 0 : j * s[3]));
  }

  void add(OperationRecord o) { graph_.operations.push_back(std::move(o)); }
  void run() {
    ASSERT_EQ(not_interpreted(graph_), std::nullopt);
    memory_.allowed = on_device;
    interpret(graph_, memory_);
  }

  GraphRecord graph_;
  GraphMemory memory_;

 private:
  std::vector<DeviceBlock> blocks_;
  int64_t last_id_ = 0;
  std::mt19937 generator_{7};
};

TEST_F(InterpreterTest, ProductsReadAnyStrides) {
  // b is transposed in memory, a has gaps between rows, and two heads of a share one of b.
  const TensorHandle a = tensor({2, 4, 5, 3}, {4 * 5 * 7, 7, 4 * 7, 1});
  const TensorHandle b = tensor({2, 2, 3, 6}, {2 * 6 * 3, 6 * 3, 1, 3}), c = tensor({2, 4, 5, 6});
  bind(a, 2 * 4 * 5 * 7);
  bind(b);
  bind_output(c);
  add({.kind = Kind::kMatmul, .x = a, .b = b, .y = c});
  run();
  for (int64_t d = 0; d < 2; ++d)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < 5; ++i)
        for (int64_t j = 0; j < 6; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < 3; ++k) sum += element(a, d, h, i, k) * element(b, d, h / 2, k, j);
          ASSERT_NEAR(element(c, d, h, i, j), sum, 1e-5);
        }
}

TEST_F(InterpreterTest, ProductsStopAtLengths) {
  const TensorHandle a = tensor({2, 1, 4, 4}), b = tensor({2, 1, 4, 4}), length = lengths({3, 1});
  const TensorHandle padded = tensor({2, 1, 4, 4}), open = tensor({2, 1, 4, 4}),
                     shorter = tensor({2, 1, 4, 4});
  for (const TensorHandle& t : {a, b}) bind(t);
  for (const TensorHandle& t : {padded, open, shorter}) bind_output(t);
  add({.kind = Kind::kMatmul, .x = a, .b = b, .y = padded, .m = length, .n = length, .padding = -7.0});
  add({.kind = Kind::kMatmul, .x = a, .b = b, .y = open, .m = length, .n = length});
  add({.kind = Kind::kMatmul, .x = a, .b = b, .y = shorter, .k = length});
  run();
  for (int64_t d = 0; d < 2; ++d)
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t size = d == 0 ? 3 : 1;
        double sum = 0, part = 0;
        for (int64_t k = 0; k < 4; ++k) {
          sum += element(a, d, 0, i, k) * element(b, d, 0, k, j);
          if (k < size) part += element(a, d, 0, i, k) * element(b, d, 0, k, j);
        }
        const bool inside = i < size && j < size;
        ASSERT_NEAR(element(padded, d, 0, i, j), inside ? sum : -7, 1e-5);
        ASSERT_EQ(std::isnan(element(open, d, 0, i, j)), !inside);
        ASSERT_NEAR(element(shorter, d, 0, i, j), part, 1e-5);
      }
}

TEST_F(InterpreterTest, ProductsOfTensorCoresRoundBothOperands) {
  const TensorHandle a = tensor({1, 1, 1, 1}), c = tensor({1, 1, 1, 1});
  const TensorHandle b = tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_BFLOAT16);
  for (const TensorHandle& t : {a, b}) bind(t);
  bind_output(c);
  static_cast<float*>(memory_.pointers[a->id])[0] = 1.001F;
  static_cast<BFloat16*>(memory_.pointers[b->id])[0] = BFloat16(1.0F);
  add({.kind = Kind::kMatmul, .x = a, .b = b, .y = c});
  run();
  EXPECT_EQ(element(c, 0), 1.0);
}

TEST_F(InterpreterTest, EveryPointwiseModeIsItsFormula) {
  const Extents extents{2, 3, 4, 5};
  const TensorHandle x = tensor(extents), b = tensor({2, 3, 4, 1}), mask = tensor(extents);
  for (const TensorHandle& t : {x, b}) bind(t);
  bind(mask);
  for (int64_t i = 0; i < count(extents); ++i)
    static_cast<float*>(memory_.pointers[mask->id])[i] = i % 3 == 0 ? 1 : 0;
  using Formula = double (*)(double, double);
  const std::vector<std::pair<cudnnPointwiseMode_t, Formula>> two{
      {CUDNN_POINTWISE_ADD, [](double p, double q) { return p + q; }},
      {CUDNN_POINTWISE_SUB, [](double p, double q) { return p - q; }},
      {CUDNN_POINTWISE_MUL, [](double p, double q) { return p * q; }},
      {CUDNN_POINTWISE_DIV, [](double p, double q) { return p / q; }},
      {CUDNN_POINTWISE_MAX, [](double p, double q) { return std::fmax(p, q); }},
      {CUDNN_POINTWISE_MIN, [](double p, double q) { return std::fmin(p, q); }},
      {CUDNN_POINTWISE_CMP_EQ, [](double p, double q) { return p == q ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_CMP_NEQ, [](double p, double q) { return p != q ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_CMP_GT, [](double p, double q) { return p > q ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_CMP_GE, [](double p, double q) { return p >= q ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_CMP_LT, [](double p, double q) { return p < q ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_CMP_LE, [](double p, double q) { return p <= q ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_LOGICAL_AND, [](double p, double q) { return p != 0 && q != 0 ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_LOGICAL_OR, [](double p, double q) { return p != 0 || q != 0 ? 1.0 : 0.0; }}};
  const std::vector<std::pair<cudnnPointwiseMode_t, Formula>> one{
      {CUDNN_POINTWISE_EXP, [](double p, double) { return std::exp(p); }},
      {CUDNN_POINTWISE_LOG, [](double p, double) { return std::log(p); }},
      {CUDNN_POINTWISE_NEG, [](double p, double) { return -p; }},
      {CUDNN_POINTWISE_LOGICAL_NOT, [](double p, double) { return p == 0 ? 1.0 : 0.0; }},
      {CUDNN_POINTWISE_IDENTITY, [](double p, double) { return p; }}};
  std::vector<TensorHandle> results;
  const auto result = [&] {
    results.push_back(tensor(extents));
    bind_output(results.back());
    return results.back();
  };
  for (const auto& mode : two)
    add({.kind = Kind::kPointwise, .x = x, .b = b, .y = result(), .mode = mode.first});
  for (const auto& mode : one) add({.kind = Kind::kPointwise, .x = x, .y = result(), .mode = mode.first});
  add({.kind = Kind::kPointwise,
       .x = x,
       .b = b,
       .t = mask,
       .y = result(),
       .mode = CUDNN_POINTWISE_BINARY_SELECT});
  for (int64_t axis = 0; axis < 4; ++axis)
    add({.kind = Kind::kPointwise, .x = x, .y = result(), .mode = CUDNN_POINTWISE_GEN_INDEX, .axis = axis});
  run();
  for (int64_t d = 0; d < 2; ++d)
    for (int64_t h = 0; h < 3; ++h)
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t j = 0; j < 5; ++j) {
          const double p = element(x, d, h, i, j), q = element(b, d, h, i, j);
          size_t r = 0;
          const auto expect = [&](double expected) {
            const double actual = element(results[r++], d, h, i, j);
            if (std::isnan(expected)) {
              ASSERT_TRUE(std::isnan(actual)) << r;
            } else {
              ASSERT_NEAR(actual, expected, 1e-5 * (1 + std::abs(expected))) << r;
            }
          };
          for (const auto& mode : two) expect(mode.second(p, q));
          for (const auto& mode : one) expect(mode.second(p, q));
          expect(element(mask, d, h, i, j) != 0 ? p : q);
          for (const int64_t index : {d, h, i, j}) expect(static_cast<double>(index));
        }
}

TEST_F(InterpreterTest, ReductionsTakeEveryDimThatDiffers) {
  const TensorHandle x = tensor({2, 6, 3, 4});
  bind(x);
  const std::vector<Extents> outputs{{2, 6, 3, 1}, {2, 6, 1, 4}, {2, 6, 1, 1}, {2, 2, 3, 4}, {2, 1, 1, 1}};
  for (const Extents& e : outputs)
    for (const cudnnReduceTensorOp_t op : {CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_MAX}) {
      graph_.operations.clear();
      const TensorHandle y = tensor(e);
      bind_output(y);
      add({.kind = Kind::kReduction, .x = x, .y = y, .reduce = op});
      run();
      const bool largest = op == CUDNN_REDUCE_TENSOR_MAX;
      std::vector<double> expected(at(count(e)), largest ? -kInfinity : 0);
      for (int64_t d = 0; d < 2; ++d)
        for (int64_t h = 0; h < 6; ++h)
          for (int64_t i = 0; i < 3; ++i)
            for (int64_t j = 0; j < 4; ++j) {
              // Neighbouring heads form a group.
              double& to = expected[at(((d * e[1] + h * e[1] / 6) * e[2] + (e[2] == 1 ? 0 : i)) * e[3] +
                                       (e[3] == 1 ? 0 : j))];
              const double v = element(x, d, h, i, j);
              to = largest ? std::fmax(to, v) : to + v;
            }
      for (int64_t i = 0; i < count(e); ++i) ASSERT_NEAR(element(y, i), expected[at(i)], 1e-5);
    }
}

TEST_F(InterpreterTest, ReshapesKeepAddresses) {
  const TensorHandle x = tensor({1, 2, 3, 4}), y = tensor({1, 2, 4, 3});
  const TensorHandle copy = virtual_tensor({1, 2, 3, 4});
  const TensorHandle turned = virtual_tensor({1, 2, 4, 3}, {24, 12, 1, 4}, CUDNN_DATA_FLOAT);
  bind(x);
  bind_output(y);
  add({.kind = Kind::kPointwise, .x = x, .y = copy, .mode = CUDNN_POINTWISE_IDENTITY});
  add({.kind = Kind::kReshape, .x = copy, .y = turned});
  add({.kind = Kind::kPointwise, .x = turned, .y = y, .mode = CUDNN_POINTWISE_IDENTITY});
  run();
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 4; ++j) ASSERT_EQ(element(y, 0, h, j, i), element(x, 0, h, i, j));
  graph_.operations[1].y = virtual_tensor({1, 2, 4, 3}, {24, 12, 3, 1}, CUDNN_DATA_FLOAT);
  EXPECT_THROW(interpret(graph_, memory_), std::runtime_error);
}

TEST_F(InterpreterTest, RaggedTensorsBeginAtTheirOffsets) {
  // Documents of 2 and 3 rows of 2 heads of 2 elements, in rows of 5 elements.
  const TensorHandle offset = integers({5, 15, 30}), length = lengths({2, 3});
  const TensorHandle x = tensor({2, 2, 4, 2}, {20, 2, 5, 1}, CUDNN_DATA_FLOAT, offset);
  const TensorHandle y = tensor({2, 2, 4, 2}, {20, 2, 5, 1}, CUDNN_DATA_FLOAT, offset),
                     z = tensor({2, 2, 4, 2});
  const TensorHandle identity = tensor({2, 2, 2, 2});
  bind(x, 35);
  bind(y, 35, true);
  bind_output(z);
  bind(identity);
  for (int64_t i = 0; i < 16; ++i)
    static_cast<float*>(memory_.pointers[identity->id])[i] = i % 4 == 0 || i % 4 == 3 ? 1 : 0;
  add({.kind = Kind::kMatmul, .x = x, .b = identity, .y = y, .m = length});
  add({.kind = Kind::kPointwise, .x = y, .y = z, .mode = CUDNN_POINTWISE_IDENTITY});
  run();
  for (int64_t i = 0; i < 35; ++i) {
    const bool inside = i >= 5 && i < 30 && i % 5 < 4;
    if (inside) {
      ASSERT_EQ(element(y, i), element(x, i)) << i;
    } else {
      ASSERT_TRUE(std::isnan(element(y, i))) << i;
    }
  }
  // Beyond a document lies nothing that could be relied upon.
  for (int64_t d = 0; d < 2; ++d)
    for (int64_t i = 0; i < 4; ++i) ASSERT_EQ(std::isnan(element(z, d, 1, i, 0)), i >= (d == 0 ? 2 : 3));
}

TEST_F(InterpreterTest, OffsetsOfOnePartPerHeadAreMultipliedByTheGroup) {
  const TensorHandle offset = integers({0, 2, 3}), length = lengths({2, 1});
  const TensorHandle x = tensor({2, 3, 2, 1}), one = tensor({2, 3, 1, 1});
  const TensorHandle wide = tensor({2, 3, 2, 1}, {6, 1, 3, 1}, CUDNN_DATA_FLOAT, offset);
  const TensorHandle sum = tensor({2, 1, 2, 1}, {2, 1, 1, 1}, CUDNN_DATA_FLOAT, offset);
  for (const TensorHandle& t : {x, one}) bind(t);
  bind(wide, 9, true);
  bind(sum, 3, true);
  add({.kind = Kind::kMatmul, .x = x, .b = one, .y = wide, .m = length});
  add({.kind = Kind::kReduction, .x = wide, .y = sum});
  run();
  const auto product = [&](int64_t d, int64_t h, int64_t i) {
    return element(x, d, h, i, 0) * element(one, d, h, 0, 0);
  };
  for (int64_t n = 0; n < 3; ++n) {
    const int64_t d = n / 2, i = n % 2;
    double total = 0;
    for (int64_t h = 0; h < 3; ++h) {
      ASSERT_NEAR(element(wide, n * 3 + h), product(d, h, i), 1e-5);
      total += product(d, h, i);
    }
    ASSERT_NEAR(element(sum, n), total, 1e-5);
  }
}

TEST_F(InterpreterTest, TensorsHaveTheirPrecision) {
  const TensorHandle x = tensor({1, 1, 1, 8}), y = tensor({1, 1, 1, 8});
  const TensorHandle narrow = virtual_tensor({1, 1, 1, 8}, CUDNN_DATA_BFLOAT16);
  const TensorHandle stored = tensor({1, 1, 1, 8}, {8, 8, 8, 1}, CUDNN_DATA_BFLOAT16);
  bind(x);
  bind_output(y);
  bind_output(stored);
  add({.kind = Kind::kPointwise, .x = x, .y = narrow, .mode = CUDNN_POINTWISE_IDENTITY});
  add({.kind = Kind::kPointwise, .x = narrow, .y = y, .mode = CUDNN_POINTWISE_IDENTITY});
  add({.kind = Kind::kPointwise, .x = x, .b = scalar(3), .y = stored, .mode = CUDNN_POINTWISE_MUL});
  run();
  for (int64_t i = 0; i < 8; ++i) {
    const auto v = static_cast<float>(element(x, i));
    EXPECT_EQ(element(y, i), static_cast<double>(static_cast<float>(BFloat16(v))));
    EXPECT_EQ(element(stored, i), static_cast<double>(static_cast<float>(BFloat16(v * 3))));
  }
}

TEST_F(InterpreterTest, MemoryOutsideOfABlockIsNotTouched) {
  const TensorHandle x = tensor({1, 1, 2, 4}), y = tensor({1, 1, 2, 4}, {8, 8, 5, 1});
  bind(x);
  bind_output(y);  // one element too few, because of its stride
  add({.kind = Kind::kPointwise, .x = x, .y = y, .mode = CUDNN_POINTWISE_IDENTITY});
  memory_.allowed = on_device;
  EXPECT_THROW(interpret(graph_, memory_), std::runtime_error);
}

TEST_F(InterpreterTest, SaysWhatItDoesNotRun) {
  const TensorHandle x = tensor({1, 1, 2, 4}), y = tensor({1, 1, 2, 4});
  add({.kind = Kind::kPointwise, .x = x, .y = y, .mode = CUDNN_POINTWISE_TAN});
  EXPECT_NE(not_interpreted(graph_), std::nullopt);
  graph_.operations[0] = {.kind = Kind::kReduction, .x = x, .y = y, .reduce = CUDNN_REDUCE_TENSOR_NORM1};
  EXPECT_NE(not_interpreted(graph_), std::nullopt);
  graph_.operations[0] = {.kind = Kind::kMatmul, .x = x, .b = tensor({1, 1, 3, 4}), .y = y};
  EXPECT_NE(not_interpreted(graph_), std::nullopt);
  graph_.operations[0] = {.kind = Kind::kPointwise, .x = virtual_tensor({1, 1, 2, 4}), .y = y};
  EXPECT_NE(not_interpreted(graph_), std::nullopt);
}

}  // namespace
}  // namespace ripstop::emulated
