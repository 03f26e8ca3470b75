// locate: one thread per document. to_places and to_rows: one thread per position of a head. join: one block
// per row, in which each thread copies 16 bytes at a time. single_rows: one block per document.
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/ragged_documents.h"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;

struct RowWidths {
  int64_t row, query, key_value, heads;
};

__global__ void __launch_bounds__(kThreads)
    locate(const int32_t* begin, int64_t count, RowWidths width, RaggedOffsets to) {
  const int64_t d = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (d > count) return;  // thread d == count writes the end of the last document
  const int64_t first = begin[d];
  to.row[d] = first * width.row;
  to.query[d] = first * width.query;
  to.key_value[d] = first * width.key_value;
  to.heads[d] = first * width.heads;
  if (d < count) to.length[d] = begin[d + 1] - begin[d];
}

// Position p of head h in a document, which begins at row `first` and has `rows` rows.
struct HeadPosition {
  int64_t h, p, first, rows;
};
__device__ HeadPosition head_position(const int32_t* begin, int64_t heads) {
  const int64_t d = blockIdx.x / heads, first = begin[d];
  return {blockIdx.x % heads, static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x, first,
          begin[d + 1] - first};
}

__global__ void __launch_bounds__(kThreads)
    to_places(const int32_t* begin, int64_t heads, int64_t length, const float* by_row, float* by_place) {
  const HeadPosition at = head_position(begin, heads);
  if (at.p >= length) return;
  by_place[blockIdx.x * length + at.p] = at.p < at.rows ? by_row[(at.first + at.p) * heads + at.h] : 0.0F;
}

__global__ void __launch_bounds__(kThreads)
    to_rows(const int32_t* begin, int64_t heads, int64_t length, const float* by_place, float* by_row) {
  const HeadPosition at = head_position(begin, heads);
  if (at.p < at.rows) by_row[(at.first + at.p) * heads + at.h] = by_place[blockIdx.x * length + at.p];
}

Grid head_positions(const DocumentGroup& group, const Tensor& log_sum_exp, int64_t length) {
  return {group.count * log_sum_exp.shape[1], divide_up(length, int64_t{kThreads})};
}

__global__ void __launch_bounds__(kThreads)
    join(SeparateGradients from, int64_t query, int64_t key_value, BFloat16* dqkv) {
  constexpr int kWidth = 8;
  const int64_t n = blockIdx.x, row = query + 2 * key_value;
  for (int64_t i = threadIdx.x * kWidth; i < row; i += blockDim.x * kWidth) {
    const BFloat16* place = i < query               ? from.query + n * query + i
                            : i < query + key_value ? from.key + n * key_value + i - query
                                                    : from.value + n * key_value + i - query - key_value;
    *reinterpret_cast<uint4*>(dqkv + n * row + i) = *reinterpret_cast<const uint4*>(place);
  }
}

__global__ void __launch_bounds__(kThreads)
    single_rows(const int32_t* begin, Heads heads, const BFloat16* dout, BFloat16* dqkv) {
  const int64_t n = begin[blockIdx.x];
  if (begin[blockIdx.x + 1] - n != 1) return;
  const int64_t group = heads.query / heads.key_value;
  const int64_t value = (heads.query + heads.key_value) * heads.size;
  const int64_t row = value + heads.key_value * heads.size;
  for (int64_t i = threadIdx.x; i < row; i += blockDim.x) {
    Floats<1> sum{};
    if (i >= value) {
      const int64_t head = (i - value) / heads.size, element = (i - value) % heads.size;
      for (int64_t h = head * group; h < (head + 1) * group; ++h)
        sum.at[0] += load<1>(dout + (n * heads.query + h) * heads.size + element).at[0];
    }
    store(dqkv + n * row + i, sum);
  }
}

}  // namespace

void locate_documents(const KernelCall& call, const Documents& documents, const Heads& heads,
                      const RaggedOffsets& offsets) {
  const RowWidths width{heads.row(), heads.query * heads.size, heads.key_value * heads.size, heads.query};
  launch(call, "locate_documents", locate, {divide_up(documents.count + 1, int64_t{kThreads})}, kThreads,
         elements<const int32_t>(documents.offset), documents.count, width, offsets);
}

void log_sum_exp_by_place(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                          int64_t length, const Tensor& log_sum_exp, float* by_place) {
  launch(call, "log_sum_exp_by_place", to_places, head_positions(group, log_sum_exp, length), kThreads,
         elements<const int32_t>(documents.offset) + group.first, log_sum_exp.shape[1], length,
         elements<const float>(log_sum_exp), by_place);
}

void log_sum_exp_by_row(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                        int64_t length, const float* by_place, const Tensor& log_sum_exp) {
  launch(call, "log_sum_exp_by_row", to_rows, head_positions(group, log_sum_exp, length), kThreads,
         elements<const int32_t>(documents.offset) + group.first, log_sum_exp.shape[1], length, by_place,
         elements<float>(log_sum_exp));
}

void join_gradients(const KernelCall& call, const SeparateGradients& gradients, const Heads& heads,
                    const Tensor& dqkv) {
  launch(call, "join_gradients", join, {dqkv.rows()}, row_threads(heads.row() / 8, 2, kThreads), gradients,
         heads.query * heads.size, heads.key_value * heads.size, elements<BFloat16>(dqkv));
}

void single_row_gradients(const KernelCall& call, const Documents& documents, const Heads& heads,
                          const Tensor& dout, const Tensor& dqkv) {
  launch(call, "single_row_gradients", single_rows, {documents.count}, row_threads(heads.row(), 4, kThreads),
         elements<const int32_t>(documents.offset), heads, elements<const BFloat16>(dout),
         elements<BFloat16>(dqkv));
}

}  // namespace ripstop::cuda
