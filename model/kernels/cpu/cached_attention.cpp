// Attention of single rows to cached keys and values, with the running softmax of attention.cpp.
#include <cstring>

#include "model/kernels/cpu/attention_tiles.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

constexpr int64_t kPositions = 64;  ///< positions between two updates of the running maximum

/// One thread's scratch: the query, the output so far and the scores.
int64_t thread_floats(const Heads& heads) {
  return 2 * padded_size(heads.size) + kPositions;
}

/// The places of a sequence's positions in its slot; see CachedTail.
struct Places {
  int64_t first = INT64_MAX;  ///< a position p below `first` is at place p
  const int32_t* of_rest = nullptr;

  int64_t operator()(int64_t position) const {
    return position < first ? position : of_rest[position - first];
  }
};
Places places_of(const CachedTail& tail, int64_t s) {
  if (tail.empty()) return {};
  return {elements<int32_t>(tail.first)[s], elements<int32_t>(tail.place) + s * tail.place.cols()};
}

/// Attention of one query to positions [0, count) of one key-value head. `stride`: elements from one place to
/// the next.
template <class T>
void attend(const T* query, const T* key, const T* value, const Places& place, int64_t stride, int64_t count,
            int64_t size, float* scratch, T* out) {
  float* q = scratch;
  float* o = q + padded_size(size);
  float* score = o + padded_size(size);
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(size));
  each_vector(size, [&](int64_t i, auto lanes) {
    store(q + i, load(query + i, lanes) * scale);
    store(o + i, Vector{});
  });
  float maximum = -__builtin_inff(), sum = 0;
  for (int64_t first = 0; first < count; first += kPositions) {
    const int64_t n = count - first < kPositions ? count - first : kPositions;
    float most = maximum;
    for (int64_t p = 0; p < n; ++p) {
      Vector dot{};
      each_vector(size, [&](int64_t i, auto lanes) {
        dot += load(q + i) * load(key + place(first + p) * stride + i, lanes);
      });
      score[p] = sum_lanes(dot);
      most = score[p] > most ? score[p] : most;
    }
    const float keep = exponential(broadcast(maximum - most))[0];
    maximum = most;
    sum *= keep;
    each_vector(size, [&](int64_t i, auto) { store(o + i, load(o + i) * keep); });
    each_vector(n, [&](int64_t p, auto lanes) {
      store(score + p, exponential(load(score + p, lanes) - maximum), lanes);
    });
    for (int64_t p = 0; p < n; ++p) {
      sum += score[p];
      each_vector(size, [&](int64_t i, auto lanes) {
        store(o + i, load(o + i) + score[p] * load(value + place(first + p) * stride + i, lanes));
      });
    }
  }
  const float inverse = 1.0F / sum;
  each_vector(size, [&](int64_t i, auto lanes) { store(out + i, load(o + i) * inverse, lanes); });
}

}  // namespace

int64_t attention_cached_bytes(const Heads& heads) {
  return 4 * thread_floats(heads) * omp_get_max_threads();
}

void store_key_value(const KernelCall&, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                     const Heads& heads, const Tensor& cache) {
  const int64_t element = element_bytes(qkv.dtype), positions = cache.shape[1];
  const int64_t row_bytes = heads.row() * element;
  const int64_t cached_bytes = 2 * heads.key_value * heads.size * element;
  const int32_t* at_slot = elements<int32_t>(slot);
  const int32_t* at_position = elements<int32_t>(position);
  parallel_rows(qkv.rows(), heads.row(), [&](int64_t s) {
    // Keys and values are the end of a row of q|k|v, and lie side by side in the cache.
    const char* from = elements<char>(qkv) + (s + 1) * row_bytes - cached_bytes;
    char* to = elements<char>(cache) + (at_slot[s] * positions + at_position[s]) * cached_bytes;
    std::memcpy(to, from, static_cast<size_t>(cached_bytes));
  });
}

void attention_cached(const KernelCall& call, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                      const Tensor& cache, const Heads& heads, const CachedTail& tail, const Tensor& out) {
  const int64_t size = heads.size, row = heads.row(), kept = heads.key_value * size;
  const int64_t group = heads.query / heads.key_value, positions = cache.shape[1];
  const int32_t* at_slot = elements<int32_t>(slot);
  const int32_t* at_position = elements<int32_t>(position);
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(qkv.rows() * heads.key_value, positions * size, [&](int64_t piece) {
      const int64_t s = piece / heads.key_value, k = piece % heads.key_value;
      const T* key = elements<T>(cache) + at_slot[s] * positions * 2 * kept + k * size;
      float* scratch = static_cast<float*>(call.workspace) + omp_get_thread_num() * thread_floats(heads);
      for (int64_t h = k * group; h < (k + 1) * group; ++h)
        attend(elements<T>(qkv) + s * row + h * size, key, key + kept, places_of(tail, s), 2 * kept,
               at_position[s] + 1, size, scratch, elements<T>(out) + (s * heads.query + h) * size);
    });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
