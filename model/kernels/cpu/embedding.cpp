// Backward is parallel over strips of columns and parts of token_order, which is cut only between different
// tokens. Each element of the table has one thread, which sums in row order, without atomics.
#include <cstring>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

constexpr int64_t kColumns = 64;  ///< columns of a backward task: whole cache lines
/// entries of token_order in a backward task, before the task's ends move to the next change of token
constexpr int64_t kOrdered = 512;

/// The first index >= `at` in `order` at which the token changes.
int64_t next_cut(const int32_t* token, const int32_t* order, int64_t rows, int64_t at) {
  if (at == 0) return 0;
  while (at < rows && token[order[at]] == token[order[at - 1]]) ++at;
  return at < rows ? at : rows;
}

}  // namespace

void embedding(const KernelCall&, const Tensor& token, const Tensor& table, int64_t first_id,
               const Tensor& out) {
  const int32_t* id = elements<int32_t>(token);
  const int64_t row_bytes = out.cols() * element_bytes(out.dtype), held = table.rows();
  parallel_rows(out.rows(), out.cols(), [&](int64_t n) {
    char* to = elements<char>(out) + n * row_bytes;
    const int64_t row = id[n] - first_id;
    if (row >= 0 && row < held) {
      std::memcpy(to, elements<char>(table) + row * row_bytes, static_cast<size_t>(row_bytes));
    } else {
      std::memset(to, 0, static_cast<size_t>(row_bytes));
    }
  });
}

void embedding_backward(const KernelCall& call, const Tensor& token, const Tensor& token_order,
                        const Tensor& dout, int64_t first_id, const Tensor& dtable, Accumulate accumulate) {
  if (accumulate == Accumulate::kNo) fill_zero(call, dtable);
  const int64_t rows = dout.rows(), columns = dout.cols(), held = dtable.rows();
  const int32_t* id = elements<int32_t>(token);
  const int32_t* order = elements<int32_t>(token_order);
  const int64_t strips = (columns + kColumns - 1) / kColumns, ranges = (rows + kOrdered - 1) / kOrdered;
  with_element(dout.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(strips * ranges, kColumns * kOrdered, [&](int64_t piece) {
      const int64_t column = piece % strips * kColumns, begin = piece / strips * kOrdered;
      const int64_t width = columns - column < kColumns ? columns - column : kColumns;
      // Each end moves forward to the next change of token, so no two tasks share a token.
      const int64_t end = next_cut(id, order, rows, begin + kOrdered);
      for (int64_t at = next_cut(id, order, rows, begin); at < end; ++at) {
        const int64_t row = id[order[at]] - first_id;
        if (row < 0 || row >= held) continue;
        const T* from = elements<T>(dout) + order[at] * columns + column;
        float* to = elements<float>(dtable) + row * columns + column;
        each_vector(width, [&](int64_t i, auto lanes) {
          store(to + i, load(to + i, lanes) + load(from + i, lanes), lanes);
        });
      }
    });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
