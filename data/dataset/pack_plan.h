#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ripstop {

struct PackPlanOptions {
  int64_t sequence_length = 0;
  uint64_t shuffle_seed = 0;
  int64_t epoch = 0;
  bool pack = true;     ///< false: every item gets a sequence of its own
  bool shuffle = true;  ///< false: packs in the order of the data set
  /// Maximum number of sequences open for later items. With 1, a sequence holds only consecutive items.
  int64_t open_sequences = 256;
};

/// Rows [first_row, first_row + rows) of an example. A row is a token whose successor is predicted: an
/// example of n tokens has n - 1 rows.
struct PackItem {
  int64_t example = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

/// The sequences of one epoch. The lengths of the examples and the options alone decide them. Every row lies
/// in exactly one sequence. An example longer than sequence_length is split into pieces of that length; the
/// last piece may be shorter.
///
/// The plan places the items in the order of a permutation keyed by (seed, epoch); without `shuffle`, in the
/// order of the data set. Each item goes into the fullest open sequence that has room for it. If none has
/// room, the plan opens a new sequence; if `open_sequences` are open already, it first closes the fullest.
/// With `shuffle` the plan then permutes the sequences, because best fit puts the emptiest ones last.
/// Source: bounded-space best fit, Csirik and Johnson, Algorithmica 31 (2001).
class PackPlan {
 public:
  /// Version of the algorithm, a part of hash(). Increase it whenever the algorithm changes.
  static constexpr int64_t kVersion = 1;

  /// `rows[i]` >= 1: rows of example i; must outlive the plan. Takes O(n log n) time for n items, and
  /// keeps up to 24 bytes an item.
  PackPlan(std::span<const int64_t> rows, const PackPlanOptions& options);

  int64_t epoch() const { return epoch_; }
  int64_t sequences() const { return static_cast<int64_t>(sequence_begin_.size()) - 1; }
  int64_t items() const { return static_cast<int64_t>(order_.size()); }
  /// The items of a sequence in order; together at most sequence_length rows.
  std::vector<PackItem> sequence(int64_t number) const;
  /// 32 hex digits. Plans with equal hashes are equal.
  std::string hash() const;

 private:
  PackItem item(int64_t number) const;
  void number_items();
  void fill(const std::vector<int64_t>& visits, int64_t open_sequences);
  void shuffle_sequences(uint64_t key);

  std::span<const int64_t> rows_;
  int64_t sequence_length_ = 0;
  int64_t epoch_ = 0;
  std::vector<int64_t> first_item_;  // number of each example's first item; empty if each example is one item
  std::vector<int64_t> order_;       // item numbers, sequence after sequence
  std::vector<int64_t> sequence_begin_;  // [sequences + 1] indices in order_
};

/// The PackPlanOptions::shuffle_seed of data set number `set` of several; `seed` for the first.
uint64_t seed_of_set(uint64_t seed, size_t set);

/// The data set, by number, of each sequence of an epoch; set i has counts[i] sequences. In the order of a
/// permutation keyed by (seed, epoch); without `shuffle`, ascending.
std::vector<int32_t> mixed_sets(std::span<const int64_t> counts, uint64_t seed, int64_t epoch, bool shuffle);

/// Draws the data set of sequence `number`, in proportion to `chances`, by a random number keyed by (seed,
/// number). Each chance is at least 0; their sum is above 0 and below 2^62.
size_t draw_set(std::span<const int64_t> chances, uint64_t seed, int64_t number);

/// A permutation of 0 .. count - 1 that `key` alone decides (Fisher-Yates with SplitMix64).
std::vector<int64_t> keyed_permutation(int64_t count, uint64_t key);

}  // namespace ripstop
