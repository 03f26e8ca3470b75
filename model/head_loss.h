#pragma once
#include "model/batch.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// Results of HeadLoss::predict for M rows, equal on all ranks of the tensor axis. Either `value` and `id`
/// are null, or `logits` and `statistics` are.
struct NextTokenScores {
  int64_t ids = 0;         ///< `value` and `id` leave out token ids from this number on
  Tensor value = {};       ///< [t, M] float32: the largest logit of each slice of the vocabulary
  Tensor id = {};          ///< [t, M] int32: the id of that logit; of equal logits, the lowest id
  Tensor logits = {};      ///< [t, M, V / t] float32 by slice; columns beyond the valid ids have no meaning
  Tensor statistics = {};  ///< [t, M, 3] float32: cross_entropy_statistics of each slice, of target 0
};

/// Final norm, head and loss. loss = sum over target rows of cross-entropy(norm(residual) output^T, target).
///
/// Only rows with a target are multiplied, in chunks. The logits of a chunk turn into their gradient at once,
/// so N x V logits are not stored. The tensor axis cuts the vocabulary, and ranks exchange three floats a row
/// instead of logits (arXiv:1909.08053 section 3). The bytes exchanged do not depend on the targets.
class HeadLoss {
 public:
  static constexpr int64_t kChunkRows = 1024;  ///< default of chunk_rows

  HeadLoss(const ModelConfig& config, int64_t tensor_count, int64_t tensor_index);

  /// The largest number of rows of logits at once. Larger chunks read and write the float32 gradient of the
  /// weights less often. Equal on all ranks of the tensor axis.
  int64_t chunk_rows = kChunkRows;

  Parameter norm;  ///< [C]
  /// [V / t, C]; unused if embeddings are tied, because the caller then passes the embedding's table
  Parameter output;

  using Saved = NormSaved;
  Saved allocate(Context& context, int64_t rows, DType dtype) const {
    return allocate_norm(context, context.tensor.local_rows(rows), hidden_, dtype);
  }

  /// Adds the batch's summed loss, equal on all ranks of the tensor axis, to total [1] float64. Writes the
  /// gradient of this loss w.r.t. the residual to dresidual [n, C]. Writes or adds the gradients of norm and
  /// of `weights` (`output` or the tied table), unless they are frozen.
  void forward_backward(Context& context, const Batch& batch, const Parameter& weights, Residual& residual,
                        const Saved& saved, const Tensor& total, const Tensor& dresidual) const;

  /// Adds the batch's summed loss to total.
  void forward(Context& context, const Batch& batch, const Parameter& weights, Residual& residual,
               const Saved& saved, const Tensor& total) const;

  /// Scores the next token of M rows: the rows listed in row [M] (int32), or all N rows if `row` is null. If
  /// scores.value and scores.id are not null, a rank sends two numbers a row to every other rank; the
  /// prediction is the lowest id with the largest value. Otherwise a rank sends its logits, 4 M V / t bytes,
  /// and statistics to every other rank.
  void predict(Context& context, const Parameter& weights, Residual& residual, const Saved& saved,
               const Tensor& row, const NextTokenScores& scores) const;

  /// logits [M, V / t] float32: this rank's logits of the next token, for the rows in `row` (see predict()).
  /// Columns beyond the slice's valid ids have no meaning.
  void logits(Context& context, const Parameter& weights, Residual& residual, const Saved& saved,
              const Tensor& row, const Tensor& logits) const;

 private:
  /// Chunks are padded to a multiple of this number of rows, because back ends keep a plan for each shape.
  int64_t row_step() const { return chunk_rows / 8; }
  void gather_logits(Context& context, const Parameter& weights, Residual& residual, const Saved& saved,
                     const Tensor& row, const NextTokenScores& scores) const;

  /// Targets [first, first + rows) of the batch.
  struct Chunk {
    int64_t first = 0;
    int64_t rows = 0;
  };
  /// Adds the loss of all targets to total. If dnormed [N, C] is not null, writes the rows of dnormed that
  /// have a target, and writes or adds the gradient of `weights`.
  void add_losses(Context& context, const Batch& batch, const Parameter& weights, const Tensor& normed,
                  const Tensor& total, const Tensor& dnormed) const;
  void chunk_loss(Context& context, const Batch& batch, const Parameter& weights, const Tensor& normed,
                  Chunk chunk, const Tensor& total, const Tensor& dnormed) const;

  int64_t hidden_;
  double epsilon_;
  VocabularySlice slice_;
};

}  // namespace ripstop
