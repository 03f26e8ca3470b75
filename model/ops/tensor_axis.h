#pragma once
#include <cstdint>

#include "model/core/function_ref.h"
#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

/// The tensor axis of the mesh: the ranks that hold the other slices of a layer's weights.
/// parallel/tensor_parallel.h implements it with a communicator; WholeAxis is the axis of one rank. The
/// functions that gather or sum are collective.
///
/// Source: Megatron-LM tensor parallelism, arXiv:1909.08053 section 3; sequence parallelism, arXiv:2205.05198
/// section 4.2.2. gather_sequence() and scatter_sum() are each other's backward.
class TensorAxis {
 public:
  /// Whether scatter_sum() may call `produce` for parts of the rows, or must call it once with all rows.
  enum class Parts : bool { kAny, kWhole };

  virtual ~TensorAxis() = default;

  virtual int64_t count() const = 0;
  virtual int64_t index() const = 0;

  /// The number of rows, of `rows` in all, that this rank holds between sub-layers: all, or with sequence
  /// parallelism rows / count(), which must be whole.
  virtual int64_t local_rows(int64_t rows) const = 0;

  int64_t first_local_row(int64_t rows) const {
    const int64_t local = local_rows(rows);
    return local == rows ? 0 : index() * local;
  }

  /// Called with some rows of a tensor [N, C], and with the index of the first of these rows in the tensor.
  using RowsBody = FunctionRef<void(const Tensor& rows, int64_t first_row)>;

  /// Gathers the local rows `x` [n, C] of all ranks to the whole [N, C]. Calls `body` once with all rows, or
  /// first with this rank's rows and then with the others as they arrive. Returns the whole, complete in
  /// stream order: `x` itself if there is nothing to gather; else a tensor in the caller's arena frame
  /// (category kCommunication), for which this rank receives (count - 1) * bytes(x).
  virtual Tensor gather_sequence(Context& context, const Tensor& x, RowsBody body) const = 0;

  /// Gathers [N, C] in place: each rank has written its local rows of `whole`, and receives the other rows.
  virtual void gather_rows_of(Context& context, const Tensor& whole) const = 0;

  /// Calls `produce` for parts of the whole [N, C]; with Parts::kWhole once, for all rows. `produce` writes
  /// this rank's terms of the sum into the tensor that it gets. Sums the terms of all ranks, in the
  /// order of the communicator or of the ranks, and writes the local rows of the sum to `out` [n, C].
  virtual void scatter_sum(Context& context, const Tensor& out, RowsBody produce,
                           Parts parts = Parts::kAny) const = 0;

  /// The communication in the backward of a column-parallel product: scatter_sum(out, produce), and
  /// use(whole) with whole = gather_sequence(x), or with whole = `gathered` if that is not null. The gather
  /// overlaps `produce`, the sum overlaps `use`. On return, gather and sum are done in stream order.
  virtual void scatter_sum_and_gather(Context& context, const Tensor& out, RowsBody produce, const Tensor& x,
                                      const Tensor& gathered,
                                      FunctionRef<void(const Tensor& whole)> use) const = 0;

  /// Copies the tensors `x` of all ranks, of equal shape, into `all` [count, ...x] in rank order. `x` may be
  /// this rank's part of `all`.
  virtual void gather(Context& context, const Tensor& x, const Tensor& all) const = 0;
};

inline Tensor gather_sequence(Context& context, const Tensor& x) {
  return context.tensor.gather_sequence(context, x, [](const Tensor&, int64_t) {});
}

class WholeAxis final : public TensorAxis {
 public:
  int64_t count() const override { return 1; }
  int64_t index() const override { return 0; }
  int64_t local_rows(int64_t rows) const override { return rows; }
  Tensor gather_sequence(Context&, const Tensor& x, RowsBody body) const override {
    body(x, 0);
    return x;
  }
  void gather_rows_of(Context&, const Tensor&) const override {}
  void scatter_sum(Context&, const Tensor& out, RowsBody produce, Parts) const override { produce(out, 0); }
  void scatter_sum_and_gather(Context&, const Tensor& out, RowsBody produce, const Tensor& x,
                              const Tensor& gathered,
                              FunctionRef<void(const Tensor& whole)> use) const override {
    produce(out, 0);
    use(gathered.empty() ? x : gathered);
  }
  void gather(Context& context, const Tensor& x, const Tensor& all) const override {
    if (all.data != x.data) copy_bytes(context.stream, all.data, x.data, x.bytes());
  }
};

}  // namespace ripstop
