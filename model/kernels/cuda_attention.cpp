#include "model/kernels/cuda_attention.h"

#include <bit>

namespace ripstop::cuda {
namespace {

// cuDNN asks for 256 bytes a document and a little more forward, and for up to 230 KB backward.
constexpr int64_t kForwardPlanBytes = 256 * kMostDocuments + 768;
constexpr int64_t kBackwardPlanBytes = 2 * kForwardPlanBytes;

/// Gives out offsets one after another.
class Layout {
 public:
  int64_t take(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    const int64_t offset = end_;
    end_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

}  // namespace

int64_t padded_length(int64_t longest) {
  constexpr int64_t kShortest = 128;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(longest, kShortest))));
}

AttentionSchedule attention_schedule(int64_t rows, int64_t count, int64_t longest, bool padded) {
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

AttentionScratch attention_scratch(int64_t rows) {
  Layout layout;
  AttentionScratch scratch;
  for (int64_t* offsets :
       {&scratch.offset_row, &scratch.offset_query, &scratch.offset_key_value, &scratch.offset_heads})
    *offsets = layout.take(8 * (rows + 1));
  scratch.length = layout.take(4 * rows);
  scratch.plan = layout.take(kForwardPlanBytes);
  scratch.bytes = layout.end();
  return scratch;
}

AttentionScratch attention_backward_scratch(int64_t rows, int64_t longest, const Heads& heads,
                                            bool deterministic) {
  const int64_t query = heads.query * heads.size, key_value = heads.key_value * heads.size;
  const int64_t padded = attention_rows(rows, longest);
  Layout layout;
  AttentionScratch scratch = attention_scratch(rows);
  layout.take(scratch.plan);
  scratch.dquery = layout.take(2 * rows * query);
  scratch.dkey = layout.take(2 * rows * key_value);
  scratch.dvalue = layout.take(2 * rows * key_value);
  scratch.dquery_sum = layout.take(4 * padded * query);
  scratch.row_sum = layout.take(4 * padded * heads.query);
  // Grouped heads: stored as bfloat16, but NVIDIA's own front end takes four bytes an element. Without groups
  // a plan for Ampere wants one more float32 for each element of dQ.
  const int64_t grouped = (heads.query == heads.key_value ? 2 : 4) * padded * query;
  scratch.dkey_grouped = layout.take(grouped);
  scratch.dvalue_grouped = layout.take(grouped);
  scratch.plan = layout.take(kBackwardPlanBytes);
  // A fixed order comes from the gradient of the scores, written out in bfloat16.
  if (deterministic) layout.take(2 * heads.query * padded * padded_length(longest));
  scratch.bytes = layout.end();
  return scratch;
}

}  // namespace ripstop::cuda
