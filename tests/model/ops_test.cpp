// Tests of the norm, feed-forward, elementwise and optimizer operations.
#include "tests/model/op_test.h"

namespace ripstop {
namespace {

using NormTest = OpTest;

TEST_P(NormTest, ForwardWithAndWithoutBranch) {
  for (const int64_t rows : {0, 1, 17, 65})
    for (const int64_t columns : {2, 17, 64, 288, 8200}) {
      if (columns > 1000 && rows != 1) continue;
      const Values residual = random(rows * columns), branch = random(rows * columns),
                   weight = random(columns);
      for (const bool has_branch : {false, true})
        for (const bool in_place : {false, true}) {
          Values sum = residual;
          for (size_t i = 0; has_branch && i < sum.size(); ++i)
            sum[i] = reference::stored(residual[i] + branch[i], dtype());
          const auto expected = reference::rmsnorm(sum, weight, rows, 1e-5);
          const auto outputs = repeated([&] {
            const Tensor r = put(residual, {rows, columns});
            const Tensor s = in_place ? r : room(dtype(), {rows, columns});
            const Tensor b = has_branch ? put(branch, {rows, columns}) : Tensor{};
            const Tensor normed = room(dtype(), {rows, columns}), inverse = room(DType::kFloat32, {rows});
            kernels().add_rmsnorm(call(), r, b, put(weight, {columns}), 1e-5, s, normed, inverse);
            return Outputs{get(s), get(normed), get(inverse)};
          });
          expect_close(outputs[0], sum, dtype());
          expect_close(outputs[1], expected.normed, dtype());
          expect_close(outputs[2], expected.inverse_rms, DType::kFloat32);
        }
    }
}

TEST_P(NormTest, Backward) {
  for (const int64_t rows : {0, 1, 17, 65, 600})
    for (const int64_t columns : {2, 17, 288, 4100})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        if (columns > 1000 && (rows != 1 || accumulate == Accumulate::kYes)) continue;
        if (rows > 500 && (columns == 2 || accumulate == Accumulate::kNo)) continue;
        const Values dnormed = random(rows * columns), sum = random(rows * columns), weight = random(columns);
        const Values dresidual = random(rows * columns), before = random(columns, DType::kFloat32);
        Values inverse = reference::rmsnorm(sum, weight, rows, 1e-5).inverse_rms;
        auto expected = reference::rmsnorm_backward(dnormed, sum, weight, inverse);
        for (size_t i = 0; i < dresidual.size(); ++i) expected.sum[i] += dresidual[i];
        for (size_t i = 0; accumulate == Accumulate::kYes && i < before.size(); ++i)
          expected.weight[i] += before[i];
        const auto outputs = repeated([&] {
          const Tensor dr = put(dresidual, {rows, columns});
          const Tensor dw = accumulate == Accumulate::kYes ? put(before, DType::kFloat32, {columns})
                                                           : room(DType::kFloat32, {columns});
          kernels().add_rmsnorm_backward(call(workspaces().add_rmsnorm_backward(rows, columns)),
                                         put(dnormed, {rows, columns}), put(sum, {rows, columns}),
                                         put(weight, {columns}), put(inverse, DType::kFloat32, {rows}), dr,
                                         dw, accumulate);
          return Outputs{get(dr), get(dw)};
        });
        expect_close(outputs[0], expected.sum, dtype(), 2);
        expect_close(outputs[1], expected.weight, DType::kFloat32, 4);
        const auto frozen = repeated([&] {
          const Tensor dr = put(dresidual, {rows, columns});
          kernels().add_rmsnorm_backward(call(workspaces().add_rmsnorm_backward(rows, columns)),
                                         put(dnormed, {rows, columns}), put(sum, {rows, columns}),
                                         put(weight, {columns}), put(inverse, DType::kFloat32, {rows}), dr,
                                         {}, accumulate);
          return Outputs{get(dr)};
        });
        EXPECT_EQ(frozen[0], outputs[0]);
      }
}
RIPSTOP_OP_TESTS(NormTest);

using BiasTest = OpTest;

TEST_P(BiasTest, AddedToEachRowAndSummedOverThem) {
  for (const int64_t rows : {0, 1, 17, 65, 1100})
    for (const int64_t columns : {1, 17, 64, 4100})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        if (columns > 1000 && (rows != 65 || accumulate == Accumulate::kYes)) continue;
        const Values y = random(rows * columns), bias = random(columns),
                     before = random(columns, DType::kFloat32);
        Values sum = y, dbias = accumulate == Accumulate::kYes ? before : Values(at(columns));
        for (size_t i = 0; i < y.size(); ++i) {
          sum[i] += bias[i % at(columns)];
          dbias[i % at(columns)] += y[i];
        }
        const auto outputs = repeated([&] {
          const Tensor out = put(y, {rows, columns});
          kernels().add_bias(call(), put(bias, {columns}), out);
          const Tensor db = accumulate == Accumulate::kYes ? put(before, DType::kFloat32, {columns})
                                                           : room(DType::kFloat32, {columns});
          kernels().add_bias_backward(call(workspaces().add_bias_backward(rows, columns)),
                                      put(y, {rows, columns}), db, accumulate);
          return Outputs{get(out), get(db)};
        });
        expect_close(outputs[0], sum, dtype());
        expect_close(outputs[1], dbias, DType::kFloat32, 4);
      }
}
RIPSTOP_OP_TESTS(BiasTest);

