#include "model/kernels/cuda/attention_graph.h"

#include <utility>

namespace ripstop::cuda {
namespace {

constexpr auto kBFloat16 = CUDNN_DATA_BFLOAT16;
constexpr auto kFloat = CUDNN_DATA_FLOAT;

/// A graph with the tensors that forward and backward share. Extents are [documents, heads, rows, elements].
/// The strides of a ragged tensor hold within a document, and its offsets say where each document begins.
class AttentionGraph {
 public:
  explicit AttentionGraph(const AttentionShape& shape) : s(shape) {
    if (s.dense) return;
    // Offsets count elements, so all tensors whose rows have the same width share one array of offsets.
    const Extents offsets{s.documents + 1, 1, 1, 1}, lengths{s.documents, 1, 1, 1}, ones{1, 1, 1, 1};
    offset_row_ = graph.tensor(CUDNN_DATA_INT64, offsets, ones, kOffsetRow);
    offset_query_ = graph.tensor(CUDNN_DATA_INT64, offsets, ones, kOffsetQuery);
    offset_key_value_ = graph.tensor(CUDNN_DATA_INT64, offsets, ones, kOffsetKeyValue);
    offset_heads_ = graph.tensor(CUDNN_DATA_INT64, offsets, ones, kOffsetHeads);
    length_ = graph.tensor(CUDNN_DATA_INT32, lengths, ones, kLength);
  }

  int64_t row() const { return (s.query_heads + 2 * s.key_value_heads) * s.head_size; }
  int64_t query() const { return s.query_heads * s.head_size; }
  int64_t key_value() const { return s.key_value_heads * s.head_size; }
  bool grouped() const { return s.query_heads != s.key_value_heads; }

  const GraphTensor* row_offset() const { return s.dense ? nullptr : &offset_row_; }
  const GraphTensor* query_offset() const { return s.dense ? nullptr : &offset_query_; }
  const GraphTensor* key_value_offset() const { return s.dense ? nullptr : &offset_key_value_; }
  const GraphTensor* heads_offset() const { return s.dense ? nullptr : &offset_heads_; }
  const GraphTensor* length() const { return s.dense ? nullptr : &length_; }
  /// Whether log_sum_exp and row sums are stored by place (see Sums::kByPlace); if not, by row.
  bool by_place() const { return s.dense || s.sums == Sums::kByPlace; }

  Extents heads(int64_t count) const { return {s.documents, count, s.length, s.head_size}; }
  /// Strides of rows of `width` elements, with the heads side by side in a row.
  Extents rows_of(int64_t width) const { return {s.length * width, s.head_size, width, 1}; }
  /// Strides if heads lie one after another, and each head has rows of its own.
  Extents places(int64_t count) const {
    return {count * s.length * s.head_size, s.length * s.head_size, s.head_size, 1};
  }

  GraphTensor query_in() {
    return graph.tensor(kBFloat16, heads(s.query_heads), rows_of(row()), kQuery, row_offset());
  }
  GraphTensor out() {
    return graph.tensor(kBFloat16, heads(s.query_heads), rows_of(query()), kOut, query_offset());
  }
  /// Keys or values with rows and elements exchanged: the right operand of cuDNN's product.
  GraphTensor transposed(AttentionTensor id) {
    const Extents extents{s.documents, s.key_value_heads, s.head_size, s.length};
    return graph.tensor(kBFloat16, extents, {s.length * row(), s.head_size, 1, row()}, id, row_offset());
  }
  Extents lines() const { return {s.documents, s.query_heads, s.length, 1}; }
  /// One float32 per row and query head, [N, H]. Only for ragged plans.
  GraphTensor by_row_and_head(AttentionTensor id) {
    const Extents strides{s.length * s.query_heads, 1, s.query_heads, 1};
    return graph.tensor(kFloat, lines(), strides, id, heads_offset());
  }
  /// A float32 tensor [documents, H, length]: virtual if it has no id, else in memory, by place.
  GraphTensor line(int64_t id = Graph::kNoId) {
    return graph.tensor(kFloat, lines(), {s.query_heads * s.length, s.length, 1, 1}, id);
  }
  /// [N, H], or [documents, H, length] if by_place(), because cuDNN before 9.26 ignores the strides of this
  /// tensor unless it is ragged, and misreads a ragged one on compute capability 8.x and 12.x. Source:
  /// cudnn-frontend, sdpa_support_surface.h, and its pull request 304.
  GraphTensor log_sum_exp() { return by_place() ? line(kLogSumExp) : by_row_and_head(kLogSumExp); }
  GraphTensor scores(cudnnDataType_t type = kFloat) {
    const int64_t square = s.length * s.length;
    return graph.tensor(type, {s.documents, s.query_heads, s.length, s.length},
                        {s.query_heads * square, square, s.length, 1});
  }
  GraphTensor transposed_scores(const GraphTensor& x) {
    const int64_t square = s.length * s.length;
    const GraphTensor t = graph.tensor(kBFloat16, {s.documents, s.query_heads, s.length, s.length},
                                       {s.query_heads * square, square, 1, s.length});
    graph.reshape(x, t);
    return t;
  }

