#include "data/dataset/pack_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "data/files/hash.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// The output of SplitMix64 for the state `z`. Source: Steele, Lea and Flood, OOPSLA 2014.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

/// Maps the random number `random` to [0, bound), with a bias of at most bound / 2^64.
uint64_t below(uint64_t bound, uint64_t random) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{random} * bound) >> 64);
}

/// Purposes of random numbers. Numbers for different purposes are independent.
enum Purpose : uint64_t { kItems = 1, kSequences = 2, kMixedSets = 3, kDraw = 4, kSet = 5 };

/// A random number keyed by the arguments. `number`: an epoch; for kDraw, a sequence; for kSet, a data set.
uint64_t keyed_number(uint64_t seed, int64_t number, Purpose purpose) {
  return mix(mix(mix(seed + kGolden) + static_cast<uint64_t>(number) + kGolden) + purpose);
}

}  // namespace

std::vector<int64_t> keyed_permutation(int64_t count, uint64_t key) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  // std::shuffle differs between standard libraries, and a resumed run needs the same order.
  for (uint64_t i = static_cast<uint64_t>(count); i > 1; --i) {
    std::swap(order[i - 1], order[below(i, mix(key + i * kGolden))]);
  }
  return order;
}

uint64_t seed_of_set(uint64_t seed, size_t set) {
  return set == 0 ? seed : keyed_number(seed, static_cast<int64_t>(set), kSet);
}

std::vector<int32_t> mixed_sets(std::span<const int64_t> counts, uint64_t seed, int64_t epoch, bool shuffle) {
  std::vector<int32_t> ascending;
  for (size_t set = 0; set < counts.size(); ++set)
    ascending.insert(ascending.end(), static_cast<size_t>(counts[set]), static_cast<int32_t>(set));
  if (!shuffle) return ascending;
  std::vector<int32_t> mixed;
  mixed.reserve(ascending.size());
  for (const int64_t from : keyed_permutation(std::ssize(ascending), keyed_number(seed, epoch, kMixedSets)))
    mixed.push_back(ascending[static_cast<size_t>(from)]);
  return mixed;
}

size_t draw_set(std::span<const int64_t> chances, uint64_t seed, int64_t number) {
  const int64_t sum = std::reduce(chances.begin(), chances.end(), int64_t{0});
  auto left = static_cast<int64_t>(below(static_cast<uint64_t>(sum), keyed_number(seed, number, kDraw)));
  size_t set = 0;
  while (left >= chances[set]) left -= chances[set++];
  return set;
}

PackPlan::PackPlan(std::span<const int64_t> rows, const PackPlanOptions& options)
    : rows_(rows), sequence_length_(options.sequence_length), epoch_(options.epoch) {
  RIPSTOP_CHECK(sequence_length_ >= 1, "sequence_length is {}", sequence_length_);
  number_items();
  const int64_t count = first_item_.empty() ? static_cast<int64_t>(rows_.size()) : first_item_.back();
  std::vector<int64_t> visits;
  if (options.shuffle) {
    visits = keyed_permutation(count, keyed_number(options.shuffle_seed, epoch_, kItems));
  } else {
    visits.resize(static_cast<size_t>(count));
    std::iota(visits.begin(), visits.end(), int64_t{0});
  }
  if (options.pack) {
    fill(visits, options.open_sequences);
    if (options.shuffle) shuffle_sequences(keyed_number(options.shuffle_seed, epoch_, kSequences));
  } else {
    order_ = std::move(visits);
    sequence_begin_.resize(order_.size() + 1);
    std::iota(sequence_begin_.begin(), sequence_begin_.end(), int64_t{0});
  }
}

/// Leaves first_item_ empty if no example is longer than a sequence.
void PackPlan::number_items() {
  const bool whole =
      std::all_of(rows_.begin(), rows_.end(), [&](int64_t r) { return r <= sequence_length_; });
  if (whole) return;
  first_item_.reserve(rows_.size() + 1);
  first_item_.push_back(0);
  for (const int64_t r : rows_)
    first_item_.push_back(first_item_.back() + (r + sequence_length_ - 1) / sequence_length_);
}

