// Which examples share a sequence, and in which order an epoch visits them: a pure function of the lengths.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// Inputs of a plan besides the lengths.
struct PackPlanOptions {
  int64_t sequence_length = 0;
  uint64_t shuffle_seed = 0;
  int64_t epoch = 0;
  bool pack = true;     ///< false: every example (or piece) gets a sequence of its own
  bool shuffle = true;  ///< false: in the order of the data set, whatever the seed and the epoch
};

/// Rows [first_row, first_row + rows) of an example. A row is a token whose successor is predicted: an
/// example of n tokens has n - 1 rows.
struct PackItem {
  int64_t example = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

/// The sequences of one epoch. Every row of every example lies in exactly one sequence. An example longer
/// than sequence_length is split into consecutive pieces of that length; the last piece is shorter.
///
/// Items are visited in the order of a permutation keyed by (seed, epoch). Each item goes into the fullest
/// open sequence that has room. If none has room, a new sequence is opened; if kOpenSequences are open
/// already, the fullest of them is closed first. At the end the sequences are permuted, because the badly
/// filled ones would otherwise all come last.
/// Source: bounded-space best fit, Csirik and Johnson, Algorithmica 31 (2001).
class PackPlan {
 public:
  /// Part of plan hashes. A change of the algorithm must change it.
  static constexpr int64_t kVersion = 1;
  static constexpr int64_t kOpenSequences = 256;

  /// `rows[i]` >= 1 rows of example i. Time n log kOpenSequences; keeps about 24 bytes an example.
  PackPlan(std::span<const int64_t> rows, const PackPlanOptions& options);

  int64_t epoch() const { return epoch_; }
  int64_t sequences() const { return static_cast<int64_t>(sequence_begin_.size()) - 1; }
  int64_t items() const { return static_cast<int64_t>(order_.size()); }
  /// The items of a sequence, in their order; rows sum to at most sequence_length.
  std::vector<PackItem> sequence(int64_t number) const;
  /// 32 hex digits: equal hashes mean equal plans.
  std::string hash() const;

 private:
  PackItem item(int64_t number) const;
  void number_items();
  void fill(const std::vector<int64_t>& visits);
  void shuffle_sequences(uint64_t key);

  std::span<const int64_t> rows_;
  int64_t sequence_length_ = 0;
  int64_t epoch_ = 0;
  std::vector<int64_t> first_item_;      // of each example; empty if every example is one item
  std::vector<int64_t> order_;           // item numbers, sequence after sequence
  std::vector<int64_t> sequence_begin_;  // [sequences + 1] places in order_
};

/// The numbers 0 .. count-1 in an order that depends on `key` alone (Fisher-Yates, numbers from SplitMix64).
std::vector<int64_t> keyed_permutation(int64_t count, uint64_t key);

}  // namespace ripstop
