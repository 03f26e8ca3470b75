// The tensor axis over a communicator.
#pragma once
#include <memory>

#include "model/tensor_axis.h"
#include "parallel/communicator.h"

namespace ripstop {

/// The axis of training: between blocks each rank holds N / t rows. gather_sequence is an all-gather and
/// scatter_sum a reduce-scatter (arXiv:2205.05198); N must divide by t. `overlap`: bodies are called once per
/// peer, own rows first, while the others' travel; else once. `communicator` must outlive the axis; of one
/// rank: a WholeAxis.
std::unique_ptr<TensorAxis> make_sequence_axis(Communicator& communicator, bool overlap);

/// The axis of generation, where N may be smaller than t: each rank holds all rows. gather_sequence is the
/// identity and scatter_sum an all-reduce (arXiv:1909.08053).
std::unique_ptr<TensorAxis> make_replicated_axis(Communicator& communicator);

}  // namespace ripstop