PackItem PackPlan::item(int64_t number) const {
  if (first_item_.empty()) return {number, 0, rows_[static_cast<size_t>(number)]};
  const auto after = std::upper_bound(first_item_.begin(), first_item_.end(), number);
  const int64_t example = static_cast<int64_t>(after - first_item_.begin()) - 1;
  const int64_t first_row = (number - first_item_[static_cast<size_t>(example)]) * sequence_length_;
  return {example, first_row, std::min(sequence_length_, rows_[static_cast<size_t>(example)] - first_row)};
}

void PackPlan::fill(const std::vector<int64_t>& visits, int64_t open_sequences) {
  std::vector<int64_t> sequence_of(visits.size());
  std::set<std::pair<int64_t, int64_t>> open;  // (free rows, sequence), fullest sequence first
  int64_t sequences = 0;
  for (size_t i = 0; i < visits.size(); ++i) {
    const int64_t needed = item(visits[i]).rows;
    RIPSTOP_CHECK(needed >= 1, "item {} has {} rows", visits[i], needed);
    auto room = open.lower_bound({needed, -1});
    std::pair<int64_t, int64_t> entry;
    if (room == open.end()) {
      // Close the fullest open sequence, which wastes the fewest rows.
      if (static_cast<int64_t>(open.size()) == open_sequences) open.erase(open.begin());
      entry = {sequence_length_, sequences++};
    } else {
      entry = *room;
      open.erase(room);
    }
    sequence_of[i] = entry.second;
    entry.first -= needed;
    if (entry.first > 0) open.insert(entry);  // a full sequence stays closed
  }
  // Counting sort by sequence, which keeps the order inside a sequence.
  sequence_begin_.assign(static_cast<size_t>(sequences) + 1, 0);
  for (const int64_t sequence : sequence_of) ++sequence_begin_[static_cast<size_t>(sequence) + 1];
  std::partial_sum(sequence_begin_.begin(), sequence_begin_.end(), sequence_begin_.begin());
  std::vector<int64_t> next(sequence_begin_.begin(), sequence_begin_.end() - 1);
  order_.resize(visits.size());
  for (size_t i = 0; i < visits.size(); ++i) {
    order_[static_cast<size_t>(next[static_cast<size_t>(sequence_of[i])]++)] = visits[i];
  }
}

void PackPlan::shuffle_sequences(uint64_t key) {
  const std::vector<int64_t> from = keyed_permutation(sequences(), key);
  std::vector<int64_t> order, begin = {0};
  order.reserve(order_.size());
  begin.reserve(sequence_begin_.size());
  for (const int64_t sequence : from) {
    const auto p = static_cast<size_t>(sequence);
    order.insert(order.end(), order_.begin() + sequence_begin_[p], order_.begin() + sequence_begin_[p + 1]);
    begin.push_back(static_cast<int64_t>(order.size()));
  }
  order_ = std::move(order);
  sequence_begin_ = std::move(begin);
}

std::vector<PackItem> PackPlan::sequence(int64_t number) const {
  RIPSTOP_CHECK(number >= 0 && number < sequences(), "sequence {} of {}", number, sequences());
  const auto at = static_cast<size_t>(number);
  std::vector<PackItem> items;
  for (int64_t i = sequence_begin_[at]; i < sequence_begin_[at + 1]; ++i) {
    items.push_back(item(order_[static_cast<size_t>(i)]));
  }
  return items;
}

std::string PackPlan::hash() const {
  StreamHash hash;
  const int64_t head[] = {kVersion, sequence_length_, epoch_, static_cast<int64_t>(rows_.size()),
                          items(),  sequences()};
  hash.update(head, sizeof head);
  // Hash rows_, too, because examples with other numbers of rows may get the same order.
  hash.update(rows_.data(), static_cast<int64_t>(rows_.size_bytes()));
  hash.update(order_.data(), static_cast<int64_t>(order_.size() * sizeof(int64_t)));
  hash.update(sequence_begin_.data(), static_cast<int64_t>(sequence_begin_.size() * sizeof(int64_t)));
  return hash.hex();
}

}  // namespace ripstop
