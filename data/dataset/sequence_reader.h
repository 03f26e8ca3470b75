#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset/kept_tokens.h"
#include "data/dataset/loss_on.h"
#include "data/dataset/pack_plan.h"
#include "data/dataset/packed_batch.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// The tokens of a PackItem: row i has token[i] and predicts token[i + 1].
struct ItemTokens {
  std::vector<int32_t> token;       ///< [rows + 1]
  std::vector<TokenRange> targets;  ///< indices in `token` of the targets, ascending
};

/// Sizes of the documents of a sequence or batch. Padding is divided into documents, which count, too.
struct DocumentSizes {
  int64_t count = 0;
  int64_t longest = 0;  ///< rows of the longest document
  friend auto operator<=>(const DocumentSizes&, const DocumentSizes&) = default;
};

/// Cuts the examples of a data set to the sequence length and appends them to batches. keep_tokens() says
/// what stays. Running text is not cut: the PackPlan divides it.
///
/// Any thread may call const members. `dataset` must outlive the reader.
class SequenceReader {
 public:
  /// Uses the first `examples` examples; all if 0. Reads no token. Throws Error(kInputData) for a data set
  /// without examples, and the errors of resolve_loss_on().
  SequenceReader(const TokenDataset& dataset, int64_t sequence_length, LossOn loss_on, int64_t examples = 0);

  const TokenDataset& dataset() const { return dataset_; }
  /// [examples] rows of each example after cutting, the input of a PackPlan.
  std::span<const int64_t> rows() const { return rows_; }
  LossOn loss_on() const { return loss_on_; }
  /// Number of examples with KeptTokens::cut_text and without cut_summary.
  int64_t cut_documents() const { return cut_documents_; }
  /// Number of examples that lose tokens of the summary.
  int64_t cut_summaries() const { return cut_summaries_; }
  /// Number of turns that conversations lose.
  int64_t cut_turns() const { return cut_turns_; }
  /// Number of examples without a target.
  int64_t without_targets() const { return without_targets_; }
  /// Targets of all examples.
  int64_t targets() const { return targets_; }

  /// Rows of `item` that have a target. Reads no token.
  int64_t target_count(const PackItem& item) const;

  /// Sizes of the documents that append_sequence(items) appends. Reads no token.
  DocumentSizes document_sizes(std::span<const PackItem> items) const;

  /// The tokens that stay of the item's example; of running text, those of the item. Reads no token.
  KeptTokens kept(const PackItem& item) const;

  /// Reads the cut example, or the piece of running text. Throws the errors of TokenDataset::read_tokens.
  ItemTokens read(const PackItem& item) const;

  /// Appends a sequence: each item as a document, then padding. Throws the errors of read().
  void append_sequence(const std::vector<PackItem>& items, PackedBatch& batch) const;

 private:
  void add_example(int64_t example);

  const TokenDataset& dataset_;
  int64_t sequence_length_;
  LossOn loss_on_;
  std::vector<int64_t> rows_;
  int64_t cut_documents_ = 0, cut_summaries_ = 0, cut_turns_ = 0, without_targets_ = 0, targets_ = 0;
};

}  // namespace ripstop
