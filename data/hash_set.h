// A set of 64-bit hashes in little memory.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace ripstop {

/// Remembers hashes; open addressing, at most 3/4 full: 11 to 22 bytes each, for a moment 32 while it grows.
class HashSet {
 public:
  /// False where `hash` was there before.
  bool insert(uint64_t hash) {
    if (hash == 0) hash = 1;  // 0 marks a free place
    if (4 * (count_ + 1) > 3 * slots_.size()) grow();
    if (!place(slots_, hash)) return false;
    ++count_;
    return true;
  }

 private:
  static bool place(std::vector<uint64_t>& slots, uint64_t hash) {
    const size_t mask = slots.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      if (slots[at] == hash) return false;
      if (slots[at] == 0) {
        slots[at] = hash;
        return true;
      }
    }
  }
  void grow() {
    std::vector<uint64_t> bigger(slots_.empty() ? 1024 : slots_.size() * 2);
    for (const uint64_t hash : slots_) {
      if (hash != 0) place(bigger, hash);
    }
    slots_ = std::move(bigger);
  }
  std::vector<uint64_t> slots_;
  size_t count_ = 0;
};

}  // namespace ripstop
