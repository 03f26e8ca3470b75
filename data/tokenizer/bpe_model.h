#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ripstop {

/// The member `model` of a tokenizer.json; its type must be BPE.
struct BpeParts {
  std::vector<std::pair<std::string, int64_t>> vocabulary;  ///< pieces with their ids
  std::vector<std::pair<std::string, std::string>> merges;  ///< pairs of pieces, the best merge first
  std::string unk_token;
  bool has_unk = false, fuse_unk = false, byte_fallback = false, ignore_merges = false;
};

/// A token of a word, and the number of bytes of the word up to its end.
struct WordToken {
  int32_t id = 0;
  uint32_t end = 0;
};

/// Memory for one thread that encodes: the symbols of a word, and a cache of recent words.
class BpeScratch {
 public:
  BpeScratch() : slots_(kSlots) {}

 private:
  friend class BpeModel;
  struct Symbol {
    int32_t id = 0;
    uint32_t end = 0;
    int32_t before = 0, behind = 0;  // indices of neighbours; -1: no neighbour
  };
  static constexpr size_t kSlots = size_t{1} << 15, kSlotBytes = 28, kSlotTokens = 7;
  struct Slot {
    uint8_t bytes = 0, tokens = 0;
    std::array<char, kSlotBytes> word;
    std::array<uint8_t, kSlotTokens> ends;
    std::array<int32_t, kSlotTokens> ids;
  };
  std::vector<Slot> slots_;  // the cache, by hash of the word
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // rank of the merge << 32 | index of the left symbol; the smallest first
};

/// Byte-pair encoding of words, as in `tokenizers`. Several threads may encode at once, each with its own
/// scratch.
class BpeModel {
 public:
  /// Throws Error(kInputData) for an empty piece, equal pieces or ids, or a merge of or into no piece.
  explicit BpeModel(BpeParts parts);

  /// The highest id + 1.
  int64_t size() const { return std::ssize(pieces_); }
  /// The piece of an id below size(); empty if the id has no piece.
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  int64_t piece_count() const { return std::ssize(ids_); }
  /// The id of `piece`; -1 if the vocabulary lacks it.
  int32_t find(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? -1 : found->second;
  }
  /// Appends the tokens of `word`, which is valid UTF-8, to `tokens`. Takes O(n log n) time for n bytes.
  /// Throws Error(kInputData) if an unknown letter needs the unk token and the vocabulary lacks it.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<WordToken>& tokens) const;
  /// Everything that decides the ids, as one text.
  std::string identity() const;

 private:
  struct Merge {
    uint64_t pair = kFree;  // id of the left piece << 32 | id of the right piece
    uint32_t rank = 0;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t pair_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  void add_merges(const BpeParts& parts);
  void find_cuts(const BpeParts& parts);
  size_t slot_of(uint64_t pair) const;
  void push_merge(BpeScratch& scratch, int32_t left) const;
  void encode_part(std::string_view word, BpeScratch& scratch, std::vector<WordToken>& tokens) const;
  void begin_symbols(std::string_view word, BpeScratch& scratch) const;
  void merge_symbols(BpeScratch& scratch) const;

  std::vector<std::string> pieces_;  // texts of the pieces, by id
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<int32_t> short_letters_;  // ids of letters of one and two bytes by code point; -1: no piece
  std::array<int32_t, 256> bytes_;      // ids of <0x00> to <0xFF>; -1: no piece
  std::vector<Merge> merges_;           // a hash table with open addressing; the size is a power of two
  std::vector<int32_t> merged_;         // ids of the merged pieces, by rank
  int32_t unk_ = -1;
  bool has_unk_ = false, fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  bool can_cut_ = false;                 // words can be encoded in parts that begin with U+2581
  std::bitset<256> before_inner_space_;  // bytes right before a U+2581 inside a merged piece
  std::string unk_token_;
};

}  // namespace ripstop
