#include "data/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "data/files/hash.h"
#include "data/text/utf8.h"
#include "model/core/error.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

std::string shown(std::string_view piece) {
  return in_one_line(begin_of(piece, 100));
}

}  // namespace

BpeModel::BpeModel(BpeParts parts)
    : has_unk_(parts.has_unk),
      fuse_unk_(parts.fuse_unk),
      byte_fallback_(parts.byte_fallback),
      ignore_merges_(parts.ignore_merges),
      unk_token_(parts.unk_token) {
  int64_t size = 0;
  for (const auto& [piece, id] : parts.vocabulary) size = std::max(size, id + 1);
  pieces_.resize(static_cast<size_t>(size));
  ids_.reserve(parts.vocabulary.size());
  for (auto& [piece, id] : parts.vocabulary) {
    if (piece.empty()) fail(ExitCode::kInputData, "the vocabulary has an empty piece, id {}", id);
    std::string& place = pieces_[static_cast<size_t>(id)];
    if (!place.empty())
      fail(ExitCode::kInputData, "the pieces '{}' and '{}' have the same id {}", shown(place), shown(piece),
           id);
    place = std::move(piece);
    if (!ids_.emplace(place, static_cast<int32_t>(id)).second)
      fail(ExitCode::kInputData, "the piece '{}' has two ids", shown(place));
  }
  unk_ = find(unk_token_);
  short_letters_.assign(0x800, -1);
  for (const auto& [piece, id] : ids_)
    if (piece.size() <= 2 && sequence_bytes(piece) == piece.size()) short_letters_[code_point(piece)] = id;
  for (size_t byte = 0; byte < bytes_.size(); ++byte) bytes_[byte] = find(fmt::format("<0x{:02X}>", byte));
  add_merges(parts);
  find_cuts(parts);
}

void BpeModel::add_merges(const BpeParts& parts) {
  merges_.resize(std::bit_ceil(2 * parts.merges.size() + 2));
  merged_.reserve(parts.merges.size());
  const auto known = [&](const std::string& piece) {
    const int32_t id = find(piece);
    if (id < 0)
      fail(ExitCode::kInputData, "merge {} needs the piece '{}', which the vocabulary does not have",
           merged_.size(), shown(piece));
    return id;
  };
  for (const auto& [left, right] : parts.merges) {
    const uint64_t pair = pair_of(known(left), known(right));
    const int32_t merged = known(left + right);
    // If a merge is listed twice, its last rank counts.
    merges_[slot_of(pair)] = {pair, static_cast<uint32_t>(merged_.size())};
    merged_.push_back(merged);
  }
}

/// Finds the places where a word can be cut without changing its ids: before a U+2581, unless the byte before
/// it also precedes a U+2581 inside a merged piece. No merge crosses a cut or depends on the other side.
/// Words stay whole with ignore_merges, without a piece U+2581, if a merge uses unk or a byte piece (text and
/// spelling differ), or if unknown letters are dropped, because their neighbours then merge.
void BpeModel::find_cuts(const BpeParts& parts) {
  const bool keeps_letters = unk_ >= 0 || (byte_fallback_ && std::ranges::find(bytes_, -1) == bytes_.end());
  can_cut_ = !ignore_merges_ && keeps_letters && find(kSpacePiece) >= 0;
  for (const auto& [left, right] : parts.merges) {
    for (const std::string* part : {&left, &right}) {
      const int32_t id = find(*part);
      if (id == unk_ || (byte_fallback_ && std::ranges::find(bytes_, id) != bytes_.end())) can_cut_ = false;
    }
    const std::string piece = left + right;
    for (size_t at = piece.find(kSpacePiece, 1); at != std::string::npos;
         at = piece.find(kSpacePiece, at + 1))
      before_inner_space_.set(static_cast<unsigned char>(piece[at - 1]));
  }
}

/// The slot of `pair`, or the free slot where it belongs.
size_t BpeModel::slot_of(uint64_t pair) const {
  const size_t mask = merges_.size() - 1;
  // The golden ratio in 64 bits spreads neighbouring ids (Knuth, The Art of Computer Programming, 6.4).
  size_t at = (pair ^ pair >> 29) * 0x9e3779b97f4a7c15u >> 20 & mask;
  while (merges_[at].pair != pair && merges_[at].pair != kFree) at = (at + 1) & mask;
  return at;
}

void BpeModel::encode(std::string_view word, BpeScratch& scratch, std::vector<WordToken>& tokens) const {
  size_t begin = 0;
  const auto take = [&](size_t end) {
    const size_t first = tokens.size();
    encode_part(word.substr(begin, end - begin), scratch, tokens);
    for (size_t i = first; i < tokens.size(); ++i) tokens[i].end += static_cast<uint32_t>(begin);
    begin = end;
  };
  if (can_cut_)
    for (size_t at = word.find(kSpacePiece, 1); at != std::string_view::npos;
         at = word.find(kSpacePiece, at + 1))
      if (!before_inner_space_.test(static_cast<unsigned char>(word[at - 1]))) take(at);
  if (begin < word.size()) take(word.size());
}

