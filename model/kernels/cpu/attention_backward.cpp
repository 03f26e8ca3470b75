// The gradient of attention, with p as in attention.cpp. Sums over i cover all query heads that read key j:
//   delta_i = do_i . o_i
//   ds_ij = p_ij (do_i . v_j - delta_i)
//   dq_i = sum_j ds_ij k_j / sqrt(D),  dk_j = sum_i ds_ij q_i / sqrt(D),  dv_j = sum_i p_ij do_i
// A task is one document and one key-value head if the document is short (list_tasks). Otherwise one kind of
// task computes the dq of 64 queries and another the dk and dv of 256 keys, so p is computed twice. Every sum
// is inside a task, in one order for all kinds of tasks, so the bits do not depend on the number of threads.
#include "model/kernels/cpu/attention_tiles.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

enum TaskKind : int32_t { kWholeDocument, kQueryGradient, kKeyGradient };

/// A document of more rows is never one task, which limits the scratch of a thread.
constexpr int64_t kMaxWhole = 2048;
constexpr int64_t kKeysOfTask = 256;
static_assert(kKeysOfTask % kTile == 0 && kKeysOfTask <= kMaxWhole);

/// The most keys whose dk and dv one task holds, in whole tiles, in a batch of `rows` rows.
constexpr int64_t held_keys(int64_t rows) {
  const int64_t whole = (rows + kTile - 1) / kTile * kTile;
  return whole < kMaxWhole ? whole : kMaxWhole;
}
/// One thread's scratch: seven tiles of rows, two of scores, dk and dv, and l and delta of a tile.
constexpr int64_t thread_floats(int64_t rows, int64_t size) {
  return (7 * kTile + 2 * held_keys(rows)) * padded_size(size) + 2 * kTile * kTile + 2 * kTile;
}

struct Scratch {
  float *queries, *queries_t, *douts, *douts_t, *dqueries_t, *keys, *values;
  float *weights, *dscores, *log_sum_exp, *delta, *dkeys, *dvalues;

  Scratch(void* workspace, int64_t rows, int64_t size) {
    float* next = static_cast<float*>(workspace) + omp_get_thread_num() * thread_floats(rows, size);
    const auto take = [&](int64_t count) {
      float* taken = next;
      next += count;
      return taken;
    };
    const int64_t tile = kTile * padded_size(size);
    for (float** t : {&queries, &queries_t, &douts, &douts_t, &dqueries_t, &keys, &values}) *t = take(tile);
    weights = take(kTile * kTile);
    dscores = take(kTile * kTile);
    log_sum_exp = take(kTile);
    delta = take(kTile);
    dkeys = take(held_keys(rows) * padded_size(size));
    dvalues = take(held_keys(rows) * padded_size(size));
  }
};

template <class T>
struct Operands {
  const T *dout, *qkv, *out;
  const float* log_sum_exp;
  T* dqkv;
  Heads heads;

  float scale() const { return 1.0F / __builtin_sqrtf(static_cast<float>(heads.size)); }
};

/// The document of a task, rows [begin, end). The task's tiles of queries begin at rows in [query_begin,
/// query_end), its tiles of keys at rows in [key_begin, key_end).
struct Extent {
  int64_t begin, end, query_begin, query_end, key_begin, key_end;
  bool query_gradient, key_gradient;
};

Extent extent_of(const AttentionTask& t) {
  const int64_t begin = t.begin, end = t.end, first = t.first;
  const auto cut = [&](int64_t n) { return end - first < n ? end : first + n; };
  if (t.kind == kQueryGradient) return {begin, end, first, cut(kTile), begin, cut(kTile), true, false};
  if (t.kind == kKeyGradient) return {begin, end, first, end, first, cut(kKeysOfTask), false, true};
  return {begin, end, begin, end, begin, end, true, true};
}

