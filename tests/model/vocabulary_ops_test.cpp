// Tests of the embedding, rows by index, cross-entropy over slices of the vocabulary, and argmax.
#include <numeric>

#include "tests/model/op_test.h"

namespace ripstop {
namespace {

using VocabularyTest = OpTest;

std::vector<int32_t> sorted_rows(const std::vector<int32_t>& token) {
  std::vector<int32_t> order(token.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return token[at(a)] < token[at(b)]; });
  return order;
}

TEST_P(VocabularyTest, EmbeddingOfASlice) {
  constexpr int64_t kFirst = 5, kHeld = 20;
  for (const int64_t rows : {0, 1, 65})
    for (const int64_t columns : {2, 17, 288}) {
      const Values table = random(kHeld * columns);
      const auto token = random_ids(rows, 32);
      Values expected(at(rows * columns));
      for (int64_t n = 0; n < rows; ++n)
        for (int64_t i = 0; i < columns; ++i)
          if (token[at(n)] >= kFirst && token[at(n)] < kFirst + kHeld)
            expected[at(n * columns + i)] = table[at((token[at(n)] - kFirst) * columns + i)];
      const auto outputs = repeated([&] {
        const Tensor out = room(dtype(), {rows, columns});
        kernels().embedding(call(), put_ids(token), put(table, {kHeld, columns}), kFirst, out);
        return Outputs{get(out)};
      });
      EXPECT_EQ(outputs[0], expected);
    }
}

TEST_P(VocabularyTest, EmbeddingBackward) {
  constexpr int64_t kFirst = 1, kHeld = 30;
  for (const int64_t rows : {0, 1, 65, 1500})
    for (const int64_t columns : {2, 100})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        auto token = random_ids(rows, 32);
        for (size_t n = 0; n < token.size(); n += 2) token[n] = 3;  // one token that is everywhere
        const Values dout = random(rows * columns), before = random(kHeld * columns, DType::kFloat32);
        Values expected = accumulate == Accumulate::kYes ? before : Values(before.size());
        for (int64_t n = 0; n < rows; ++n)
          for (int64_t i = 0; i < columns; ++i)
            if (token[at(n)] >= kFirst && token[at(n)] < kFirst + kHeld)
              expected[at((token[at(n)] - kFirst) * columns + i)] += dout[at(n * columns + i)];
        const auto outputs = repeated([&] {
          const Tensor dtable = accumulate == Accumulate::kYes
                                    ? put(before, DType::kFloat32, {kHeld, columns})
                                    : room(DType::kFloat32, {kHeld, columns});
          kernels().embedding_backward(call(), put_ids(token), put_ids(sorted_rows(token)),
                                       put(dout, {rows, columns}), kFirst, dtable, accumulate);
          return Outputs{get(dtable)};
        });
        expect_close(outputs[0], expected, DType::kFloat32, 2);
      }
}

TEST_P(VocabularyTest, GatherAndScatterRows) {
  for (const int64_t columns : {1, 17, 288}) {
    const std::vector<int32_t> index{4, 0, 63, 17};
    const Values x = random(64 * columns), y = random(4 * columns);
    Values gathered, scattered = x;
    for (size_t m = 0; m < index.size(); ++m)
      for (int64_t i = 0; i < columns; ++i) {
        gathered.push_back(x[at(index[m] * columns + i)]);
        scattered[at(index[m] * columns + i)] = y[m * at(columns) + at(i)];
      }
    const auto outputs = repeated([&] {
      const Tensor out = room(dtype(), {4, columns}), into = put(x, {64, columns});
      kernels().gather_rows(call(), into, put_ids(index), out);
      kernels().scatter_rows(call(), put(y, {4, columns}), put_ids(index), into);
      return Outputs{get(out), get(into)};
    });
    EXPECT_EQ(outputs[0], gathered);
    EXPECT_EQ(outputs[1], scattered);
  }
}

