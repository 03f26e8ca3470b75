// How collectives divide tensors, and the bytes of scratch and of messages that they take. The real and the
// planned communicators share these numbers, so that a plan equals the run.
#pragma once
#include <cstdint>

#include "model/device/device.h"
#include "model/device/dtype.h"

namespace ripstop {

/// Elements [first, first + count) of the tensor of an all-reduce: the part that one rank sums.
struct Part {
  int64_t first = 0;
  int64_t count = 0;
};

/// The part of rank `rank` when `count` elements are cut into `size` parts. Parts differ by at most one
/// element; the larger ones come first.
Part all_reduce_part(int64_t count, int64_t rank, int64_t size);

/// Bytes that rank `rank` sends in an all-reduce: every part but its own once, its own part to all others.
int64_t all_reduce_sent_bytes(int64_t count, DType dtype, int64_t rank, int64_t size);

/// How many ranks `rank` sends the data to in a broadcast. The broadcast goes down a binomial tree, with
/// ranks counted from the root: in round k = 1, 2, 4, ... each of the first k ranks sends to the rank k
/// places after it.
int64_t broadcast_children(int64_t rank, int64_t root, int64_t size);

/// Communicator::reduce_scatter_scratch_bytes if the tensors lie on a device of kind `kind`: one piece from
/// each other rank. On CUDA one piece is enough if gradients travel in float32, because NCCL then sums them
/// itself.
int64_t reduce_scatter_scratch(int64_t whole_count, DType travel, int64_t size,
                               DeviceKind kind = DeviceKind::kCpu);

/// Communicator::all_reduce_scratch_bytes: one part from each other rank; 0 on CUDA.
int64_t all_reduce_scratch(int64_t count, DType dtype, int64_t size, DeviceKind kind = DeviceKind::kCpu);

}  // namespace ripstop
