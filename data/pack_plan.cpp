#include "data/pack_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "data/hash.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// One number of the SplitMix64 sequence. Source: Steele, Lea and Flood, OOPSLA 2014.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

/// A number in [0, bound), equally likely but for a bias of bound / 2^64.
uint64_t below(uint64_t bound, uint64_t random) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{random} * bound) >> 64);
}

uint64_t epoch_key(uint64_t seed, int64_t epoch, uint64_t purpose) {
  return mix(mix(mix(seed + kGolden) + static_cast<uint64_t>(epoch) + kGolden) + purpose);
}

}  // namespace

std::vector<int64_t> keyed_permutation(int64_t count, uint64_t key) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (uint64_t i = static_cast<uint64_t>(count); i > 1; --i) {
    std::swap(order[i - 1], order[below(i, mix(key + i * kGolden))]);
  }
  return order;
}

PackPlan::PackPlan(std::span<const int64_t> rows, const PackPlanOptions& options)
    : rows_(rows), sequence_length_(options.sequence_length), epoch_(options.epoch) {
  RIPSTOP_CHECK(sequence_length_ >= 1, "sequence_length is {}", sequence_length_);
  number_items();
  const int64_t count = first_item_.empty() ? static_cast<int64_t>(rows_.size()) : first_item_.back();
  std::vector<int64_t> sequence;
  if (options.shuffle) {
    sequence = keyed_permutation(count, epoch_key(options.shuffle_seed, epoch_, 1));
  } else {
    sequence.resize(static_cast<size_t>(count));
    std::iota(sequence.begin(), sequence.end(), int64_t{0});
  }
  if (options.pack) {
    fill(sequence);
    if (options.shuffle) shuffle_packs(epoch_key(options.shuffle_seed, epoch_, 2));
  } else {
    order_ = std::move(sequence);
    pack_begin_.resize(order_.size() + 1);
    std::iota(pack_begin_.begin(), pack_begin_.end(), int64_t{0});
  }
}

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

void PackPlan::fill(const std::vector<int64_t>& sequence) {
  std::vector<int64_t> pack_of(sequence.size());
  std::set<std::pair<int64_t, int64_t>> open;  // (free rows, pack), the fullest first
  int64_t packs = 0;
  for (size_t i = 0; i < sequence.size(); ++i) {
    const int64_t needed = item(sequence[i]).rows;
    RIPSTOP_CHECK(needed >= 1, "item {} has {} rows", sequence[i], needed);
    auto room = open.lower_bound({needed, -1});
    std::pair<int64_t, int64_t> entry;
    if (room == open.end()) {
      if (static_cast<int64_t>(open.size()) == kOpenPacks) open.erase(open.begin());
      entry = {sequence_length_, packs++};
    } else {
      entry = *room;
      open.erase(room);
    }
    pack_of[i] = entry.second;
    entry.first -= needed;
    if (entry.first > 0) open.insert(entry);
  }
  // Counting sort by pack keeps the order inside a pack.
  pack_begin_.assign(static_cast<size_t>(packs) + 1, 0);
  for (const int64_t pack : pack_of) ++pack_begin_[static_cast<size_t>(pack) + 1];
  std::partial_sum(pack_begin_.begin(), pack_begin_.end(), pack_begin_.begin());
  std::vector<int64_t> next(pack_begin_.begin(), pack_begin_.end() - 1);
  order_.resize(sequence.size());
  for (size_t i = 0; i < sequence.size(); ++i) {
    order_[static_cast<size_t>(next[static_cast<size_t>(pack_of[i])]++)] = sequence[i];
  }
}

void PackPlan::shuffle_packs(uint64_t key) {
  const std::vector<int64_t> from = keyed_permutation(packs(), key);
  std::vector<int64_t> order, begin = {0};
  order.reserve(order_.size());
  begin.reserve(pack_begin_.size());
  for (const int64_t pack : from) {
    const auto p = static_cast<size_t>(pack);
    order.insert(order.end(), order_.begin() + pack_begin_[p], order_.begin() + pack_begin_[p + 1]);
    begin.push_back(static_cast<int64_t>(order.size()));
  }
  order_ = std::move(order);
  pack_begin_ = std::move(begin);
}

std::vector<PackItem> PackPlan::pack(int64_t pack) const {
  RIPSTOP_CHECK(pack >= 0 && pack < packs(), "pack {} of {}", pack, packs());
  std::vector<PackItem> items;
  for (int64_t i = pack_begin_[static_cast<size_t>(pack)]; i < pack_begin_[static_cast<size_t>(pack) + 1];
       ++i) {
    items.push_back(item(order_[static_cast<size_t>(i)]));
  }
  return items;
}

std::string PackPlan::hash() const {
  StreamHash hash;
  const int64_t head[] = {kVersion, sequence_length_, epoch_, static_cast<int64_t>(rows_.size()),
                          items(),  packs()};
  hash.update(head, sizeof head);
  hash.update(rows_.data(), static_cast<int64_t>(rows_.size_bytes()));
  hash.update(order_.data(), static_cast<int64_t>(order_.size() * sizeof(int64_t)));
  hash.update(pack_begin_.data(), static_cast<int64_t>(pack_begin_.size() * sizeof(int64_t)));
  return hash.hex();
}

}  // namespace ripstop
