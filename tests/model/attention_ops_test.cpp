// Tests of rope, attention and cached attention.
#include <algorithm>

#include "tests/model/op_test.h"

namespace ripstop {
namespace {

struct AttentionCase {
  Heads heads;
  std::vector<int32_t> lengths;
};

std::vector<int32_t> offsets(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offset{0};
  for (const auto n : lengths) offset.push_back(offset.back() + n);
  return offset;
}

std::vector<AttentionCase> attention_cases(const OpCase& op) {
  std::vector<AttentionCase> cases{{{1, 1, 2}, {1}},
                                   {{2, 2, 8}, {17}},
                                   {{4, 2, 48}, {1, 2, 63, 64, 65, 17, 16, 15}},
                                   {{2, 1, 64}, {64, 130}},
                                   {{6, 6, 48}, {128, 1, 1, 127}},
                                   {{3, 1, 128}, {65, 129}},
                                   {{1, 1, 20}, {300}},
                                   {{2, 1, 192}, {33, 40}},
                                   {{1, 1, 130}, {50}},
                                   // Here a GPU's backward takes a few documents at a time.
                                   {{4, 2, 40}, {100, 3, 128, 129, 5}},
                                   // Equally long documents of whole tiles, which are dense on a GPU.
                                   {{2, 2, 128}, {128, 128}},
                                   {{2, 1, 64}, {384}}};
  if (!op.slow) cases.push_back({{1, 1, 4}, {2113, 40}});
  return cases;
}

using AttentionTest = OpTest;

TEST_P(AttentionTest, NormOfHeads) {
  for (const Heads heads : {Heads{1, 1, 2}, Heads{4, 2, 6}, Heads{3, 1, 64}, Heads{7, 7, 128},
                            Heads{2, 1, 130}, Heads{1, 1, 512}})
    for (const int64_t rows : {0, 1, 17, 750})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        if (rows > 100 && (heads.size != 6 || accumulate == Accumulate::kYes)) continue;
        const Shape shape{rows, heads.row()};
        const Values qkv = random(shape.count()), weight = random(2 * heads.size),
                     dout = random(shape.count()), before = random(2 * heads.size, DType::kFloat32);
        auto expected = reference::norm_heads_backward(dout, qkv, weight, 1e-2, heads);
        for (size_t i = 0; accumulate == Accumulate::kYes && i < before.size(); ++i)
          expected.weight[i] += before[i];
        const auto backward = [&](const Tensor& x, const Tensor& w, const Tensor& dw) {
          const Tensor dx = put(dout, shape);
          kernels().norm_heads_backward(call(workspaces().norm_heads_backward(rows, heads)), x, w, 1e-2,
                                        heads, dx, dw, accumulate);
          return get(dx);
        };
        const auto outputs = repeated([&] {
          const Tensor x = put(qkv, shape), w = put(weight, {2 * heads.size}), out = room(dtype(), shape);
          const Tensor dw = put(accumulate == Accumulate::kYes
                                    ? before
                                    : Values(before.size(), std::numeric_limits<double>::quiet_NaN()),
                                DType::kFloat32, w.shape);
          kernels().norm_heads(call(), x, w, 1e-2, heads, out);
          return Outputs{get(out), backward(x, w, dw), get(dw), backward(x, w, {})};
        });
        expect_close(outputs[0], reference::norm_heads(qkv, weight, 1e-2, heads), dtype());
        expect_close(outputs[1], expected.sum, dtype(), 2);
        expect_close(outputs[2], expected.weight, DType::kFloat32, 4);
        EXPECT_EQ(outputs[3], outputs[1]) << "without a gradient of the weight";
      }
}

TEST_P(AttentionTest, RopeTurnsForwardAndBack) {
  for (const int64_t size : {2, 6, 8, 48, 64, 128}) {
    const Heads heads{4, 2, size};
    for (const int64_t rows : {0, 1, 17}) {
      const Values qkv = random(rows * heads.row()), angle = reference::angles(32, size);
      const auto position = random_ids(rows, 32);
      const Tensor angles = put(angle, DType::kFloat32, {32, size / 2, 2}), positions = put_ids(position);
      for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
        const auto outputs = repeated([&] {
          const Tensor x = put(qkv, {rows, heads.row()});
          kernels().rope(call(), x, positions, angles, heads, direction);
          return Outputs{get(x)};
        });
        expect_close(outputs[0], reference::rope(qkv, position, angle, heads, direction), dtype());
      }
    }
  }
}

