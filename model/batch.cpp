#include "model/batch.h"

#include <algorithm>
#include <numeric>

namespace ripstop {
namespace {

// The arrays token, position, token_order, target_row, target and document_offset (one element longer).
constexpr int64_t kArrays = 6;

int64_t longest(std::span<const int32_t> offset) {
  int32_t most = 0;
  for (size_t d = 1; d < offset.size(); ++d) most = std::max(most, offset[d] - offset[d - 1]);
  return most;
}

}  // namespace

BatchMemory::BatchMemory(const Device& device, MemoryLedger& ledger, int64_t sequence_count,
                         int64_t sequence_length, int64_t batches)
    : capacity_rows_(sequence_count * sequence_length),
      sequence_length_(sequence_length),
      batches_(batches),
      memory_(device, ledger, MemoryCategory::kActivations, 4 * batches * (kArrays * capacity_rows_ + 1)) {}

Batch BatchMemory::load(const Stream& stream, int64_t sequence_count, const HostTokens& tokens) {
  const int64_t rows = sequence_count * sequence_length_;
  RIPSTOP_CHECK(rows <= capacity_rows_, "{} rows in memory for {}", rows, capacity_rows_);
  const int64_t first = next_++ % batches_ * (kArrays * capacity_rows_ + 1);
  const auto array = [&](int64_t number, int64_t count) {
    return tensor_in(memory_, 4 * (first + number * capacity_rows_), DType::kInt32, {count});
  };
  Batch batch{.token = array(0, rows),
              .position = array(1, rows),
              .document_offset = array(5, capacity_rows_ + 1),
              .token_order = array(2, rows),
              .target_row = array(3, rows),
              .target = array(4, rows)};
  if (stream.device().kind == DeviceKind::kMeta) {
    // By default a plan assumes the most memory: one document per sequence, and a target for every row.
    batch.document_count = sequence_count;
    batch.longest_document =
        tokens.document_offset.empty() ? sequence_length_ : longest(tokens.document_offset);
    batch.target_count = tokens.target.empty() ? rows : std::ssize(tokens.target);
    return batch;
  }
  const auto n = static_cast<size_t>(rows);
  RIPSTOP_CHECK(tokens.token.size() == n && tokens.position.size() == n && tokens.target.size() == n &&
                    tokens.document_offset.size() >= 2 && tokens.document_offset.back() == rows,
                "a host batch of {} tokens for {} rows", tokens.token.size(), rows);
  batch.document_count = static_cast<int64_t>(tokens.document_offset.size()) - 1;
  batch.longest_document = longest(tokens.document_offset);

  host_.resize(3 * n);
  const std::span<int32_t> order(host_.data(), n);
  std::iota(order.begin(), order.end(), 0);
  // Stable: rows with equal tokens stay in ascending order.
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return tokens.token[static_cast<size_t>(a)] < tokens.token[static_cast<size_t>(b)];
  });
  int32_t *target_row = host_.data() + n, *target = target_row + n;
  for (size_t i = 0; i < n; ++i) {
    if (tokens.target[i] < 0) continue;
    target_row[batch.target_count] = static_cast<int32_t>(i);
    target[batch.target_count++] = tokens.target[i];
    if (tokens.sequence_set.empty()) continue;
    const int64_t set = tokens.sequence_set[i / static_cast<size_t>(sequence_length_)];
    if (batch.set_targets.empty() || batch.set_targets.back().set != set)
      batch.set_targets.push_back({set, batch.target_count - 1, 0});
    batch.set_targets.back().end = batch.target_count;
  }
  copy_bytes(stream, batch.token.data, tokens.token.data(), 4 * rows);
  copy_bytes(stream, batch.position.data, tokens.position.data(), 4 * rows);
  copy_bytes(stream, batch.document_offset.data, tokens.document_offset.data(),
             4 * (batch.document_count + 1));
  copy_bytes(stream, batch.token_order.data, order.data(), 4 * rows);
  copy_bytes(stream, batch.target_row.data, target_row, 4 * batch.target_count);
  copy_bytes(stream, batch.target.data, target, 4 * batch.target_count);
  return batch;
}

}  // namespace ripstop
