// Parts of tensors in collectives, the bytes that they send, and checks. Real and planned communicators share
// these functions, so a plan counts the same bytes as the run.
#pragma once
#include <cstdint>
#include <span>

#include "parallel/communicator.h"

namespace ripstop {

/// The address `offset_bytes` behind the begin of t's data.
inline std::byte* byte_at(const Tensor& t, int64_t offset_bytes) {
  return static_cast<std::byte*>(t.data) + offset_bytes;
}

/// Elements [first, first + count): the part of an all-reduce that one rank sums.
struct Part {
  int64_t first = 0;
  int64_t count = 0;
};

/// The part that rank `rank` sums if `size` ranks divide `count` elements. Parts differ by at most one
/// element; the longer parts come first.
Part all_reduce_part(int64_t count, int64_t rank, int64_t size);

/// Bytes that rank `rank` sends in an all-reduce: to every other rank r, first its terms of the part that r
/// sums, then the part that it has summed itself.
int64_t all_reduce_sent_bytes(int64_t count, DType travel, int64_t rank, int64_t size);

/// The number of ranks to which `rank` sends in a broadcast down a binomial tree from `root`. In round k = 1,
/// 2, 4, ... each of the first k ranks from the root on sends to the rank k places further.
int64_t broadcast_children(int64_t rank, int64_t root, int64_t size);

/// Each check throws Error(kBug) if tensors, dtypes, scratch or ranks do not fit the operation.
void check_all_gather(const Communicator& group, const Tensor& own, const Tensor& all);
void check_reduce_scatter(const Communicator& group, const Tensor& whole, const Tensor& own, DType travel,
                          const Tensor& scratch);
void check_all_reduce(const Communicator& group, const Tensor& x, DType travel, const Tensor& scratch);
void check_exchanges(const Communicator& group, std::span<const Exchange> exchanges);
void check_peer(const Communicator& group, int64_t rank);
/// Same as check_peer(), but also refuses this rank itself.
void check_other(const Communicator& group, int64_t rank);

}  // namespace ripstop
