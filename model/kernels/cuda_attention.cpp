#include "model/kernels/cuda_attention.h"

#include <bit>

#include "model/core/rounding.h"
#include "model/device/device.h"

namespace ripstop::cuda {
namespace {

// Room for a plan's own workspace: cuDNN 9.19 to 9.26 ask for up to 232 KB.
constexpr int64_t kPlanBytes = int64_t{1} << 20;

struct Layout {
  int64_t end = 0;

  int64_t take(int64_t bytes) {
    const int64_t offset = end;
    end += round_up(bytes, kMemoryAlignment);
    return offset;
  }
};

// Lays out the parts that forward and backward share. `padded`: the number of rows of log_sum_exp.
AttentionWorkspace first_parts(Layout& layout, int64_t rows, int64_t padded, const Heads& heads) {
  AttentionWorkspace workspace;
  for (int64_t* offsets :
       {&workspace.offset_row, &workspace.offset_query, &workspace.offset_key_value, &workspace.offset_heads})
    *offsets = layout.take(8 * (rows + 1));
  workspace.length = layout.take(4 * rows);
  workspace.log_sum_exp = layout.take(4 * padded * heads.query);
  return workspace;
}

}  // namespace

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

AttentionWorkspace attention_workspace(int64_t rows, const Heads& heads) {
  Layout layout;
  AttentionWorkspace workspace = first_parts(layout, rows, rows, heads);
  workspace.plan = layout.take(kPlanBytes);
  workspace.bytes = layout.end;
  return workspace;
}

AttentionWorkspace attention_backward_workspace(int64_t rows, int64_t longest, const Heads& heads,
                                                bool deterministic) {
  const int64_t query = heads.query * heads.size, key_value = heads.key_value * heads.size;
  const int64_t padded = attention_rows(rows, longest);
  Layout layout;
  AttentionWorkspace workspace = first_parts(layout, rows, padded, heads);
  workspace.dquery = layout.take(2 * rows * query);
  workspace.dkey = layout.take(2 * rows * key_value);
  workspace.dvalue = layout.take(2 * rows * key_value);
  workspace.dquery_sum = layout.take(4 * padded * query);
  workspace.row_sum = layout.take(4 * padded * heads.query);
  // With grouped heads, the next two parts are dK and dV per query head, with four bytes for each bfloat16,
  // as in NVIDIA's front end. Without grouped heads, both together hold one more float32 for each element of
  // dQ, which a plan for Ampere needs.
  const int64_t grouped = (heads.query == heads.key_value ? 2 : 4) * padded * query;
  workspace.dkey_grouped = layout.take(grouped);
  workspace.dvalue_grouped = layout.take(grouped);
  workspace.plan = layout.take(kPlanBytes);
  // Sums::kFromScores stores the gradient of all scores in bfloat16: S columns for each row and query head.
  if (deterministic) layout.take(2 * heads.query * padded * padded_length(longest));
  workspace.bytes = layout.end;
  return workspace;
}

}  // namespace ripstop::cuda
