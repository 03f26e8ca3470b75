#include "parallel/collective_sizes.h"

#include <algorithm>

namespace ripstop {

Part all_reduce_part(int64_t count, int64_t rank, int64_t size) {
  const int64_t least = count / size, larger = count % size;
  return {rank * least + std::min(rank, larger), least + (rank < larger ? 1 : 0)};
}

int64_t all_reduce_sent_bytes(int64_t count, DType dtype, int64_t rank, int64_t size) {
  const int64_t own = all_reduce_part(count, rank, size).count;
  return (count - own + own * (size - 1)) * element_bytes(dtype);
}

int64_t broadcast_children(int64_t rank, int64_t root, int64_t size) {
  const int64_t place = (rank - root + size) % size;
  int64_t children = 0;
  // A binomial tree: in each round all ranks that have the data send it to one more rank each.
  for (int64_t have = 1; have < size; have *= 2)
    if (place < have && place + have < size) ++children;
  return children;
}

int64_t reduce_scatter_scratch(int64_t whole_count, DType travel, int64_t size, DeviceKind kind) {
  // NCCL sums float32 pieces itself; scratch takes its sum if that is to be added to what is there.
  const bool sums_on_the_way = kind == DeviceKind::kCuda && travel == DType::kFloat32;
  const int64_t pieces = sums_on_the_way ? std::min<int64_t>(size - 1, 1) : size - 1;
  return whole_count / size * pieces * element_bytes(travel);
}

int64_t all_reduce_scratch(int64_t count, DType dtype, int64_t size, DeviceKind kind) {
  if (kind == DeviceKind::kCuda) return 0;  // NCCL reduces in place
  return all_reduce_part(count, 0, size).count * (size - 1) * element_bytes(dtype);
}

}  // namespace ripstop
