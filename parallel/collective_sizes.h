// What each collective checks, needs and sends: the arithmetic that the planned and the real communicators
// share.
#pragma once
#include <cstdint>

#include "parallel/communicator.h"

namespace ripstop {

/// Elements [first, first + count) of an all-reduce: the part that rank `rank` sums.
struct Part {
  int64_t first = 0;
  int64_t count = 0;
};

/// `count` elements cut into `size` parts that differ by at most one element, the larger ones first.
Part all_reduce_part(int64_t count, int64_t rank, int64_t size);

/// Bytes that rank `rank` sends in an all-reduce: every part but its own once, its own part to all others.
int64_t all_reduce_sent_bytes(int64_t count, DType dtype, int64_t rank, int64_t size);

/// A broadcast goes down a binomial tree: in round k = 1, 2, 4, ... the k ranks that have the data each send
/// to one more. Ranks are counted from the root.
/// How many ranks this one passes the data on to.
int64_t broadcast_children(int64_t rank, int64_t root, int64_t size);

/// Communicator::reduce_scatter_scratch_bytes where the tensors lie on a device of kind `kind`: one piece
/// from each other rank; but NCCL itself sums what travels in float32, so that one piece, the sum, is enough.
int64_t reduce_scatter_scratch(int64_t whole_count, DType travel, int64_t size,
                               DeviceKind kind = DeviceKind::kCpu);

/// Communicator::all_reduce_scratch_bytes: one part from each other rank; nothing on CUDA.
int64_t all_reduce_scratch(int64_t count, DType dtype, int64_t size, DeviceKind kind = DeviceKind::kCpu);

/// Throw Error(kBug) where the tensors do not fit the operation.
void check_all_gather(const Communicator& group, const Tensor& own, const Tensor& all);
void check_reduce_scatter(const Communicator& group, const Tensor& whole, const Tensor& own, DType travel,
                          const Tensor& scratch);
void check_all_reduce(const Communicator& group, const Tensor& x, const Tensor& scratch);
void check_exchange(const Communicator& group, const Tensor& send, int64_t to, const Tensor& receive,
                    int64_t from);
void check_peer(const Communicator& group, int64_t rank);

}  // namespace ripstop