void BpeModel::encode_part(std::string_view word, BpeScratch& scratch, std::vector<WordToken>& tokens) const {
  if (ignore_merges_)
    if (const int32_t id = find(word); id >= 0) {
      tokens.push_back({id, static_cast<uint32_t>(word.size())});
      return;
    }
  const bool kept = word.size() <= BpeScratch::kSlotBytes;
  BpeScratch::Slot* const slot = kept ? &scratch.slots_[hash64(word) % BpeScratch::kSlots] : nullptr;
  if (kept && slot->bytes == word.size() && std::memcmp(slot->word.data(), word.data(), word.size()) == 0) {
    for (size_t i = 0; i < slot->tokens; ++i) tokens.push_back({slot->ids[i], slot->ends[i]});
    return;
  }
  const size_t first = tokens.size();
  begin_symbols(word, scratch);
  merge_symbols(scratch);
  uint32_t end = 0;
  for (const BpeScratch::Symbol& symbol : scratch.symbols_)
    if (symbol.id >= 0) tokens.push_back({symbol.id, end = std::max(end, symbol.end)});
  const size_t count = tokens.size() - first;
  if (!kept || count > BpeScratch::kSlotTokens) return;
  slot->bytes = static_cast<uint8_t>(word.size());
  slot->tokens = static_cast<uint8_t>(count);
  std::memcpy(slot->word.data(), word.data(), word.size());
  for (size_t i = 0; i < count; ++i) {
    slot->ids[i] = tokens[first + i].id;
    slot->ends[i] = static_cast<uint8_t>(tokens[first + i].end);
  }
}

/// Makes one symbol of each letter that is a piece. Other letters become their bytes, unk, or nothing.
void BpeModel::begin_symbols(std::string_view word, BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols_;
  symbols.clear();
  const auto add = [&](int32_t id, size_t end) {
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, static_cast<uint32_t>(end), index - 1, index + 1});
  };
  // An unk token is held back, as in `tokenizers`: byte pieces of the letters behind it come first.
  size_t unk_end = 0;
  for (size_t at = 0, end = 0; at < word.size(); at = end) {
    end = at + sequence_bytes(word.substr(at, 4));
    const std::string_view letter = word.substr(at, end - at);
    const int32_t id = letter.size() <= 2 ? short_letters_[code_point(letter)] : find(letter);
    const bool as_bytes = id < 0 && byte_fallback_ &&
                          std::ranges::all_of(letter, [&](unsigned char b) { return bytes_[b] >= 0; });
    if (as_bytes) {
      for (const unsigned char byte : letter) add(bytes_[byte], end);
    } else if (id >= 0 || has_unk_) {
      if (id < 0 && unk_ < 0)
        fail(ExitCode::kInputData, "a letter is no piece, and nor is the unk token '{}'", shown(unk_token_));
      if (unk_end > 0 && (id >= 0 || !fuse_unk_)) {
        add(unk_, unk_end);
        unk_end = 0;
      }
      if (id >= 0)
        add(id, end);
      else
        unk_end = end;
    }
  }
  if (unk_end > 0) add(unk_, unk_end);
  if (!symbols.empty()) symbols.back().behind = -1;
}

/// Pushes the merge of symbol `left` and its right neighbour on the heap, if the model has that merge.
void BpeModel::push_merge(BpeScratch& scratch, int32_t left) const {
  if (left < 0) return;
  const BpeScratch::Symbol& symbol = scratch.symbols_[static_cast<size_t>(left)];
  if (symbol.behind < 0) return;
  const uint64_t pair = pair_of(symbol.id, scratch.symbols_[static_cast<size_t>(symbol.behind)].id);
  const Merge& merge = merges_[slot_of(pair)];
  if (merge.pair != pair) return;
  scratch.heap_.push_back(uint64_t{merge.rank} << 32 | static_cast<uint32_t>(left));
  std::ranges::push_heap(scratch.heap_, std::greater<>());
}

/// Applies the best merge, the leftmost of equal ones, until no merge is left. A symbol that was merged into
/// its left neighbour has the id -1.
void BpeModel::merge_symbols(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols_;
  std::vector<uint64_t>& heap = scratch.heap_;
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) push_merge(scratch, static_cast<int32_t>(i));
  while (!heap.empty()) {
    const auto left = static_cast<int32_t>(heap.front() & 0xffffffffu);
    const int32_t merged = merged_[heap.front() >> 32];
    std::ranges::pop_heap(heap, std::greater<>());
    heap.pop_back();
    BpeScratch::Symbol& symbol = symbols[static_cast<size_t>(left)];
    if (symbol.id < 0 || symbol.behind < 0) continue;
    BpeScratch::Symbol& next = symbols[static_cast<size_t>(symbol.behind)];
    // The neighbours may have changed since the merge was put on the heap.
    const uint64_t pair = pair_of(symbol.id, next.id);
    const Merge& merge = merges_[slot_of(pair)];
    if (merge.pair != pair || merged_[merge.rank] != merged) continue;
    symbol.id = merged;
    symbol.end = next.end;
    symbol.behind = next.behind;
    next.id = -1;
    if (symbol.behind >= 0) symbols[static_cast<size_t>(symbol.behind)].before = left;
    push_merge(scratch, symbol.before);
    push_merge(scratch, left);
  }
}

std::string BpeModel::identity() const {
  std::string text = fmt::format("bpe {} {} {} {} {}:{}\n", has_unk_, fuse_unk_, byte_fallback_,
                                 ignore_merges_, unk_token_.size(), unk_token_);
  for (const std::string& piece : pieces_) text += fmt::format("{}:{}\n", piece.size(), piece);
  std::vector<Merge> ranked;
  for (const Merge& merge : merges_)
    if (merge.pair != kFree) ranked.push_back(merge);
  std::ranges::sort(ranked, {}, &Merge::rank);
  for (const Merge& merge : ranked) text += fmt::format("{:x}\n", merge.pair);
  return text;
}

}  // namespace ripstop
