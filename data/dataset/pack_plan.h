// PackPlan: decides which examples share a sequence, and the order of the sequences in an epoch. A pure
// function of the lengths and a key.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// The inputs of a plan besides the lengths of the examples.
struct PackPlanOptions {
  int64_t sequence_length = 0;
  uint64_t shuffle_seed = 0;
  int64_t epoch = 0;
  bool pack = true;     ///< false: every item gets a sequence of its own
  bool shuffle = true;  ///< false: in the order of the data set, whatever the seed and the epoch
};

/// Rows [first_row, first_row + rows) of an example: the whole example, or a piece of it. A row is a token
/// whose successor is predicted: an example of n tokens has n - 1 rows.
struct PackItem {
  int64_t example = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

/// The sequences of one epoch. Every row of every example lies in exactly one sequence. An example longer
/// than sequence_length is split into consecutive pieces of that length; the last piece may be shorter.
///
/// The plan places the items in the order of a permutation keyed by (seed, epoch). Each item goes into the
/// fullest open sequence that has room for the item. If no sequence has room, the plan opens a new one; if
/// kOpenSequences are open already, it first closes the fullest. At the end the plan permutes the sequences,
/// because otherwise badly filled sequences would all come last. Source: bounded-space best fit, Csirik and
/// Johnson, Algorithmica 31 (2001).
class PackPlan {
 public:
  /// Version of the algorithm, a part of hash(). Increase it whenever the algorithm changes.
  static constexpr int64_t kVersion = 1;
  /// The most sequences that are open at a time.
  static constexpr int64_t kOpenSequences = 256;

  /// `rows[i]` >= 1 is the number of rows of example i; `rows` must outlive the plan. Takes O(n log
  /// kOpenSequences) time for n examples, and about 24 bytes an example.
  PackPlan(std::span<const int64_t> rows, const PackPlanOptions& options);

  int64_t epoch() const { return epoch_; }
  int64_t sequences() const { return static_cast<int64_t>(sequence_begin_.size()) - 1; }
  int64_t items() const { return static_cast<int64_t>(order_.size()); }
  /// The items of sequence `number`, in order. They have at most sequence_length rows together.
  std::vector<PackItem> sequence(int64_t number) const;
  /// The hash of the plan, 32 hex digits. Plans with equal hashes are equal.
  std::string hash() const;

 private:
  PackItem item(int64_t number) const;
  void number_items();
  void fill(const std::vector<int64_t>& visits);
  void shuffle_sequences(uint64_t key);

  std::span<const int64_t> rows_;
  int64_t sequence_length_ = 0;
  int64_t epoch_ = 0;
  std::vector<int64_t>
      first_item_;              // number of the first item of each example; empty if each example is one item
  std::vector<int64_t> order_;  // item numbers, sequence after sequence
  std::vector<int64_t> sequence_begin_;  // [sequences + 1] indices in order_
};

/// A permutation of 0 .. count - 1 that depends on `key` alone (Fisher-Yates with SplitMix64).
std::vector<int64_t> keyed_permutation(int64_t count, uint64_t key);

}  // namespace ripstop