using SwigluTest = OpTest;

TEST_P(SwigluTest, ForwardAndBackward) {
  for (const int64_t rows : {0, 1, 17, 65})
    for (const int64_t columns : {1, 17, 64, 768}) {
      const Values gate_up = random(2 * rows * columns, dtype(), 4), dout = random(rows * columns);
      const Values expected = reference::swiglu(gate_up, rows, columns);
      const auto outputs = repeated([&] {
        const Tensor x = put(gate_up, {rows, 2 * columns}), out = room(dtype(), {rows, columns});
        kernels().swiglu(call(), x, out);
        const Values forward = get(out);
        const Tensor dy = put(dout, {rows, columns});
        kernels().swiglu_backward(call(), x, dy);
        return Outputs{forward, get(x), get(dy)};
      });
      expect_close(outputs[0], expected, dtype());
      expect_close(outputs[1], reference::swiglu_backward(gate_up, dout, rows, columns), dtype(), 2);
      expect_close(outputs[2], expected, dtype());
    }
}

TEST_P(SwigluTest, FarFromZero) {
  const Values gate_up{-1000, -200, -90, -50, 50, 90, 200, 1000, 1, 1, 1, 1, 1, 1, 1, 1};
  const Tensor out = room(dtype(), {1, 8});
  kernels().swiglu(call(), put(gate_up, {1, 16}), out);
  const Values values = get(out);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], 0, 1e-18);
  for (size_t i = 4; i < 8; ++i) EXPECT_NEAR(values[i], gate_up[i], gate_up[i] * 0.004);
}
RIPSTOP_OP_TESTS(SwigluTest);

using ElementwiseTest = OpTest;

TEST_P(ElementwiseTest, SumsInDouble) {
  for (const int64_t count : {0, 1, 63, 16384, 100003}) {
    const Values x = random(count, DType::kFloat32);
    double sum = 0.5, squares = 0.25;
    for (const double v : x) sum += v, squares += v * v;
    const Tensor xt = put(x, DType::kFloat32, {count});
    const auto outputs = repeated([&] {
      const Tensor total = put({0.5}, DType::kFloat64, {1}), norm = put({0.25}, DType::kFloat64, {1});
      kernels().add_sum(call(workspaces().add_sum(count)), xt, total);
      kernels().add_squared_norm(call(workspaces().add_sum(count)), xt, norm);
      return Outputs{get(total), get(norm)};
    });
    EXPECT_NEAR(outputs[0][0], sum, 1e-9);
    EXPECT_NEAR(outputs[1][0], squares, 1e-9 * squares);
  }
}

TEST_P(ElementwiseTest, SumsOfDoubles) {
  for (const int64_t count : {1, 7, 66, 1000}) {
    const Values x = random(count, DType::kFloat64);
    double sum = 0.5;
    for (const double v : x) sum += v;
    const Tensor xt = put(x, DType::kFloat64, {count});
    const auto outputs = repeated([&] {
      const Tensor total = put({0.5}, DType::kFloat64, {1});
      kernels().add_sum(call(workspaces().add_sum(count)), xt, total);
      return Outputs{get(total)};
    });
    EXPECT_NEAR(outputs[0][0], sum, 1e-12 * static_cast<double>(count));
  }
}

