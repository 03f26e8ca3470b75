// TensorAxis: the communication of a layer with the ranks that have the other slices of its weights.
#pragma once
#include <cstdint>

#include "model/core/function_ref.h"
#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

/// The tensor axis of the mesh, as layers see it. parallel/tensor_parallel.h implements it with a
/// communicator; `WholeAxis` is the axis of one rank. `gather_sequence`, `scatter_sum` and `gather` are
/// collective: all ranks of the axis call them in the same order.
///
/// Source: Megatron-LM tensor parallelism, arXiv:1909.08053 section 3; sequence parallelism, arXiv:2205.05198
/// section 4.2.2. Each of `gather_sequence` and `scatter_sum` is the backward of the other.
class TensorAxis {
 public:
  /// Whether `produce` may be called for parts of the rows, or must be called once with all rows.
  enum class Parts : bool { kAny, kWhole };

  virtual ~TensorAxis() = default;

  /// The number of ranks on the axis, and the index of this one.
  virtual int64_t count() const = 0;
  virtual int64_t index() const = 0;

  /// How many of `rows` rows this rank has between blocks: rows / count with sequence parallelism (count must
  /// divide rows), all without.
  virtual int64_t local_rows(int64_t rows) const = 0;

  /// The first of `rows` rows that this rank has between blocks.
  int64_t first_local_row(int64_t rows) const {
    const int64_t local = local_rows(rows);
    return local == rows ? 0 : index() * local;
  }

  /// A function of a part of the whole's rows, and the index of the part's first row.
  using RowsBody = FunctionRef<void(const Tensor& rows, int64_t first_row)>;

  /// Gathers the local rows `x` [n, C] of all ranks. Calls `body` with parts that together are the whole [N,
  /// C]: once with all rows, or own rows first and others as they arrive. Returns the whole, complete in
  /// stream order: `x` itself if there is nothing to gather, else a tensor in the caller's arena frame
  /// (category kCommunication). This rank receives (count - 1) * bytes(x).
  virtual Tensor gather_sequence(Context& context, const Tensor& x, RowsBody body) const = 0;

  /// Gathers whole [N, C] in place: each rank has written its local rows there. This rank receives
  /// (count - 1) * bytes of its rows.
  virtual void gather_rows_of(Context& context, const Tensor& whole) const = 0;

  /// Calls `produce` for parts of the whole [N, C]; with Parts::kWhole once, with all rows. `produce` writes
  /// this rank's partial sums of those rows into the tensor that it gets. Sums them over the ranks in
  /// float32, in rank order, and writes the local rows of the sum to `out` [n, C]. With one rank `produce`
  /// writes directly into `out`.
  virtual void scatter_sum(Context& context, const Tensor& out, RowsBody produce,
                           Parts parts = Parts::kAny) const = 0;

  /// The backward of a column-parallel product: scatter_sum(out, produce), and `use` of gather_sequence(x).
  /// The gather runs beside `produce` and the sum beside `use`. If `gathered` is a tensor, `use` gets it and
  /// nothing is gathered. Everything is done, in stream order, on return.
  virtual void scatter_sum_and_gather(Context& context, const Tensor& out, RowsBody produce, const Tensor& x,
                                      const Tensor& gathered,
                                      FunctionRef<void(const Tensor& whole)> use) const = 0;

  /// Copies the `x` of all ranks, of equal sizes, into `all` [count, ...x] in rank order. `x` may lie at its
  /// place in `all`.
  virtual void gather(Context& context, const Tensor& x, const Tensor& all) const = 0;
};

/// The local rows `x` [n, C] of all ranks, [N, C]: TensorAxis::gather_sequence without a body.
inline Tensor gather_sequence(Context& context, const Tensor& x) {
  return context.tensor.gather_sequence(context, x, [](const Tensor&, int64_t) {});
}

/// The axis of one rank. There is nothing to gather and nothing to sum.
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
