// A set of 64-bit hashes in little memory.
#pragma once
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace ripstop {

/// Remembers hashes in about 9 bytes each. Open addressing, at most 15/16 full, in 256 parts that grow one at
/// a time, so that growing needs no second copy of all.
class HashSet {
 public:
  /// False where `hash` was there before.
  bool insert(uint64_t hash) {
    if (hash == 0) hash = 1;  // 0 marks a free place
    Part& part = parts_[hash >> 56];
    if (16 * (part.count + 1) > 15 * part.slots.size()) grow(part);
    const bool is_new = place(part.slots, hash);
    part.count += is_new;
    return is_new;
  }

 private:
  struct Part {
    std::vector<uint64_t> slots;
    size_t count = 0;
  };
  static bool place(std::vector<uint64_t>& slots, uint64_t hash) {
    for (size_t at = ((hash & 0xffffffffu) * slots.size()) >> 32;; at = at + 1 == slots.size() ? 0 : at + 1) {
      if (slots[at] == hash) return false;
      if (slots[at] == 0) {
        slots[at] = hash;
        return true;
      }
    }
  }
  static void grow(Part& part) {
    std::vector<uint64_t> bigger(part.slots.size() + part.slots.size() / 16 + 64);
    for (const uint64_t hash : part.slots) {
      if (hash != 0) place(bigger, hash);
    }
    part.slots = std::move(bigger);
  }
  std::array<Part, 256> parts_;
};

}  // namespace ripstop