TEST_P(ElementwiseTest, FillConvertAdd) {
  for (const int64_t count : {1, 17, 64, 40001}) {
    const Values x = random(count, DType::kFloat32), y = random(count, DType::kFloat32);
    Values rounded, sum;
    for (size_t i = 0; i < x.size(); ++i) {
      rounded.push_back(reference::stored(x[i], dtype()));
      sum.push_back(reference::stored(x[i] + y[i], DType::kFloat32));
    }
    const auto outputs = repeated([&] {
      const Tensor zero = room(dtype(), {count}), to = room(dtype(), {count}),
                   back = room(DType::kFloat32, {count});
      const Tensor from = put(x, DType::kFloat32, {count}), into = put(y, DType::kFloat32, {count});
      kernels().fill_zero(call(), zero);
      kernels().convert(call(), from, to);
      kernels().convert(call(), to, back);
      kernels().add(call(), from, into);
      return Outputs{get(zero), get(to), get(back), get(into)};
    });
    EXPECT_EQ(outputs[0], Values(at(count)));
    EXPECT_EQ(outputs[1], rounded);
    EXPECT_EQ(outputs[2], rounded);
    EXPECT_EQ(outputs[3], sum);
  }
}

// A part of a tensor need not be aligned.
TEST_P(ElementwiseTest, PartsOfTensors) {
  const int64_t count = 1000;
  const Values x = random(count + 1, DType::kFloat32), y = random(count + 1, dtype());
  double squares = 0;
  Values sum = y;
  for (size_t i = 1; i < x.size(); ++i) {
    squares += x[i] * x[i];
    sum[i] = x[i] + reference::stored(y[i], DType::kFloat32);
  }
  const auto part = [&](const Tensor& t) { return t.row_range(1, count); };
  const auto outputs = repeated([&] {
    const Tensor from = put(x, DType::kFloat32, {count + 1}), to = put(y, {count + 1});
    const Tensor into = room(DType::kFloat32, {count + 1}), norm = put({0}, DType::kFloat64, {1});
    kernels().convert(call(), to, into);
    kernels().add(call(), part(from), part(into));
    kernels().fill_zero(call(), part(to));
    kernels().add_squared_norm(call(workspaces().add_sum(count)), part(from), norm);
    return Outputs{get(into), get(to), get(norm)};
  });
  Values zeros(y.size());
  zeros[0] = y[0];
  expect_close(outputs[0], sum, DType::kFloat32);
  EXPECT_EQ(outputs[1], zeros);
  EXPECT_NEAR(outputs[2][0], squares, 1e-9 * squares);
}

TEST_P(ElementwiseTest, ConversionKeepsInfinityAndNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Values x{infinity, -infinity, std::nan(""), 3.4e38, -0.0, 1e-40};
  const Tensor to = room(dtype(), {6});
  kernels().convert(call(), put(x, DType::kFloat32, {6}), to);
  const Values y = get(to);
  EXPECT_EQ(y[0], infinity);
  EXPECT_EQ(y[1], -infinity);
  EXPECT_TRUE(std::isnan(y[2]));
  for (size_t i = 3; i < 6; ++i) EXPECT_EQ(y[i], reference::stored(x[i], dtype())) << x[i];
  EXPECT_TRUE(std::signbit(y[4]));
}
RIPSTOP_OP_TESTS(ElementwiseTest);

using OptimizerTest = OpTest;

