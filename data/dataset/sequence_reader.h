// SequenceReader: from the items of a sequence to its rows.
#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset/loss_on.h"
#include "data/dataset/pack_plan.h"
#include "data/dataset/packed_batch.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// The tokens of an item, one more than its rows: token[i + 1] is the target of row i.
struct ItemTokens {
  std::vector<int32_t> token;  ///< [rows + 1]
  int64_t first_target = 0;    ///< index in `token` of the first one whose prediction counts
  int64_t document = 0;        ///< tokens in front of the separator; all of a piece of running text
};

/// The documents of a batch, padding included.
struct DocumentSizes {
  int64_t count = 0;
  int64_t longest = 0;  ///< rows
  friend auto operator<=>(const DocumentSizes&, const DocumentSizes&) = default;
};

/// Cuts the examples of a data set to the sequence length, reads their tokens and appends them to batches.
///
/// If an example with a summary is longer than sequence_length, the tail of its document is cut, never its
/// separator or summary. If BOS, separator and summary alone are longer, the end of the summary is cut, too.
/// Running text is not cut: the PackPlan turns it into pieces.
///
/// Const members may be called from any thread. `dataset` must outlive the reader.
class SequenceReader {
 public:
  /// Takes the first `examples` of the data set, 0: all. Reads no token. Throws Error(kInputData) for a data
  /// set without examples.
  SequenceReader(const TokenDataset& dataset, int64_t sequence_length, LossOn loss_on, int64_t examples = 0);

  /// [examples] rows of each example after cutting: the lengths that a PackPlan is made of.
  std::span<const int64_t> rows() const { return rows_; }
  /// Examples that lose tokens of their document, and none of their summary.
  int64_t cut_documents() const { return cut_documents_; }
  /// Examples whose summary is cut, because it does not fit even without the document.
  int64_t cut_summaries() const { return cut_summaries_; }

  /// Rows of `item` whose prediction counts. Reads no token.
  int64_t target_count(const PackItem& item) const;

  /// The documents of the sequence that append_sequence makes of `items`; of an empty sequence without any.
  /// Reads no token.
  DocumentSizes document_sizes(std::span<const PackItem> items) const;

  /// Reads the tokens of `item`: of the example if it fits, else those that are left of it, or the piece of
  /// running text. Throws what TokenDataset::read_tokens throws.
  ItemTokens read(const PackItem& item) const;

  /// Appends one sequence to `batch`: each item as a document, then padding. Reads the tokens from the file.
  /// Throws what TokenDataset::read_tokens throws.
  void append_sequence(const std::vector<PackItem>& items, PackedBatch& batch) const;
  /// Appends a sequence without a token of the data set.
  void append_empty_sequence(PackedBatch& batch) const;

 private:
  bool cuts_documents() const;
  int64_t first_target(const PackItem& item) const;

  const TokenDataset& dataset_;
  int64_t sequence_length_;
  LossOn loss_on_;
  std::vector<int64_t> rows_;
  int64_t cut_documents_ = 0, cut_summaries_ = 0;
};

}  // namespace ripstop
