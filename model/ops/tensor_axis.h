// TensorAxis: all that a layer may ask of the ranks that hold the other slices of its weights.
#pragma once
#include <cstdint>

#include "model/core/function_ref.h"
#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

/// The tensor axis of the mesh as the model sees it. parallel/tensor_parallel.h implements it over a
/// communicator; `WholeAxis` is the axis of one rank. All members call the same functions in the same order.
///
/// Source: Megatron-LM tensor parallelism, arXiv:1909.08053 section 3; sequence parallelism, arXiv:2205.05198
/// section 4.2.2. `gather_sequence` and `scatter_sum` are each other's backward.
class TensorAxis {
 public:
  /// Whether `produce` may be called for parts of the rows, or needs to be called once with all.
  enum class Parts : bool { kAny, kWhole };

  virtual ~TensorAxis() = default;

  /// Ranks on the axis, and which of them this one is.
  virtual int64_t count() const = 0;
  virtual int64_t index() const = 0;

  /// Rows of the sequence that this rank holds between blocks, of `rows` in all. Sequence-sliced: rows /
  /// count, which must divide; replicated: all of them.
  virtual int64_t local_rows(int64_t rows) const = 0;

  /// Called with rows of the sequence, and where in it they begin.
  using RowsBody = FunctionRef<void(const Tensor& rows, int64_t first_row)>;

  /// Gathers the local rows `x` [n, C] of all ranks, and calls `body` with parts of the whole [N, C] that
  /// together are all rows: once with all, or once per peer as its rows arrive, own rows first. Returns the
  /// whole, which is `x` itself where nothing had to be gathered, else lies in the caller's arena frame
  /// (category communication). Moves (count - 1) * bytes(x) to this rank. All rows are there when it returns
  /// (in stream order).
  virtual Tensor gather_sequence(Context& context, const Tensor& x, RowsBody body) const = 0;

  /// Calls `produce` for parts of the whole [N, C] (once with all, or once per peer), which writes this
  /// rank's partial sums of those rows into the tensor it is given; sums these over the ranks in float32, in
  /// rank order, and leaves the local rows of the sum in `out` [n, C]. `parts` kWhole: one call with all
  /// rows, always. With one rank `produce` writes straight into `out`.
  virtual void scatter_sum(Context& context, const Tensor& out, RowsBody produce,
                           Parts parts = Parts::kAny) const = 0;

  /// Copies the equal-sized `x` of all ranks into `all` [count, ...x], in rank order.
  virtual void gather(Context& context, const Tensor& x, const Tensor& all) const = 0;
};

/// The axis of one rank: nothing to gather, nothing to sum.
class WholeAxis final : public TensorAxis {
 public:
  int64_t count() const override { return 1; }
  int64_t index() const override { return 0; }
  int64_t local_rows(int64_t rows) const override { return rows; }
  Tensor gather_sequence(Context&, const Tensor& x, RowsBody body) const override {
    body(x, 0);
    return x;
  }
  void scatter_sum(Context&, const Tensor& out, RowsBody produce, Parts) const override { produce(out, 0); }
  void gather(Context& context, const Tensor& x, const Tensor& all) const override {
    copy_bytes(context.stream, all.data, x.data, x.bytes());
  }
};

}  // namespace ripstop