// Slices must give the loss and gradient of the whole vocabulary, even if the last one is all padding.
TEST_P(VocabularyTest, CrossEntropyOfSlices) {
  for (const int64_t rows : {0, 1, 17})
    for (const int64_t vocabulary : {1, 50, 64, 1000, 5000}) {
      const int64_t slices = 3, room_rows = rows + 2, columns = (vocabulary + 1) / 2 + 3;
      const Values logits = random(rows * vocabulary, DType::kFloat32, 5);
      const auto target = random_ids(rows, static_cast<int32_t>(vocabulary));
      const auto expected = reference::cross_entropy(logits, target, vocabulary, vocabulary);
      std::vector<VocabularySlice> slice;
      std::vector<Values> part;
      for (int64_t s = 0; s < slices; ++s) {
        const int64_t first = std::min(s * (columns - 3), vocabulary);
        slice.push_back({first, std::min(columns - 3, vocabulary - first)});
        part.emplace_back(at(rows * columns), 1000.0);  // padding that would outweigh all if it counted
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t i = 0; i < slice.back().valid; ++i)
            part.back()[at(m * columns + i)] = logits[at(m * vocabulary + first + i)];
      }
      const auto outputs = repeated([&] {
        Values all;
        std::vector<Values> results;
        for (size_t s = 0; s < slice.size(); ++s) {
          const Tensor statistics = room(DType::kFloat32, {rows, 3});
          kernels().cross_entropy_statistics(call(), put(part[s], DType::kFloat32, {rows, columns}),
                                             put_ids(target), slice[s], statistics);
          const Values values = get(statistics);
          all.insert(all.end(), values.begin(), values.end());
          all.resize(all.size() + 6, std::nan(""));  // rows of the capacity that are not used
        }
        const Tensor gathered = put(all, DType::kFloat32, {slices, room_rows, 3});
        for (size_t s = 0; s < slice.size(); ++s) {
          const Tensor loss = room(DType::kFloat32, {rows});
          const Tensor x = put(part[s], DType::kFloat32, {rows, columns});
          const Tensor dlogits = dtype() == DType::kFloat32 ? x : room(dtype(), {rows, columns});
          kernels().cross_entropy(call(), x, put_ids(target), gathered, slice[s], loss, dlogits);
          results.push_back(get(loss));
          results.push_back(get(dlogits));
        }
        return results;
      });
      for (size_t s = 0; s < slice.size(); ++s) {
        Values gradient(part[s].size());
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t i = 0; i < slice[s].valid; ++i)
            gradient[at(m * columns + i)] = expected.dlogits[at(m * vocabulary + slice[s].first + i)];
        expect_close(outputs[2 * s], expected.loss, DType::kFloat32, 2);
        expect_close(outputs[2 * s + 1], gradient, dtype());
      }
    }
}

TEST_P(VocabularyTest, LossAlone) {
  const Values logits = random(3 * 40, DType::kFloat32);
  const std::vector<int32_t> target{0, 39, 7};
  const Tensor x = put(logits, DType::kFloat32, {3, 40}), statistics = room(DType::kFloat32, {3, 3});
  const Tensor loss = room(DType::kFloat32, {3});
  kernels().cross_entropy_statistics(call(), x, put_ids(target), {0, 40}, statistics);
  kernels().cross_entropy(call(), x, put_ids(target), statistics.viewed({1, 3, 3}), {0, 40}, loss, {});
  expect_close(get(loss), reference::cross_entropy(logits, target, 40, 40).loss, DType::kFloat32);
  EXPECT_EQ(get(x), logits);
}

TEST_P(VocabularyTest, NanReachesTheLoss) {
  Values logits = random(2 * 40, DType::kFloat32);
  logits[3] = std::nan("");
  const Tensor x = put(logits, DType::kFloat32, {2, 40}), statistics = room(DType::kFloat32, {2, 3});
  const Tensor loss = room(DType::kFloat32, {2});
  kernels().cross_entropy_statistics(call(), x, put_ids({1, 1}), {0, 40}, statistics);
  kernels().cross_entropy(call(), x, put_ids({1, 1}), statistics.viewed({1, 2, 3}), {0, 40}, loss, {});
  EXPECT_TRUE(std::isnan(get(loss)[0]));
  EXPECT_FALSE(std::isnan(get(loss)[1]));
}

TEST_P(VocabularyTest, ArgmaxTakesTheLowestOfEquals) {
  for (const int64_t columns : {1, 17, 64, 1000}) {
    const int64_t rows = 9, valid = columns - columns / 5;
    Values logits = random(rows * columns, DType::kFloat32);
    for (double& v : logits) v = std::round(v * 4);  // many equals
    for (size_t i = 0; i < logits.size(); i += 7) logits[i] = std::nan("");
    std::fill_n(logits.begin(), columns, std::nan(""));
    const auto outputs = repeated([&] {
      const Tensor value = room(DType::kFloat32, {rows}), id = put_ids(random_ids(rows, 9));
      kernels().argmax_rows(call(), put(logits, DType::kFloat32, {rows, columns}), {100, valid}, value, id);
      return Outputs{get(value), get(id)};
    });
    for (double& v : logits) v = std::isnan(v) ? -std::numeric_limits<double>::infinity() : v;
    for (int64_t m = 0; m < rows; ++m) {
      const auto* row = logits.data() + m * columns;
      const auto* best = std::max_element(row, row + valid);
      EXPECT_EQ(outputs[0][at(m)], *best);
      EXPECT_EQ(outputs[1][at(m)], static_cast<double>(100 + (best - row)));
    }
  }
  const Tensor value = room(DType::kFloat32, {1}), id = put_ids({0});
  kernels().argmax_rows(call(), put({1, 2}, DType::kFloat32, {1, 2}), {7, 0}, value, id);
  EXPECT_EQ(get(value)[0], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(get(id)[0], 7);
}

RIPSTOP_OP_TESTS(VocabularyTest);

}  // namespace
}  // namespace ripstop
