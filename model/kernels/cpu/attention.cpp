// Causal attention within documents, with l_i the log of the sum of the exponentials:
//   p_ij = e^(q_i . k_j / sqrt(D) - l_i) for the keys j <= i of the same document,  o_i = sum_j p_ij v_j
// A task takes 64 queries and loops over tiles of 64 keys. A running maximum and sum for each query replace a
// second pass: the output is rescaled when the maximum grows (FlashAttention's softmax).
#include <cmath>

#include "model/kernels/cpu/attention_tiles.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

/// The number of floats in one thread's scratch.
constexpr int64_t thread_floats(int64_t size) {
  return 3 * kTile * padded_size(size) + kTile * kTile + 2 * kTile;
}

struct Scratch {
  float *queries, *output, *keys, *scores, *maximum, *sum;

  Scratch(void* workspace, int64_t size) {
    const int64_t tile = kTile * padded_size(size);
    queries = static_cast<float*>(workspace) + omp_get_thread_num() * thread_floats(size);
    output = queries + tile;
    keys = output + tile;
    scores = keys + tile;
    maximum = scores + kTile * kTile;
    sum = maximum + kTile;
  }
};

/// Replaces the scores by the weights e^(score - maximum) and adds the weights to the sum. Rescales sum and
/// output of the earlier tiles to the new maximum.
void soften(const Scratch& s, int64_t key_count, int64_t query_columns, int64_t size, bool diagonal) {
  for (int64_t q = 0; q < query_columns; q += kLanes) {
    const VisibleKeys visible = visible_keys(q, key_count, diagonal);
    float* column = s.scores + q;
    for (int64_t k = visible.all; k < visible.some; ++k)
      store(column + k * kTile, only_visible(load(column + k * kTile), k - q, -__builtin_inff()));
    const Vector before = load(s.maximum + q);
    Vector maximum = before;
    for (int64_t k = 0; k < visible.some; ++k) maximum = larger(maximum, load(column + k * kTile));
    const Vector keep = exponential(before - maximum);
    Vector sum = load(s.sum + q) * keep;
    for (int64_t k = 0; k < visible.some; ++k) {
      const Vector weight = exponential(load(column + k * kTile) - maximum);
      store(column + k * kTile, weight);
      sum += weight;
    }
    store(s.maximum + q, maximum);
    store(s.sum + q, sum);
    for (int64_t d = 0; d < size; ++d) store(s.output + d * kTile + q, load(s.output + d * kTile + q) * keep);
  }
}

template <class T>
struct Operands {
  const T* qkv;
  T* out;
  float* log_sum_exp;
  Heads heads;
};

template <class T>
void attend(const Operands<T>& x, const AttentionTask& task, int64_t head, const Scratch& s) {
  const int64_t size = x.heads.size, row = x.heads.row();
  const int64_t queries = task.end - task.first < kTile ? task.end - task.first : kTile;
  const int64_t columns = (queries + kLanes - 1) / kLanes * kLanes;
  const int64_t key_head = x.heads.query + head / (x.heads.query / x.heads.key_value);
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(size));
  // Scales each query once, instead of each score. Uses s.keys, which is free until the loop.
  take_rows(x.qkv + task.first * row + head * size, row, queries, size, scale, s.keys);
  transpose(s.keys, kTile, padded_size(size), s.queries);
  for (int64_t i = 0; i < padded_size(size) * kTile; ++i) s.output[i] = 0;
  // Sum and output begin at 0, because the first tile rescales them.
  for (int64_t q = 0; q < kTile; ++q) s.maximum[q] = -__builtin_inff(), s.sum[q] = 0;
  for (int64_t first = task.begin; first < task.first + queries; first += kTile) {
    const bool diagonal = first == task.first;
    const int64_t keys = diagonal ? queries : kTile;
    const T* key = x.qkv + first * row + key_head * size;
    score(view_rows(key, row, keys, size, s.keys), s.queries, keys, columns, size, diagonal, s.scores);
    soften(s, keys, columns, size, diagonal);
    // In bfloat16, the values (V) overwrite the keys in s.keys.
    const T* value = key + x.heads.key_value * size;
    add_weighted(view_rows(value, row, keys, size, s.keys), s.scores, keys, columns, size, diagonal,
                 s.output);
  }
  for (int64_t q = 0; q < queries; ++q)
    x.log_sum_exp[(task.first + q) * x.heads.query + head] = s.maximum[q] + std::log(s.sum[q]);
  for (int64_t q = 0; q < columns; q += kLanes) {
    const Vector inverse = 1.0F / load(s.sum + q);
    for (int64_t d = 0; d < size; ++d)
      store(s.output + d * kTile + q, load(s.output + d * kTile + q) * inverse);
  }
  transpose(s.output, padded_size(size), kTile, s.keys);
  put_rows(s.keys, queries, size, 1.0F, x.out + (task.first * x.heads.query + head) * size,
           x.heads.query * size);
}

/// Lists one task for every 64 rows of a document, each document's longest task first, because a long task at
/// the end would leave threads idle.
int64_t list_tasks(const Documents& documents, AttentionTask* tasks) {
  const int32_t* offset = elements<int32_t>(documents.offset);
  int64_t count = 0;
  for (int64_t d = 0; d < documents.count; ++d) {
    const int32_t begin = offset[d], end = offset[d + 1];
    if (begin == end) continue;
    constexpr auto kStep = static_cast<int32_t>(kTile);
    for (int32_t first = begin + (end - begin - 1) / kStep * kStep; first >= begin; first -= kStep)
      tasks[count++] = {begin, end, first, 0};
  }
  return count;
}

}  // namespace

int64_t prepare_attention(const Stream&, const AttentionSizes&, Direction) {
  return 0;
}

int64_t attention_bytes(int64_t rows, const Heads& heads, DType) {
  const auto task_bytes = static_cast<int64_t>(sizeof(AttentionTask)) * rows;
  return task_bytes + 4 * thread_floats(heads.size) * omp_get_max_threads();
}

void attention(const KernelCall& call, const Tensor& qkv, const Documents& documents, const Heads& heads,
               const Tensor& out, const Tensor& log_sum_exp) {
  // The workspace: at most one task per row, then the scratch of each thread.
  auto* tasks = static_cast<AttentionTask*>(call.workspace);
  void* scratch = tasks + qkv.rows();
  const int64_t count = list_tasks(documents, tasks);
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    const Operands<T> operands{elements<T>(qkv), elements<T>(out), elements<float>(log_sum_exp), heads};
#pragma omp parallel if (count * heads.query > 1)
    {
      const Scratch mine(scratch, heads.size);
#pragma omp for schedule(dynamic)
      for (int64_t piece = 0; piece < count * heads.query; ++piece)
        attend(operands, tasks[piece / heads.query], piece % heads.query, mine);
    }
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
