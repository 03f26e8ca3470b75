// Tiles of attention (64 rows of one head in scratch), for forward and backward. A tile of scores has keys as
// rows and queries as columns: each lane of a vector has its own query, so the softmax needs no sums across
// lanes.
#pragma once
#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

inline constexpr int64_t kTile = 64;  ///< rows of a tile of queries or of keys
static_assert(kTile % kLanes == 0);

/// Returns `size` rounded up to whole vectors of every instruction set, so that workspaces fit any set.
constexpr int64_t padded_size(int64_t size) {
  return (size + 15) / 16 * 16;
}

// ---- c [rows, columns] (+)= a [rows, depth] b [depth, columns]

/// The operand `a`: element (row, k) is data[row * row_stride + k * depth_stride].
struct Left {
  const float* data;
  int64_t row_stride, depth_stride;
};
/// A matrix. Each row is contiguous, and rows begin `stride` elements apart.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
};

// Registers for a block's sums: 24 of 32 (AVX-512), 12 of 16 (AVX) or 32 (ARM), 8 of 16 (SSE).
#if defined(__AVX512F__)
inline constexpr int kBlockRows = 8, kBlockVectors = 3;
#elif defined(__AVX__) || defined(__aarch64__)
inline constexpr int kBlockRows = 6, kBlockVectors = 2;
#else
inline constexpr int kBlockRows = 4, kBlockVectors = 2;
#endif

/// Computes one block of c. Without the unroll pragmas the compiler would keep `sum` in memory.
template <int kRows, int kVectors>
inline void multiply_block(Left a, Rows<const float> b, Rows<float> c, int64_t depth, Accumulate accumulate) {
  Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate == Accumulate::kYes ? load(c.data + r * c.stride + v * kLanes) : Vector{};
  for (int64_t k = 0; k < depth; ++k) {
    Vector right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load(b.data + k * b.stride + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vector left = broadcast(a.data[r * a.row_stride + k * a.depth_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] += left * right[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c.data + r * c.stride + v * kLanes, sum[r][v]);
}

template <int kVectors>
inline void multiply_columns(Left a, Rows<const float> b, Rows<float> c, int64_t rows, int64_t depth,
                             Accumulate accumulate) {
  int64_t r = 0;
  for (; r + kBlockRows <= rows; r += kBlockRows)
    multiply_block<kBlockRows, kVectors>({a.data + r * a.row_stride, a.row_stride, a.depth_stride}, b,
                                         {c.data + r * c.stride, c.stride}, depth, accumulate);
  for (; r + 2 <= rows; r += 2)
    multiply_block<2, kVectors>({a.data + r * a.row_stride, a.row_stride, a.depth_stride}, b,
                                {c.data + r * c.stride, c.stride}, depth, accumulate);
  if (r < rows)
    multiply_block<1, kVectors>({a.data + r * a.row_stride, a.row_stride, a.depth_stride}, b,
                                {c.data + r * c.stride, c.stride}, depth, accumulate);
}

/// `columns` is a multiple of kLanes. With AVX-512, multiplies three vectors of columns at a time, but the
/// last four as two pairs, because a single vector would use the registers badly.
inline void multiply(Left a, Rows<const float> b, Rows<float> c, int64_t rows, int64_t depth, int64_t columns,
                     Accumulate accumulate) {
  int64_t left = columns / kLanes;
  const auto advance = [&](int64_t vectors) {
    b.data += vectors * kLanes;
    c.data += vectors * kLanes;
    left -= vectors;
  };
  if constexpr (kBlockVectors == 3)
    for (; left >= 3 && left != 4; advance(3)) multiply_columns<3>(a, b, c, rows, depth, accumulate);
  for (; left >= 2; advance(2)) multiply_columns<2>(a, b, c, rows, depth, accumulate);
  if (left == 1) multiply_columns<1>(a, b, c, rows, depth, accumulate);
}

// ---- rows of heads to tiles and back

/// tile [kTile, padded_size] = `count` rows of a head, `stride` elements apart, times scale; the rest is 0.
template <class T>
inline void take_rows(const T* from, int64_t stride, int64_t count, int64_t size, float scale, float* tile) {
  const int64_t width = padded_size(size);
  for (int64_t n = 0; n < kTile; ++n) {
    float* to = tile + n * width;
    if (n >= count) {
      for (int64_t i = 0; i < width; i += kLanes) store(to + i, Vector{});
      continue;
    }
    for (int64_t i = size / kLanes * kLanes; i < width; i += kLanes) store(to + i, Vector{});
    each_vector(size,
                [&](int64_t i, auto lanes) { store(to + i, load(from + n * stride + i, lanes) * scale); });
  }
}

/// Rows of keys or values as float32: float32 rows in place, bfloat16 rows converted into `tile`.
inline Rows<const float> view_rows(const float* from, int64_t stride, int64_t, int64_t, float*) {
  return {from, stride};
}
inline Rows<const float> view_rows(const BFloat16* from, int64_t stride, int64_t count, int64_t size,
                                   float* tile) {
  for (int64_t n = 0; n < count; ++n)
    each_vector(size, [&](int64_t i, auto lanes) {
      store(tile + n * padded_size(size) + i, load(from + n * stride + i, lanes));
    });
  return {tile, padded_size(size)};
}

/// One step of a transpose: for each pair of rows that are kStep apart, exchanges the upper blocks of kStep
/// lanes of one row with the lower blocks of the other row.
template <int kStep>
[[gnu::always_inline]] inline void exchange_blocks(Vector (&row)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const Vector a = row[i], b = row[i + kStep];
    row[i] = shuffled<[](int n) { return (n & kStep) == 0 ? n : n + kLanes - kStep; }>(a, b);
    row[i + kStep] = shuffled<[](int n) { return (n & kStep) == 0 ? n + kStep : n + kLanes; }>(a, b);
  }
}

/// to [columns, rows] = from [rows, columns] transposed; rows and columns are multiples of kLanes.
inline void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; r += kLanes)
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vector block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) block[i] = load(from + (r + i) * columns + c);
      exchange_blocks<1>(block);
      exchange_blocks<2>(block);
      if constexpr (kLanes > 4) exchange_blocks<4>(block);
      if constexpr (kLanes > 8) exchange_blocks<8>(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(to + (c + i) * rows + r, block[i]);
    }
}

