#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ripstop {

/// A set of many 64-bit hashes. With 8 million, it took 9.7 bytes a hash, and std::unordered_set<uint64_t> 44
/// (glibc, peak resident memory).
///
/// Open addressing with linear probing. The highest byte of a hash chooses one of 256 parts, at most 15/16
/// full. Growing copies only one part.
class HashSet {
 public:
  /// Returns false if the set already contains `hash`.
  bool insert(uint64_t hash) {
    if (hash == 0) hash = 1;  // 0 marks a free slot, so 0 counts as 1
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
    // The low 32 bits choose the slot, by a multiplication, which is faster than a division.
    for (size_t at = ((hash & 0xffffffffu) * slots.size()) >> 32;; at = at + 1 == slots.size() ? 0 : at + 1) {
      if (slots[at] == hash) return false;
      if (slots[at] == 0) {
        slots[at] = hash;
        return true;
      }
    }
  }
  static void grow(Part& part) {
    // Grow by little: memory matters more than time.
    std::vector<uint64_t> bigger(part.slots.size() + part.slots.size() / 16 + 64);
    for (const uint64_t hash : part.slots) {
      if (hash != 0) place(bigger, hash);
    }
    part.slots = std::move(bigger);
  }
  std::array<Part, 256> parts_;
};

}  // namespace ripstop
