#include "parallel/collectives.h"

#include <algorithm>

namespace ripstop {

Part all_reduce_part(int64_t count, int64_t rank, int64_t size) {
  const int64_t least = count / size, larger = count % size;
  return {rank * least + std::min(rank, larger), least + (rank < larger ? 1 : 0)};
}

int64_t all_reduce_sent_bytes(int64_t count, DType travel, int64_t rank, int64_t size) {
  const int64_t own = all_reduce_part(count, rank, size).count;
  return (count - own + own * (size - 1)) * element_bytes(travel);
}

int64_t broadcast_children(int64_t rank, int64_t root, int64_t size) {
  const int64_t place = (rank - root + size) % size;
  int64_t children = 0;
  for (int64_t have = 1; have < size; have *= 2)
    if (place < have && place + have < size) ++children;
  return children;
}

int64_t Communicator::reduce_scatter_scratch_bytes(int64_t whole_count, DType travel) const {
  // For NCCL's own sums, scratch only holds the sum until it is added to `own`.
  const bool sums_on_the_way = kind() == DeviceKind::kCuda && travel == DType::kFloat32;
  const int64_t pieces = sums_on_the_way ? std::min<int64_t>(size() - 1, 1) : size() - 1;
  return whole_count / size() * pieces * element_bytes(travel);
}

int64_t Communicator::all_reduce_scratch_bytes(int64_t count, DType dtype, DType travel) const {
  if (kind() == DeviceKind::kCuda) return dtype == travel ? 0 : count * element_bytes(travel);
  return all_reduce_part(count, 0, size()).count * (size() - 1) * element_bytes(travel);
}

void check_all_gather(const Communicator& group, const Tensor& own, const Tensor& all) {
  RIPSTOP_CHECK(own.dtype == all.dtype, "{} gathered into {}", to_string(own.dtype), to_string(all.dtype));
  RIPSTOP_CHECK(own.count() * group.size() == all.count(), "{} elements of {} ranks gathered into {}",
                own.count(), group.size(), all.count());
}

void check_reduce_scatter(const Communicator& group, const Tensor& whole, const Tensor& own, DType travel,
                          const Tensor& scratch) {
  RIPSTOP_CHECK(whole.dtype == own.dtype && (own.dtype == DType::kFloat32 || own.dtype == DType::kBFloat16),
                "{} reduced into {}", to_string(whole.dtype), to_string(own.dtype));
  RIPSTOP_CHECK(travel == whole.dtype || travel == DType::kBFloat16, "{} travelling as {}",
                to_string(whole.dtype), to_string(travel));
  RIPSTOP_CHECK(own.count() * group.size() == whole.count(), "{} elements scattered over {} ranks into {}",
                whole.count(), group.size(), own.count());
  const int64_t needed = group.reduce_scatter_scratch_bytes(whole.count(), travel);
  RIPSTOP_CHECK(scratch.bytes() >= needed, "scratch of {} bytes, {} needed", scratch.bytes(), needed);
}

void check_all_reduce(const Communicator& group, const Tensor& x, DType travel, const Tensor& scratch) {
  const bool rounds = x.dtype == DType::kFloat32 && travel == DType::kBFloat16;
  RIPSTOP_CHECK(travel == x.dtype || (rounds && x.count() >= group.size()), "{} numbers in {} reduced as {}",
                x.count(), to_string(x.dtype), to_string(travel));
  const int64_t needed = group.all_reduce_scratch_bytes(x.count(), x.dtype, travel);
  RIPSTOP_CHECK(scratch.bytes() >= needed, "scratch of {} bytes, {} needed", scratch.bytes(), needed);
}

void check_exchanges(const Communicator& group, std::span<const Exchange> exchanges) {
  for (const auto& [send, to, receive, from] : exchanges) {
    check_peer(group, to);
    check_peer(group, from);
    const bool stays = to == group.rank();
    // Refuse if only one side is this rank, because the other rank would wait in vain.
    RIPSTOP_CHECK(stays == (from == group.rank()), "rank {} sends to {} and receives from {}", group.rank(),
                  to, from);
    RIPSTOP_CHECK(!stays || send.bytes() == receive.bytes(), "{} bytes sent to oneself, {} received",
                  send.bytes(), receive.bytes());
  }
}

void check_peer(const Communicator& group, int64_t rank) {
  RIPSTOP_CHECK(rank >= 0 && rank < group.size(), "rank {} of {}", rank, group.size());
}

void check_other(const Communicator& group, int64_t rank) {
  check_peer(group, rank);
  RIPSTOP_CHECK(rank != group.rank(), "a message of rank {} to itself", rank);
}

}  // namespace ripstop
