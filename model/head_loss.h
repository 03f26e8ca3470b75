// Final norm, head and cross-entropy over this rank's slice of the vocabulary.
#pragma once
#include "model/batch.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// loss = sum over target rows of cross-entropy(norm(residual) output^T, target).
///
/// Only rows with a target are multiplied (rounded up to kRowStep), in chunks, and the logits of a chunk turn
/// into their gradient at once, so neither N x V logits nor their gradient ever exist. The vocabulary is cut
/// over the tensor axis: three floats a row travel, never logits (arXiv:1909.08053 section 3). Traffic
/// depends on N alone, not on which rows have a target.
class HeadLoss {
 public:
  /// Rows of logits that exist at once.
  static constexpr int64_t kChunkRows = 1024;
  /// Rows of a chunk are multiplied in multiples of this: back ends make a plan or a kernel for every shape.
  static constexpr int64_t kRowStep = 128;

  HeadLoss(const ModelConfig& config, int64_t tensor_count, int64_t tensor_index);

  Parameter norm;  ///< [C]
  /// [V / t, C]; unused if embeddings are tied: the embedding's table is handed in instead.
  Parameter output;

  using Saved = NormSaved;
  Saved allocate(Context& context, int64_t rows, DType dtype) const;

  /// Adds the batch's loss to total [1] float64 (equal on all ranks of the tensor axis), and writes dresidual
  /// [n, C], the gradient of the summed loss by the residual; writes or adds the gradients of norm and
  /// `weights`. `weights` is `output` or the tied table.
  void forward_backward(Context& context, const Batch& batch, const Parameter& weights, Residual& residual,
                        const Saved& saved, const Tensor& total, const Tensor& dresidual) const;

  /// The loss alone.
  void forward(Context& context, const Batch& batch, const Parameter& weights, Residual& residual,
               const Saved& saved, const Tensor& total) const;

  /// The most probable next token after rows row [M] (int32) of the whole N (no tensor: after all, M = N), as
  /// each slice of the vocabulary sees it: value [t, M] float32 and id [t, M] int32, slice by slice; the
  /// prediction is the id of the largest value, the lowest id of equals. Equal on all ranks of the tensor
  /// axis.
  void predict(Context& context, const Parameter& weights, Residual& residual, const Saved& saved,
               const Tensor& row, const Tensor& value, const Tensor& id) const;

  /// logits [M, V / t] float32 after the same rows; columns beyond the slice's vocabulary mean nothing.
  void logits(Context& context, const Parameter& weights, Residual& residual, const Saved& saved,
              const Tensor& row, const Tensor& logits) const;

  /// The ids of this rank's columns.
  const VocabularySlice& slice() const { return slice_; }

 private:
  /// One chunk: rows [first, first + rows) of the batch's targets.
  struct Chunk {
    int64_t first = 0;
    int64_t rows = 0;
  };
  void chunk_loss(Context& context, const Batch& batch, const Parameter& weights, const Tensor& normed,
                  Chunk chunk, const Tensor& total, const Tensor& dnormed) const;

  int64_t hidden_;
  double epsilon_;
  VocabularySlice slice_;
};

}  // namespace ripstop
