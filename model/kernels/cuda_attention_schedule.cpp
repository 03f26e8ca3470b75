#include "model/kernels/cuda_attention_schedule.h"

#include <bit>

namespace ripstop::cuda {

int64_t padded_length(int64_t longest) {
  constexpr int64_t kShortest = 128;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(longest, kShortest))));
}

AttentionSchedule attention_schedule(int64_t rows, int64_t count, int64_t longest, bool padded) {
  // Rows of cuDNN's tile. Documents of whole tiles need no mask for padding.
  constexpr int64_t kTile = 128;
  if (count * longest == rows && longest % kTile == 0)
    return {.dense = true, .length = longest, .groups = {{0, count}}};
  AttentionSchedule schedule{.dense = false, .length = padded_length(longest), .groups = {}};
  const int64_t most =
      std::min(kMostDocuments, padded ? attention_rows(rows, longest) / schedule.length : kMostDocuments);
  for (int64_t first = 0; first < count;) {
    const auto room = static_cast<uint64_t>(std::min(count - first, most));
    schedule.groups.push_back({first, static_cast<int64_t>(std::bit_floor(room))});
    first += schedule.groups.back().count;
  }
  return schedule;
}

}  // namespace ripstop::cuda