/// Loads q and dout (each as rows and transposed) and l of a tile of queries, and computes delta.
template <class T>
void take_queries(const Operands<T>& x, int64_t first, int64_t count, int64_t head, const Scratch& s) {
  const int64_t size = x.heads.size, width = padded_size(size), out_row = x.heads.query * size;
  const int64_t at = first * out_row + head * size;
  take_rows(x.qkv + first * x.heads.row() + head * size, x.heads.row(), count, size, x.scale(), s.queries);
  transpose(s.queries, kTile, width, s.queries_t);
  take_rows(x.dout + at, out_row, count, size, 1.0F, s.douts);
  transpose(s.douts, kTile, width, s.douts_t);
  for (int64_t q = 0; q < kTile; ++q) {
    Vector dot{};
    if (q < count)
      each_vector(size, [&](int64_t i, auto lanes) {
        dot += load(x.out + at + q * out_row + i, lanes) * load(s.douts + q * width + i);
      });
    s.delta[q] = sum_lanes(dot);
    s.log_sum_exp[q] = q < count ? x.log_sum_exp[(first + q) * x.heads.query + head] : 0.0F;
  }
}

/// weights = e^(scores - l) and dscores = weights * (dscores - delta); both are 0 where the causal mask hides
/// the key.
void differentiate(const Scratch& s, int64_t key_count, int64_t query_columns, bool diagonal) {
  for (int64_t q = 0; q < query_columns; q += kLanes) {
    const VisibleKeys visible = visible_keys(q, key_count, diagonal);
    const Vector log_sum_exp = load(s.log_sum_exp + q), delta = load(s.delta + q);
    for (int64_t k = 0; k < visible.some; ++k) {
      float* weight = s.weights + k * kTile + q;
      float* dscore = s.dscores + k * kTile + q;
      Vector p = exponential(load(weight) - log_sum_exp);
      if (k >= visible.all) p = only_visible(p, k - q, 0.0F);
      store(weight, p);
      store(dscore, p * (load(dscore) - delta));
    }
  }
}

template <class T>
void run_tile(const Operands<T>& x, const Extent& e, int64_t head, int64_t first_query, int64_t first_key,
              const Scratch& s) {
  const int64_t size = x.heads.size, row = x.heads.row();
  const int64_t queries = e.end - first_query < kTile ? e.end - first_query : kTile;
  const int64_t columns = (queries + kLanes - 1) / kLanes * kLanes;
  const bool diagonal = first_key == first_query;
  const int64_t keys = diagonal ? queries : kTile;
  const int64_t key_head = x.heads.query + head / (x.heads.query / x.heads.key_value);
  const T* key = x.qkv + first_key * row + key_head * size;
  const Rows<const float> k = view_rows(key, row, keys, size, s.keys);
  const Rows<const float> v = view_rows(key + x.heads.key_value * size, row, keys, size, s.values);
  score(k, s.queries_t, keys, columns, size, diagonal, s.weights);
  score(v, s.douts_t, keys, columns, size, diagonal, s.dscores);
  differentiate(s, keys, columns, diagonal);
  if (e.query_gradient) add_weighted(k, s.dscores, keys, columns, size, diagonal, s.dqueries_t);
  if (!e.key_gradient) return;
  const int64_t at = (first_key - e.key_begin) * padded_size(size);
  add_transposed(s.weights, s.douts, keys, queries, size, diagonal, s.dvalues + at);
  add_transposed(s.dscores, s.queries, keys, queries, size, diagonal, s.dkeys + at);
}

template <class T>
void put_key_gradients(const Operands<T>& x, const Extent& e, int64_t key_value_head, const Scratch& s) {
  const int64_t size = x.heads.size, count = e.key_end - e.key_begin;
  T* to = x.dqkv + e.key_begin * x.heads.row() + (x.heads.query + key_value_head) * size;
  put_rows(s.dkeys, count, size, 1.0F, to, x.heads.row());
  put_rows(s.dvalues, count, size, 1.0F, to + x.heads.key_value * size, x.heads.row());
}

