// What each collective checks, needs and sends: the arithmetic that the planned and the real communicators
// share.
#pragma once
#include <cstdint>

#include "parallel/communicator.h"

namespace ripstop {

/// Elements [first, first + count) of an all-reduce: the part that rank `rank` sums.
struct Part {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// `count` elements cut into `size` parts that differ by at most one element, the larger ones first.
Part all_reduce_part(std::int64_t count, std::int64_t rank, std::int64_t size);

/// Bytes that rank `rank` sends in an all-reduce: every part but its own once, its own part to all others.
std::int64_t all_reduce_sent_bytes(std::int64_t count, DType dtype, std::int64_t rank, std::int64_t size);

/// A broadcast goes down a binomial tree: in round k = 1, 2, 4, ... the k ranks that have the data each send
/// to one more. Ranks are counted from the root.
/// How many ranks this one passes the data on to.
std::int64_t broadcast_children(std::int64_t rank, std::int64_t root, std::int64_t size);

/// Communicator::reduce_scatter_scratch_bytes where the tensors lie on a device of kind `kind`: one piece
/// from each other rank; but NCCL itself sums what travels in float32, so that one piece, the sum, is enough.
std::int64_t reduce_scatter_scratch(std::int64_t whole_count, DType travel, std::int64_t size,
                                    DeviceKind kind = DeviceKind::kCpu);

/// Communicator::all_reduce_scratch_bytes: one part from each other rank; nothing on CUDA.
std::int64_t all_reduce_scratch(std::int64_t count, DType dtype, std::int64_t size,
                                DeviceKind kind = DeviceKind::kCpu);

/// Throw Error(kBug) where the tensors do not fit the operation.
void check_all_gather(const Communicator& group, const Tensor& own, const Tensor& all);
void check_reduce_scatter(const Communicator& group, const Tensor& whole, const Tensor& own, DType travel,
                          const Tensor& scratch);
void check_all_reduce(const Communicator& group, const Tensor& x, const Tensor& scratch);
void check_exchange(const Communicator& group, const Tensor& send, std::int64_t to, const Tensor& receive,
                    std::int64_t from);
void check_peer(const Communicator& group, std::int64_t rank);

}  // namespace ripstop