/// `count` rows of a head = tile [kTile, padded_size] times scale.
template <class T>
inline void put_rows(const float* tile, int64_t count, int64_t size, float scale, T* to, int64_t stride) {
  const int64_t width = padded_size(size);
  for (int64_t n = 0; n < count; ++n)
    each_vector(size, [&](int64_t i, auto lanes) {
      store(to + n * stride + i, load(tile + n * width + i) * scale, lanes);
    });
}

// ---- scores

/// The first column of a diagonal tile whose query may see `key`, rounded down to whole vectors. Columns and
/// keys are numbered from the beginning of the tile.
inline int64_t first_visible(int64_t key) {
  return key / kLanes * kLanes;
}

/// scores [keys, kTile] = keys * queries [size, kTile]. Skips most of a diagonal tile's masked half.
inline void score(Rows<const float> keys, const float* queries, int64_t key_count, int64_t query_columns,
                  int64_t size, bool diagonal, float* scores) {
  const int64_t step = diagonal ? kLanes : kTile;
  for (int64_t k = 0; k < key_count; k += step) {
    const int64_t first = diagonal ? first_visible(k) : 0;
    const int64_t rows = key_count - k < step ? key_count - k : step;
    multiply({keys.data + k * keys.stride, keys.stride, 1}, {queries + first, kTile},
             {scores + k * kTile + first, kTile}, rows, size, query_columns - first, Accumulate::kNo);
  }
}

/// Keys [0, `all`) are visible to every query of a vector, keys [0, `some`) to at least one query.
struct VisibleKeys {
  int64_t some, all;
};
inline VisibleKeys visible_keys(int64_t column, int64_t key_count, bool diagonal) {
  if (!diagonal) return {key_count, key_count};
  const int64_t some = column + kLanes;
  return {key_count < some ? key_count : some, key_count < column ? key_count : column};
}
/// Returns x in the lanes whose query sees the key, and `otherwise` in the other lanes. The key is
/// `key_after` (>= 0) rows after the query of lane 0.
[[gnu::always_inline]] inline Vector only_visible(Vector x, int64_t key_after, float otherwise) {
  return kLaneNumbers < static_cast<uint32_t>(key_after) ? broadcast(otherwise) : x;
}

/// result [size, kTile queries] += values^T [size, keys] * weights [keys, kTile queries].
inline void add_weighted(Rows<const float> values, const float* weights, int64_t key_count,
                         int64_t query_columns, int64_t size, bool diagonal, float* result) {
  const int64_t step = diagonal ? kLanes : kTile;
  for (int64_t k = 0; k < key_count; k += step) {
    const int64_t first = diagonal ? first_visible(k) : 0;
    const int64_t depth = key_count - k < step ? key_count - k : step;
    multiply({values.data + k * values.stride, 1, values.stride}, {weights + k * kTile + first, kTile},
             {result + first, kTile}, size, depth, query_columns - first, Accumulate::kYes);
  }
}

/// result [keys, padded_size] += weights [keys, kTile queries] * rows [queries, padded_size].
inline void add_transposed(const float* weights, const float* rows, int64_t key_count, int64_t query_count,
                           int64_t size, bool diagonal, float* result) {
  const int64_t step = diagonal ? kLanes : kTile, width = padded_size(size);
  for (int64_t k = 0; k < key_count; k += step) {
    const int64_t first = diagonal ? first_visible(k) : 0;
    const int64_t count = key_count - k < step ? key_count - k : step;
    multiply({weights + k * kTile + first, kTile, 1}, {rows + first * width, width},
             {result + k * width, width}, count, query_count - first, width, Accumulate::kYes);
  }
}

// ---- tasks

/// Work on the document [begin, end): the rows from `first` on, and for backward the `kind` of gradients.
struct AttentionTask {
  int32_t begin, end, first, kind;
};

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
