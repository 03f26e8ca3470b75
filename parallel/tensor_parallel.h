// Tensor parallelism: the model's TensorAxis over the ranks of a communicator.
#pragma once
#include <memory>

#include "model/ops/tensor_axis.h"
#include "parallel/communicator.h"

namespace ripstop {

/// The axis of training: between blocks each rank holds N / t rows; N must divide by t. gather_sequence is an
/// all-gather, scatter_sum a reduce-scatter that takes N rows and another N - N / t from the arena while it
/// works (arXiv:2205.05198). `communicator` must outlive the axis. Of one rank: a WholeAxis.
///
///           n rows   gather_sequence   N rows         N rows   scatter_sum   n rows
///   rank 0   |0|  ------------------>  |0 1|  body    |0 1|  ------------->   |0|  of the sum
///   rank 1   |1|  ------------------>  |0 1|  body    |0 1|  ------------->   |1|  of the sum
///
/// `overlap`: bodies are called once per peer, own rows first (scatter_sum: last), while the others' travel.
/// It gains where a device moves data while it computes, and changes neither memory nor bytes nor the order
/// of sums over ranks: results are equal to rounding, as one GEMM becomes several.
std::unique_ptr<TensorAxis> make_sequence_axis(Communicator& communicator, bool overlap);

/// The axis of generation, where N may be smaller than t: each rank holds all rows. gather_sequence is the
/// identity and scatter_sum an all-reduce (arXiv:1909.08053).
std::unique_ptr<TensorAxis> make_replicated_axis(Communicator& communicator);

}  // namespace ripstop