  /// x, but -infinity if the row or the column is beyond the end of its document.
  GraphTensor without_padding(const GraphTensor& x) {
    if (s.dense) return x;
    const GraphTensor row = graph.compare(CUDNN_POINTWISE_CMP_LT, graph.index(x, 2), length_);
    const GraphTensor column = graph.compare(CUDNN_POINTWISE_CMP_LT, graph.index(x, 3), length_);
    return graph.select(x, graph.compare(CUDNN_POINTWISE_LOGICAL_AND, row, column),
                        graph.scalar(kMaskedPadding));
  }
  /// x, but -infinity if the column is after its row (the causal mask).
  GraphTensor without_future(const GraphTensor& x) {
    const GraphTensor row = graph.index(x, 2), column = graph.index(x, 3);
    return graph.select(x, graph.compare(CUDNN_POINTWISE_CMP_GE, row, column), graph.scalar(kMaskedFuture));
  }

  const AttentionShape& s;
  Graph graph;

 private:
  GraphTensor offset_row_, offset_query_, offset_key_value_, offset_heads_, length_;
};

Plan forward(const AttentionShape& shape, const PlanTarget& target, int64_t most_workspace_bytes) {
  AttentionGraph a(shape);
  Graph& g = a.graph;
  const GraphTensor q = a.query_in(), kt = a.transposed(kKey);
  const GraphTensor v =
      g.tensor(kBFloat16, a.heads(shape.key_value_heads), a.rows_of(a.row()), kValue, a.row_offset());
  const GraphTensor scale = g.scalar(kScale);
  // cuDNN recognises the graph by the order of operations, here the order of NVIDIA's front end.
  GraphTensor x = a.scores();
  g.matmul(q, kt, x, {.m = a.length(), .n = a.length(), .k = nullptr, .zeros_beyond = !shape.dense});
  x = a.without_future(a.without_padding(g.pointwise(CUDNN_POINTWISE_MUL, x, &scale)));
  const GraphTensor largest = a.line(), sum = a.line();
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, x, largest);
  const GraphTensor e = g.pointwise(CUDNN_POINTWISE_EXP, g.pointwise(CUDNN_POINTWISE_SUB, x, &largest));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  const GraphTensor log = g.pointwise(CUDNN_POINTWISE_LOG, sum);
  g.pointwise(CUDNN_POINTWISE_ADD, largest, &log, a.log_sum_exp());
  const GraphTensor p = a.scores(kBFloat16);
  g.pointwise(CUDNN_POINTWISE_DIV, e, &sum, p);
  g.matmul(p, v, a.out(), {.m = a.length(), .n = nullptr, .k = a.length()});
  return std::move(g).plan(target, most_workspace_bytes);
}

class BackwardGraph : public AttentionGraph {
 public:
  using AttentionGraph::AttentionGraph;

  /// The sum of dO * O over each row, in memory, since another kernel of the plan reads it.
  GraphTensor row_sum(const GraphTensor& dout) {
    const GraphTensor product =
        graph.tensor(kFloat, heads(s.query_heads),
                     {s.query_heads * s.length * s.head_size, s.length * s.head_size, query(), 1});
    const GraphTensor o = out(), one = graph.scalar(kOne), sum = line();
    graph.pointwise(CUDNN_POINTWISE_MUL, dout, &o, product);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    const GraphTensor stored = by_place() ? line(kRowSum) : by_row_and_head(kRowSum);
    graph.pointwise(CUDNN_POINTWISE_MUL, sum, &one, stored);
    return stored;
  }

  /// The gradient of keys or values: transposed scores times `rows`, summed over each group's query heads.
  void key_value_gradient(const GraphTensor& scores, const GraphTensor& rows, AttentionTensor id,
                          AttentionTensor grouped_id) {
    const GraphTensor transposed = transposed_scores(scores);
    const Graph::Lengths lengths{.m = length(), .n = nullptr, .k = length()};
    const GraphTensor gradient = graph.tensor(kBFloat16, heads(s.key_value_heads),
                                              rows_of(s.dense ? row() : key_value()), id, key_value_offset());
    if (!grouped()) return graph.matmul(transposed, rows, gradient, lengths);
    // By row, `by_head` takes the offsets of key-value heads: cuDNN multiplies them by the size of a group.
    const GraphTensor by_head =
        by_place()
            ? graph.tensor(kBFloat16, heads(s.query_heads), places(s.query_heads))
            : graph.tensor(kBFloat16, heads(s.query_heads), rows_of(query()), grouped_id, key_value_offset());
    graph.matmul(transposed, rows, by_head, lengths);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, gradient);
  }