TEST_P(ElementwiseTest, SumsPiecesInOrder) {
  for (const int64_t count : {1, 7, 8, 2048, 5001})
    for (const size_t number : {1UL, 2UL, 5UL})
      for (const bool mixed : {false, true})
        for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
          // A rank's own piece keeps its dtype, and one piece is not aligned to vectors.
          std::vector<Values> pieces;
          std::vector<DType> dtypes;
          for (size_t p = 0; p < number; ++p) {
            dtypes.push_back(mixed && dtype() == DType::kFloat32 && p != 1 ? DType::kBFloat16 : dtype());
            pieces.push_back(random(count + 1, dtypes[p]));
          }
          const Values before = random(count);
          const int64_t skipped = count == 2048 ? 0 : 1;
          Values expected(at(count));
          for (size_t i = 0; i < expected.size(); ++i) {
            float sum = 0;
            for (const Values& piece : pieces) sum += static_cast<float>(piece[i + at(skipped)]);
            if (accumulate == Accumulate::kYes) sum = static_cast<float>(before[i]) + sum;
            expected[i] = reference::stored(static_cast<double>(sum), dtype());
          }
          const auto outputs = repeated([&] {
            const Tensor out = put(before, {count});
            std::vector<RankPiece> table;
            for (size_t p = 0; p < number; ++p)
              table.push_back(
                  {put(pieces[p], dtypes[p], {count + 1}).row_range(skipped, count).data, dtypes[p]});
            kernels().reduce_pieces(call(), table, out, accumulate);
            return Outputs{get(out)};
          });
          ASSERT_EQ(outputs[0], expected) << count << " elements of " << number << " pieces";
        }
}

TEST_P(OptimizerTest, AdamWStep) {
  for (const int64_t count : {1, 17, 20000}) {
    const AdamWStep step{.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .step = 3};
    const Values gradient = random(count, DType::kFloat32), master = random(count, DType::kFloat32);
    const Values first = random(count, DType::kFloat32);
    Values second = random(count, DType::kFloat32);
    for (double& v : second) v = std::abs(v);
    const auto run = [&](float factor, float go) {
      return repeated([&, factor, go] {
        const Tensor m = put(master, DType::kFloat32, {count}), f = put(first, DType::kFloat32, {count});
        const Tensor s = put(second, DType::kFloat32, {count}), copy = room(dtype(), {count});
        kernels().adamw(call(), step, put({factor, go}, DType::kFloat32, {2}),
                        put(gradient, DType::kFloat32, {count}), m, f, s, copy);
        return Outputs{get(m), get(f), get(s), get(copy)};
      });
    };
    const auto expected = reference::adamw(step, 0.25, gradient, {master, first, second});
    const auto outputs = run(0.25F, 1);
    expect_close(outputs[0], expected.master, DType::kFloat32);
    expect_close(outputs[1], expected.first, DType::kFloat32);
    expect_close(outputs[2], expected.second, DType::kFloat32);
    expect_close(outputs[3], expected.master, dtype());
    const auto skipped = run(0, 0);
    EXPECT_EQ(skipped[0], master);
    EXPECT_EQ(skipped[1], first);
    EXPECT_EQ(skipped[2], second);
    expect_close(skipped[3], master, dtype());
  }
}

TEST_P(OptimizerTest, AdamWWithoutCopy) {
  const Tensor m = put({1}, DType::kFloat32, {1}), f = put({0}, DType::kFloat32, {1});
  const Tensor s = put({0}, DType::kFloat32, {1});
  const AdamWStep step{.learning_rate = 0.1};
  kernels().adamw(call(), step, put({1, 1}, DType::kFloat32, {2}), put({0.5}, DType::kFloat32, {1}), m, f, s,
                  {});
  EXPECT_NEAR(get(m)[0], 0.9, 1e-6);  // the first step is as long as the learning rate
}

TEST_P(OptimizerTest, GradientScale) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto scale = [&](const Values& global, double max_norm) {
    const Tensor to = room(DType::kFloat32, {2});
    kernels().gradient_scale(call(), put(global, DType::kFloat64, {3}), max_norm, to);
    return get(to);
  };
  expect_close(scale({10, 4, 64}, 0), {0.25, 1}, DType::kFloat32);               // no clipping
  expect_close(scale({10, 4, 64}, 3), {0.25, 1}, DType::kFloat32);               // norm 8 / 4 < 3
  expect_close(scale({10, 4, 64}, 1), {0.25 / (2 + 1e-6), 1}, DType::kFloat32);  // clipped to 1
  for (const Values& bad : {Values{0, 0, 0}, Values{infinity, 4, 64}, Values{std::nan(""), 4, 64},
                            Values{10, 4, infinity}, Values{10, 4, std::nan("")}})
    EXPECT_EQ(scale(bad, 1), (Values{0, 0}));
}
RIPSTOP_OP_TESTS(OptimizerTest);

}  // namespace
}  // namespace ripstop
