// HashSet: a set of 64-bit hashes that needs little memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ripstop {

/// Set of hashes that takes about 10 bytes a hash, so that prepare stays below its limit of 32 bytes an
/// example. With 8 million hashes std::unordered_set<uint64_t> took 44 bytes a hash, this set 9.7 (glibc,
/// peak resident memory).
///
/// Open addressing with linear probing. The highest byte of a hash chooses one of 256 parts. Each part grows
/// on its own, so that growing copies only one part. A part is at most 15/16 full.
class HashSet {
 public:
  /// Adds `hash`. Returns false if the set already contains it.
  bool insert(uint64_t hash) {
    if (hash == 0) hash = 1;  // 0 marks a free slot, so 0 and 1 count as the same hash
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
    // The low 32 bits of the hash choose the slot. Multiplication maps them to any number of slots without a
    // division.
    for (size_t at = ((hash & 0xffffffffu) * slots.size()) >> 32;; at = at + 1 == slots.size() ? 0 : at + 1) {
      if (slots[at] == hash) return false;
      if (slots[at] == 0) {
        slots[at] = hash;
        return true;
      }
    }
  }
  static void grow(Part& part) {
    // Grow by only 1/16: memory matters more than time.
    std::vector<uint64_t> bigger(part.slots.size() + part.slots.size() / 16 + 64);
    for (const uint64_t hash : part.slots) {
      if (hash != 0) place(bigger, hash);
    }
    part.slots = std::move(bigger);
  }
  std::array<Part, 256> parts_;
};

}  // namespace ripstop
