// PackPlan: which examples share a sequence, and the order of an epoch: a pure function of the lengths and a
// key.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// The inputs of a plan besides the lengths.
struct PackPlanOptions {
  int64_t sequence_length = 0;
  uint64_t shuffle_seed = 0;
  int64_t epoch = 0;
  bool pack = true;     ///< false: every item gets a sequence of its own
  bool shuffle = true;  ///< false: in the order of the data set, whatever the seed and the epoch
};

/// Rows [first_row, first_row + rows) of an example: all of it, or a piece. A row is a token whose successor
/// is predicted: an example of n tokens has n - 1 rows.
struct PackItem {
  int64_t example = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

/// The sequences of one epoch. Every row of every example lies in exactly one sequence. An example longer
/// than sequence_length is split into consecutive pieces of that length; the last piece is shorter.
///
/// The plan takes the items in the order of a permutation keyed by (seed, epoch). Each item goes into the
/// fullest open sequence that has room. If none has room, the plan opens a new sequence; if kOpenSequences
/// are open, it closes the fullest of them first. At the end it permutes the sequences, because badly filled
/// ones would otherwise all come last. Source: bounded-space best fit, Csirik and Johnson, Algorithmica 31
/// (2001).
class PackPlan {
 public:
  /// A part of hash(). A change of the algorithm must change it.
  static constexpr int64_t kVersion = 1;
  static constexpr int64_t kOpenSequences = 256;

  /// `rows[i]` >= 1 is the number of rows of example i; `rows` must outlive the plan. Takes time O(n log
  /// kOpenSequences), and about 24 bytes an example.
  PackPlan(std::span<const int64_t> rows, const PackPlanOptions& options);

  int64_t epoch() const { return epoch_; }
  int64_t sequences() const { return static_cast<int64_t>(sequence_begin_.size()) - 1; }
  int64_t items() const { return static_cast<int64_t>(order_.size()); }
  /// The items of a sequence in order, with at most sequence_length rows together.
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
  std::vector<int64_t> first_item_;      // number of each example's first item; empty if each is one item
  std::vector<int64_t> order_;           // item numbers, sequence after sequence
  std::vector<int64_t> sequence_begin_;  // [sequences + 1] indices in order_
};

/// A permutation of 0 .. count - 1 that depends on `key` alone (Fisher-Yates with SplitMix64).
std::vector<int64_t> keyed_permutation(int64_t count, uint64_t key);

}  // namespace ripstop
