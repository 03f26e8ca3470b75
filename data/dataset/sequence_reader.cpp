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
    : dataset_(dataset), sequence_length_(sequence_length), loss_on_(loss_on) {
  if (dataset.examples() == 0) {
    throw Error(ExitCode::kInputData, fmt::format("{}: has no examples", dataset.path().string()),
                "ripstop prepare shows how many each split gets, and how an empty one gets some");
  }
  const int64_t taken = examples > 0 ? std::min(examples, dataset.examples()) : dataset.examples();
  rows_.reserve(static_cast<size_t>(taken));
  for (int64_t i = 0; i < taken; ++i) {
    const int64_t begin = dataset.example_begin(i), end = dataset.example_end(i);
    const int64_t whole = end - begin - 1;
    rows_.push_back(cuts_documents() ? std::min(whole, sequence_length) : whole);
    if (cuts_documents() && whole > sequence_length) {
      ++(summary_fits(i) ? cut_documents_ : cut_summaries_);
    }
  }
}

bool SequenceReader::cuts_documents() const {
  return dataset_.header().kind == ExampleKind::kSummary;
}

/// Whether the summary stays whole if the whole document is cut away. The begin tokens always stay.
bool SequenceReader::summary_fits(int64_t example) const {
  const int64_t kept = dataset_.example_end(example) - dataset_.separator_begin(example);
  return dataset_.header().begin_tokens + kept - 1 <= sequence_length_;
}

int64_t SequenceReader::first_target(const PackItem& item) const {
  if (loss_on_ == LossOn::kAll) return 1;
  const int64_t begin = dataset_.example_begin(item.example), end = dataset_.example_end(item.example);
  const int64_t target = dataset_.target_begin(item.example);
  // In a later piece of running text, all tokens are targets.
  if (!cuts_documents()) return std::max<int64_t>(1, target - begin - item.first_row);
  const int64_t kept = item.rows + 1;
  if (kept == end - begin) return target - begin;
  // If only the document is cut, count from the end of the example.
  if (summary_fits(item.example)) return kept - (end - target);
  // If the summary is cut, the whole document is gone: the separator follows the begin tokens.
  return dataset_.header().begin_tokens + target - dataset_.separator_begin(item.example);
}

int64_t SequenceReader::target_count(const PackItem& item) const {
  return std::max<int64_t>(0, item.rows + 1 - first_target(item));
}

ItemTokens SequenceReader::read(const PackItem& item) const {
  ItemTokens tokens;
  tokens.first_target = first_target(item);
  const int64_t kept = item.rows + 1;
  tokens.token.resize(static_cast<size_t>(kept));
  const int64_t begin = dataset_.example_begin(item.example), end = dataset_.example_end(item.example);
  const int64_t separator = dataset_.separator_begin(item.example);
  if (!cuts_documents() || kept == end - begin) {
    tokens.document = cuts_documents() ? separator - begin : kept;
    dataset_.read_tokens(begin + item.first_row, begin + item.first_row + kept, tokens.token.data());
    return tokens;
  }
  const int64_t head = std::max(dataset_.header().begin_tokens, kept - (end - separator));
  tokens.document = head;
  dataset_.read_tokens(begin, begin + head, tokens.token.data());
  dataset_.read_tokens(separator, separator + kept - head, tokens.token.data() + head);
  return tokens;
}

void SequenceReader::append_sequence(const std::vector<PackItem>& items, PackedBatch& batch) const {
  int64_t used = 0;
  for (const PackItem& item : items) {
    const ItemTokens tokens = read(item);
    for (int64_t i = 0; i < item.rows; ++i) {
      const bool counts = i + 1 >= tokens.first_target;
      batch.token.push_back(tokens.token[static_cast<size_t>(i)]);
      batch.target.push_back(counts ? tokens.token[static_cast<size_t>(i) + 1] : -1);
      batch.position.push_back(static_cast<int32_t>(i));
      batch.target_count += counts;
    }
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

void SequenceReader::append_empty_sequence(PackedBatch& batch) const {
  append_padding(sequence_length_, batch);
}

}  // namespace ripstop
