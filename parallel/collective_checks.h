// The checks that every communicator makes before a collective.
#pragma once
#include <cstdint>
#include <span>

#include "parallel/communicator.h"

namespace ripstop {

/// Each throws Error(kBug) if the tensors, their dtypes or the scratch do not fit the operation, or if the
/// group has no such rank.
void check_all_gather(const Communicator& group, const Tensor& own, const Tensor& all);
void check_reduce_scatter(const Communicator& group, const Tensor& whole, const Tensor& own, DType travel,
                          const Tensor& scratch);
void check_all_reduce(const Communicator& group, const Tensor& x, const Tensor& scratch);
void check_exchanges(const Communicator& group, std::span<const Exchange> exchanges);
void check_peer(const Communicator& group, int64_t rank);

}  // namespace ripstop
