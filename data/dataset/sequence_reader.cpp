#include "data/dataset/sequence_reader.h"

#include <algorithm>

#include "model/core/error.h"
#include "model/core/rounding.h"

namespace ripstop {
namespace {

/// Maximum rows of a padding document: attention costs grow with the square of a document's length.
constexpr int64_t kPaddingDocumentRows = 32;

void append_padding(int64_t count, PackedBatch& batch) {
  while (count > 0) {
    const int64_t length = std::min(count, kPaddingDocumentRows);
    for (int64_t i = 0; i < length; ++i) {
      batch.token.push_back(0);
      batch.target.push_back(-1);
      batch.position.push_back(static_cast<int32_t>(i));
    }
    batch.document_offset.push_back(static_cast<int32_t>(batch.token.size()));
    count -= length;
  }
}

}  // namespace

SequenceReader::SequenceReader(const TokenDataset& dataset, int64_t sequence_length, LossOn loss_on,
                               int64_t examples)
    : dataset_(dataset),
      sequence_length_(sequence_length),
      loss_on_(resolve_loss_on(dataset.header(), loss_on, dataset.path().string())) {
  if (dataset.examples() == 0) {
    throw Error(ExitCode::kInputData, fmt::format("{}: has no examples", dataset.path().string()),
                "ripstop prepare shows how many each split gets, and how an empty one gets some");
  }
  const int64_t taken = examples > 0 ? std::min(examples, dataset.examples()) : dataset.examples();
  rows_.reserve(static_cast<size_t>(taken));
  for (int64_t i = 0; i < taken; ++i) add_example(i);
}

void SequenceReader::add_example(int64_t example) {
  const KeptTokens kept = keep_tokens(dataset_, example, sequence_length_ + 1, loss_on_);
  rows_.push_back(kept.count() - 1);
  const std::vector<TokenRange> targets = kept_targets(dataset_, example, kept, loss_on_);
  without_targets_ += targets.empty();
  for (const TokenRange& each : targets) targets_ += each.size();
  if (dataset_.header().kind == ExampleKind::kConversation)
    for (const CutPlace& cut : cut_places(dataset_, example, kept)) cut_turns_ += cut.turns;
  cut_documents_ += kept.cut_text > 0 && kept.cut_summary == 0;
  cut_summaries_ += kept.cut_summary > 0;
}

KeptTokens SequenceReader::kept(const PackItem& item) const {
  if (dataset_.header().kind != ExampleKind::kText)
    return keep_tokens(dataset_, item.example, sequence_length_ + 1, loss_on_);
  return {{TokenRange{item.first_row, item.first_row + item.rows + 1}}};
}

int64_t SequenceReader::target_count(const PackItem& item) const {
  int64_t count = 0;
  for (const TokenRange& targets : kept_targets(dataset_, item.example, kept(item), loss_on_))
    count += targets.size();
  return count;
}

ItemTokens SequenceReader::read(const PackItem& item) const {
  const KeptTokens parts = kept(item);
  RIPSTOP_CHECK(parts.count() == item.rows + 1, "{} tokens for {} rows", parts.count(), item.rows);
  return {read_kept(dataset_, item.example, parts), kept_targets(dataset_, item.example, parts, loss_on_)};
}

void SequenceReader::append_sequence(const std::vector<PackItem>& items, PackedBatch& batch) const {
  int64_t used = 0;
  for (const PackItem& item : items) {
    const ItemTokens tokens = read(item);
    const auto rows = static_cast<size_t>(item.rows), first = batch.target.size();
    batch.token.insert(batch.token.end(), tokens.token.begin(), tokens.token.end() - 1);
    batch.target.resize(first + rows, -1);
    for (const TokenRange& targets : tokens.targets) {
      for (auto i = static_cast<size_t>(targets.begin); i < static_cast<size_t>(targets.end); ++i)
        batch.target[first + i - 1] = tokens.token[i];
      batch.target_count += targets.size();
    }
    for (size_t i = 0; i < rows; ++i) batch.position.push_back(static_cast<int32_t>(i));
    batch.document_offset.push_back(static_cast<int32_t>(batch.token.size()));
    used += item.rows;
  }
  append_padding(sequence_length_ - used, batch);
}

DocumentSizes SequenceReader::document_sizes(std::span<const PackItem> items) const {
  DocumentSizes sizes;
  int64_t left = sequence_length_;
  for (const PackItem& item : items) {
    ++sizes.count;
    sizes.longest = std::max(sizes.longest, item.rows);
    left -= item.rows;
  }
  sizes.count += divide_up(left, kPaddingDocumentRows);
  sizes.longest = std::max(sizes.longest, std::min(left, kPaddingDocumentRows));
  return sizes;
}

}  // namespace ripstop
