#pragma once
#include <memory>

#include "model/ops/tensor_axis.h"
#include "parallel/communicator.h"

namespace ripstop {

/// Makes the axis of training. Between blocks each rank holds N / t rows; t must divide N. gather_sequence is
/// an all-gather; scatter_sum is a reduce-scatter, which takes N rows and another N - N / t rows from the
/// arena while it works. `communicator` must outlive the axis. With one rank it is a WholeAxis. Source:
/// arXiv:2205.05198.
///
///           n rows   gather_sequence   N rows         N rows   scatter_sum   n rows
///   rank 0   |0|  ------------------>  |0 1|  body    |0 1|  ------------->   |0|  of the sum
///   rank 1   |1|  ------------------>  |0 1|  body    |0 1|  ------------->   |1|  of the sum
///
/// `overlap`: calls the bodies for some rows while other rows are sent. This rank's rows come first (in
/// scatter_sum last), and the rows of one half of the peers before the other half. This pays if the device
/// moves data while it computes. Memory and bytes do not change; results may differ by rounding: one GEMM
/// becomes several, and NCCL's sums of float32 become sums in rank order.
std::unique_ptr<TensorAxis> make_sequence_axis(Communicator& communicator, bool overlap);

/// Makes the axis of generation, where each rank holds all N rows, because N may be smaller than t:
/// gather_sequence is the identity, scatter_sum an all-reduce. `communicator` must outlive the axis. With one
/// rank it is a WholeAxis. Source: arXiv:1909.08053.
std::unique_ptr<TensorAxis> make_replicated_axis(Communicator& communicator);

}  // namespace ripstop