  void query_gradient(const GraphTensor& dscores, const GraphTensor& kt) {
    const Graph::Lengths lengths{.m = length(), .n = nullptr, .k = length()};
    const GraphTensor k =
        graph.tensor(kBFloat16, heads(s.key_value_heads), rows_of(row()), Graph::kNoId, row_offset());
    graph.reshape(kt, k);
    const GraphTensor gradient = graph.tensor(kBFloat16, heads(s.query_heads),
                                              rows_of(s.dense ? row() : query()), kDQuery, query_offset());
    if (s.sums == Sums::kFromScores) return graph.matmul(dscores, k, gradient, lengths);
    const GraphTensor sum =
        by_place() ? graph.tensor(kFloat, heads(s.query_heads), places(s.query_heads), kDQuerySum)
                   : graph.tensor(kFloat, heads(s.query_heads), rows_of(query()), kDQuerySum, query_offset());
    graph.matmul(dscores, k, sum, lengths);
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, nullptr, gradient);
  }
};

Plan backward(const AttentionShape& shape, const PlanTarget& target, int64_t most_workspace_bytes) {
  BackwardGraph a(shape);
  Graph& g = a.graph;
  const GraphTensor q = a.query_in(), kt = a.transposed(kKey), vt = a.transposed(kValue);
  const GraphTensor dout =
      g.tensor(kBFloat16, a.heads(shape.query_heads), a.rows_of(a.query()), kDOut, a.query_offset());
  const GraphTensor log_sum_exp = a.log_sum_exp(), scale = g.scalar(kScale);
  const GraphTensor row_sum = a.row_sum(dout);
  const Graph::Lengths square{.m = a.length(), .n = a.length(), .k = nullptr};

  // P from Q K^T and the stored log_sum_exp, then dV = P^T dO.
  GraphTensor x = a.scores();
  g.matmul(q, kt, x, square);
  x = g.pointwise(CUDNN_POINTWISE_MUL, x, &scale);
  // The masks come after the subtraction, as in NVIDIA's front end, because in rows beyond the end of a
  // document the subtraction reads the log_sum_exp of other rows.
  x = g.pointwise(CUDNN_POINTWISE_SUB, x, &log_sum_exp);
  const GraphTensor p = g.pointwise(CUDNN_POINTWISE_EXP, a.without_future(a.without_padding(x)));
  a.key_value_gradient(p, dout, kDValue, kDValueGrouped);

  // dS = P * (dO V^T - row sum of dO * O) * scale, then dK = dS^T Q and dQ = dS K.
  GraphTensor dp = a.scores();
  g.matmul(dout, vt, dp, square);
  dp = g.pointwise(CUDNN_POINTWISE_SUB, dp, &row_sum);
  dp = g.pointwise(CUDNN_POINTWISE_MUL, dp, &p);
  const GraphTensor dscores = g.pointwise(CUDNN_POINTWISE_MUL, dp, &scale);
  a.key_value_gradient(dscores, q, kDKey, kDKeyGrouped);
  a.query_gradient(dscores, kt);

  // With this value of the stages knob, blocks add to a sum one after another.
  constexpr Knob kOneAfterAnother[] = {{CUDNN_KNOB_TYPE_STAGES, 4}};
  if (shape.sums == Sums::kOrdered) return std::move(g).plan(target, most_workspace_bytes, kOneAfterAnother);
  if (shape.sums != Sums::kFromScores || target.major != kBlackwell)
    return std::move(g).plan(target, most_workspace_bytes);
  // cuDNN's heuristics refuse this graph, so the engine and its knobs are given. Their source:
  // override_heuristics_query in scaled_dot_product_flash_attention.h of NVIDIA's front end.
  constexpr int64_t kEngine = 5;
  constexpr size_t kFirstOfTiles = 92300;
  constexpr Knob kBefore[] = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}};
  constexpr Knob kTiles[] = {{CUDNN_KNOB_TYPE_TILE_M, 3},     {CUDNN_KNOB_TYPE_TILE_N, 2},
                             {CUDNN_KNOB_TYPE_KERNEL_CFG, 2}, {CUDNN_KNOB_TYPE_STREAM_K, 0},
                             {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}, {CUDNN_KNOB_TYPE_STAGES, 2}};
  const auto knobs = cudnnGetVersion() < kFirstOfTiles ? std::span<const Knob>(kBefore) : kTiles;
  return std::move(g).plan(target, most_workspace_bytes, knobs, kEngine);
}

}  // namespace

Plan attention_plan(Direction direction, const AttentionShape& shape, const PlanTarget& target,
                    int64_t most_workspace_bytes) {
  const auto make = direction == Direction::kForward ? forward : backward;
  try {
    return make(shape, target, most_workspace_bytes);
  } catch (const Error& error) {
    return refused(error.what());  // cuDNN builds no such graph, for example if K does not divide H
  }
}

}  // namespace ripstop::cuda