template <class T>
void run_task(const Operands<T>& x, const AttentionTask& task, int64_t key_value_head, const Scratch& s) {
  const Extent e = extent_of(task);
  const int64_t size = x.heads.size, width = padded_size(size);
  const int64_t group = x.heads.query / x.heads.key_value;
  if (e.key_gradient)
    for (int64_t i = 0; i < (e.key_end - e.key_begin + kTile - 1) / kTile * kTile * width; ++i)
      s.dkeys[i] = s.dvalues[i] = 0;
  for (int64_t head = key_value_head * group; head < (key_value_head + 1) * group; ++head)
    for (int64_t q = e.query_begin; q < e.query_end; q += kTile) {
      const int64_t queries = e.end - q < kTile ? e.end - q : kTile;
      take_queries(x, q, queries, head, s);
      if (e.query_gradient)
        for (int64_t i = 0; i < kTile * width; ++i) s.dqueries_t[i] = 0;
      for (int64_t k = e.key_begin; k < e.key_end && k <= q; k += kTile) run_tile(x, e, head, q, k, s);
      if (!e.query_gradient) continue;
      transpose(s.dqueries_t, width, kTile, s.queries);
      put_rows(s.queries, queries, size, x.scale(), x.dqkv + q * x.heads.row() + head * size, x.heads.row());
    }
  if (e.key_gradient) put_key_gradients(x, e, key_value_head, s);
}

/// The number of tiles of scores on and below the diagonal of a document.
int64_t tiles(int64_t length) {
  const int64_t n = (length + kTile - 1) / kTile;
  return n * (n + 1) / 2;
}

/// Writes the tasks and returns their number, which is at most the number of rows.
int64_t list_tasks(const Documents& documents, int64_t key_value_heads, AttentionTask* tasks) {
  const int32_t* offset = elements<int32_t>(documents.offset);
  const int64_t threads = omp_get_max_threads();
  int64_t total = 0, count = 0;
  for (int64_t d = 0; d < documents.count; ++d) total += tiles(offset[d + 1] - offset[d]) * key_value_heads;
  for (int64_t d = 0; d < documents.count; ++d) {
    const int32_t begin = offset[d], end = offset[d + 1];
    const int64_t length = end - begin;
    // A task of more than half of a thread's share of all tiles would keep other threads waiting.
    const bool busy = threads == 1 || 2 * tiles(length) * threads <= total;
    const bool whole = length <= kTile || (length <= kMaxWhole && busy);
    if (whole) {
      if (length > 0) tasks[count++] = {begin, end, begin, kWholeDocument};
      continue;
    }
    // Most key tasks are larger than the query tasks, so they come first.
    for (int32_t first = begin; first < end; first += static_cast<int32_t>(kKeysOfTask))
      tasks[count++] = {begin, end, first, kKeyGradient};
    for (int32_t first = begin; first < end; first += static_cast<int32_t>(kTile))
      tasks[count++] = {begin, end, first, kQueryGradient};
  }
  return count;
}

}  // namespace

int64_t attention_backward_bytes(int64_t rows, int64_t, const Heads& heads, DType, bool) {
  const auto task_bytes = static_cast<int64_t>(sizeof(AttentionTask)) * rows;
  return task_bytes + 4 * thread_floats(rows, heads.size) * omp_get_max_threads();
}

void attention_backward(const KernelCall& call, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Documents& documents, const Heads& heads,
                        const Tensor& dqkv) {
  const int64_t rows = qkv.rows();
  auto* tasks = static_cast<AttentionTask*>(call.workspace);
  void* scratch = tasks + rows;
  const int64_t count = list_tasks(documents, heads.key_value, tasks);
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    const Operands<T> operands{elements<T>(dout), elements<T>(qkv),
                               elements<T>(out),  elements<float>(log_sum_exp),
                               elements<T>(dqkv), heads};
#pragma omp parallel if (count * heads.key_value > 1)
    {
      const Scratch mine(scratch, rows, heads.size);
#pragma omp for schedule(dynamic)
      for (int64_t piece = 0; piece < count * heads.key_value; ++piece)
        run_task(operands, tasks[piece / heads.key_value], piece % heads.key_value, mine);
    }
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