TEST_P(AttentionTest, Forward) {
  for (const AttentionCase& sizes : attention_cases(GetParam())) {
    const auto& lengths = sizes.lengths;
    const Heads& heads = sizes.heads;
    const auto offset = offsets(lengths);
    const int64_t rows = offset.back();
    const Values qkv = random(rows * heads.row(), dtype(), 2);
    const Tensor x = put(qkv, {rows, heads.row()});
    const Documents documents{put_ids(offset), static_cast<int64_t>(lengths.size()),
                              *std::max_element(lengths.begin(), lengths.end())};
    const auto outputs = repeated([&] {
      const Tensor out = room(dtype(), {rows, heads.query * heads.size});
      const Tensor log_sum_exp = room(DType::kFloat32, {rows, heads.query});
      kernels().attention(call(workspaces().attention(rows, heads, dtype())), x, documents, heads, out,
                          log_sum_exp);
      return Outputs{get(out), get(log_sum_exp)};
    });
    const auto expected = reference::attention(qkv, offset, heads);
    expect_close(outputs[0], expected.out, dtype(), 6, heads.query * heads.size);
    expect_close(outputs[1], expected.log_sum_exp, DType::kFloat32, 4);
  }
}

TEST_P(AttentionTest, Backward) {
  for (const AttentionCase& sizes : attention_cases(GetParam())) {
    const auto& lengths = sizes.lengths;
    const Heads& heads = sizes.heads;
    const auto offset = offsets(lengths);
    const int64_t rows = offset.back(), width = heads.query * heads.size;
    const Values qkv = random(rows * heads.row()), dout = random(rows * width);
    const auto forward = reference::attention(qkv, offset, heads);
    const Tensor x = put(qkv, {rows, heads.row()}), dy = put(dout, {rows, width});
    const Tensor out = put(forward.out, {rows, width});
    const Tensor log_sum_exp = put(forward.log_sum_exp, DType::kFloat32, {rows, heads.query});
    const Documents documents{put_ids(offset), static_cast<int64_t>(lengths.size()),
                              *std::max_element(lengths.begin(), lengths.end())};
    // The kernel cuts documents if there are not enough of them for all threads.
    const auto outputs = repeated(
        [&] {
          const Tensor dqkv = room(dtype(), {rows, heads.row()});
          kernels().attention_backward(
              call(workspaces().attention_backward(rows, documents.longest, heads, dtype(),
                                                   GetParam().device.deterministic)),
              dy, x, out, log_sum_exp, documents, heads, dqkv);
          return Outputs{get(dqkv)};
        },
        ThreadsMatter::kYes);
    // A GPU rounds the key and value gradients of each query head before it sums them over the group. The
    // gradients of a document's first tokens are sums over all later ones, and larger than most.
    const int64_t group = heads.query / heads.key_value, slack = 10 + (group > 1 ? group : 0);
    expect_close(outputs[0], reference::attention_backward(dout, qkv, forward, offset, heads), dtype(),
                 static_cast<double>(slack), heads.row());
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const Heads heads{1, 1, 16};
  const int64_t rows = 70;
  const Values qkv = random(rows * heads.row(), dtype(), 30);
  const std::vector<int32_t> offset{0, 70};
  const Tensor out = room(dtype(), {rows, 16}), log_sum_exp = room(DType::kFloat32, {rows, 1});
  kernels().attention(call(workspaces().attention(rows, heads, dtype())), put(qkv, {rows, heads.row()}),
                      {put_ids(offset), 1, 70}, heads, out, log_sum_exp);
  const auto expected = reference::attention(qkv, offset, heads);
  expect_close(get(out), expected.out, dtype(), 50);
  expect_close(get(log_sum_exp), expected.log_sum_exp, DType::kFloat32, 4);
}

TEST_P(AttentionTest, NanReachesTheOutput) {
  const Heads heads{1, 1, 16};
  Values qkv = random(70 * heads.row());
  qkv[at(66 * heads.row())] = std::numeric_limits<double>::quiet_NaN();
  const Tensor out = room(dtype(), {70, 16}), log_sum_exp = room(DType::kFloat32, {70, 1});
  kernels().attention(call(workspaces().attention(70, heads, dtype())), put(qkv, {70, heads.row()}),
                      {put_ids({0, 70}), 1, 70}, heads, out, log_sum_exp);
  const Values values = get(out);
  for (int64_t n = 0; n < 70; ++n) EXPECT_EQ(std::isnan(values[at(n * 16)]), n == 66) << n;
}

TEST_P(AttentionTest, CachedEqualsTheLastRowOfItsDocument) {
  constexpr int64_t kSlots = 3, kPositions = 150;
  for (const Heads heads : {Heads{4, 2, 6}, Heads{2, 2, 48}, Heads{3, 1, 64}, Heads{2, 1, 130}}) {
    const int64_t kept = heads.key_value * heads.size;
    const std::vector<int32_t> lengths{1, 65, 150};
    const auto offset = offsets(lengths);
    const Values qkv = random(offset.back() * heads.row());
    const Tensor all = put(qkv, {offset.back(), heads.row()});
    const Tensor cache = room(dtype(), {kSlots, kPositions, 2, kept});
    std::vector<int32_t> slot, position, last_slot{2, 0, 1}, last_position;
    Values last;
    for (size_t d = 0; d < lengths.size(); ++d)
      for (int32_t p = 0; p < lengths[d]; ++p) {
        slot.push_back(last_slot[d]);
        position.push_back(p);
      }
    for (size_t d = 0; d < lengths.size(); ++d) {
      last_position.push_back(lengths[d] - 1);
      const auto* row = qkv.data() + (offset[d + 1] - 1) * heads.row();
      last.insert(last.end(), row, row + heads.row());
    }
    kernels().store_key_value(call(), all, put_ids(slot), put_ids(position), heads, cache);
    const Tensor query = put(last, {3, heads.row()}), slots = put_ids(last_slot),
                 positions = put_ids(last_position);
    const auto outputs = repeated([&] {
      const Tensor out = room(dtype(), {3, heads.query * heads.size});
      kernels().attention_cached(call(workspaces().attention_cached(heads)), query, slots, positions, cache,
                                 heads, {}, out);
      return Outputs{get(out)};
    });
    const Values whole = reference::attention(qkv, offset, heads).out;
    Values expected;
    for (size_t d = 0; d < lengths.size(); ++d) {
      const auto* row = whole.data() + (offset[d + 1] - 1) * heads.query * heads.size;
      expected.insert(expected.end(), row, row + heads.query * heads.size);
    }
    expect_close(outputs[0], expected, dtype(), 2);
  }
}

// Beams in one slot: the first positions are their own places, and the other places are partly shared.
TEST_P(AttentionTest, CachedReadsTheTailWhereItLies) {
  constexpr int64_t kPlaces = 200, kCount = 90, kPrompt = 70, kRows = 3;
  for (const Heads heads : {Heads{4, 2, 6}, Heads{2, 1, 64}}) {
    const int64_t kept = heads.key_value * heads.size;
    // The places of row r begin like the places of row 0.
    std::vector<int32_t> first(kRows, kPrompt), place, slot(kRows, 1), position(kRows, kCount - 1);
    for (int32_t r = 0; r < kRows; ++r)
      for (int32_t j = 0; j < kCount - kPrompt; ++j)
        place.push_back(static_cast<int32_t>(kPrompt) + j * 4 + (j < 10 ? 0 : r));
    first[2] = 0;  // all of row 2 lies elsewhere, but only its first positions are read
    position[2] = 5;
    const Values stored = random(kPlaces * heads.row());
    const Tensor cache = room(dtype(), {2, kPlaces, 2, kept});
    std::vector<int32_t> all_slots(kPlaces, 1), all_places(kPlaces);
    for (int32_t p = 0; p < kPlaces; ++p) all_places[static_cast<size_t>(p)] = p;
    kernels().store_key_value(call(), put(stored, {kPlaces, heads.row()}), put_ids(all_slots),
                              put_ids(all_places), heads, cache);
    const Values query = random(kRows * heads.row());
    Values documents, expected;
    std::vector<int32_t> lengths;
    for (int64_t r = 0; r < kRows; ++r) {
      lengths.push_back(position[at(r)] + 1);
      for (int64_t p = 0; p <= position[at(r)]; ++p) {
        const int64_t from = p < first[at(r)] ? p : place[at(r * (kCount - kPrompt) + p - first[at(r)])];
        const auto begin = stored.begin() + from * heads.row();
        documents.insert(documents.end(), begin, begin + heads.row());
      }
      std::copy_n(query.begin() + r * heads.row(), heads.query * heads.size, documents.end() - heads.row());
    }
    const auto offset = offsets(lengths);
    const Values whole = reference::attention(documents, offset, heads).out;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto row = whole.begin() + (offset[at(r + 1)] - 1) * heads.query * heads.size;
      expected.insert(expected.end(), row, row + heads.query * heads.size);
    }
    const CachedTail tail{put_ids(first), put_ids(place).viewed({kRows, kCount - kPrompt})};
    const Tensor queries = put(query, {kRows, heads.row()}), slots = put_ids(slot),
                 positions = put_ids(position);
    const auto outputs = repeated([&] {
      const Tensor out = room(dtype(), {kRows, heads.query * heads.size});
      kernels().attention_cached(call(workspaces().attention_cached(heads)), queries, slots, positions, cache,
                                 heads, tail, out);
      return Outputs{get(out)};
    });
    expect_close(outputs[0], expected, dtype(), 2);
  }
}

RIPSTOP_OP_TESTS(AttentionTest);

}  // namespace
}  // namespace ripstop
