#include "data/tokenizer/text_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// Throws if steps have made a text many times longer: a tokenizer's file could ask for any length.
void check_growth(const TracedText& text, const TracedText& next) {
  constexpr size_t kMostTimes = 64, kFree = size_t{1} << 20;
  const size_t encoded = text.origins.empty() ? 0 : text.origins.back().end;
  if (next.bytes.size() > kMostTimes * encoded + kFree)
    fail(ExitCode::kInputData, "the tokenizer makes more than {} bytes of a text of {}",
         next.bytes.size() - 1, encoded);
}

/// For each piece of text, calls change(piece, next), which appends to `next` what the piece becomes. Drops
/// pieces that become empty.
template <class Change>
void rewrite(TracedText& text, TracedText& next, const Change& change) {
  next.clear();
  next.bytes.reserve(text.bytes.size());
  next.origins.reserve(text.bytes.size());
  for (const TextPiece& piece : text.pieces) {
    const size_t begin = next.bytes.size();
    if (piece.id >= 0)
      next.copy(text, piece.begin, piece.end);
    else
      change(piece, next);
    check_growth(text, next);
    if (next.bytes.size() > begin) next.pieces.push_back({begin, next.bytes.size(), piece.id});
  }
  std::swap(text, next);
}

/// Calls take(letter, begin, end) for the letters of a piece.
template <class Take>
void for_each_letter(const TracedText& text, const TextPiece& piece, const Take& take) {
  const std::string_view bytes(text.bytes);
  for (size_t at = piece.begin; at < piece.end;) {
    const size_t size = sequence_bytes(bytes.substr(at, 4));
    take(code_point(bytes.substr(at, size)), at, at + size);
    at += size;
  }
}

void to_form(NormalForm form, TracedText& text, TracedText& next) {
  if (std::ranges::all_of(text.pieces, [&](const TextPiece& piece) {
        return piece.id >= 0 || is_normal(form, text.view(piece));
      }))
    return;
  rewrite(text, next, [&](const TextPiece& piece, TracedText& out) {
    const std::string_view whole = text.view(piece);
    normalize(form, whole, [&](std::string_view bytes, size_t begin, size_t end) {
      if (bytes == whole.substr(begin, end - begin))
        out.copy(text, piece.begin + begin, piece.begin + end);
      else
        out.append(bytes, {text.origins[piece.begin + begin].begin, text.origins[piece.begin + end - 1].end});
    });
  });
}

void to_lowercase(TracedText& text, TracedText& next) {
  rewrite(text, next, [&](const TextPiece& piece, TracedText& out) {
    for_each_letter(text, piece, [&](uint32_t letter, size_t begin, size_t) {
      out.append(lowercase(letter), text.origins[begin]);
    });
  });
}

void strip(bool left, bool right, TracedText& text, TracedText& next) {
  rewrite(text, next, [&](const TextPiece& piece, TracedText& out) {
    size_t begin = left ? piece.end : piece.begin, end = right ? piece.begin : piece.end;
    for_each_letter(text, piece, [&](uint32_t letter, size_t first, size_t last) {
      if (is_white_space(letter)) return;
      begin = std::min(begin, first);
      if (right) end = last;
    });
    if (begin < end) out.copy(text, begin, end);
  });
}

void to_byte_letters(TracedText& text, TracedText& next) {
  std::array<std::string, 256> letters;
  for (size_t byte = 0; byte < letters.size(); ++byte)
    letters[byte] = utf8(letter_of_byte(static_cast<unsigned char>(byte)));
  rewrite(text, next, [&](const TextPiece& piece, TracedText& out) {
    for (size_t at = piece.begin; at < piece.end; ++at) {
      const std::string& letter = letters[static_cast<unsigned char>(text.bytes[at])];
      out.bytes += letter;
      for (size_t i = 0; i < letter.size(); ++i) out.origins.push_back(text.origins[at]);
    }
  });
}

void prepend(const TextStep& step, TracedText& text, TracedText& next) {
  rewrite(text, next, [&](const TextPiece& piece, TracedText& out) {
    const uint32_t begin = text.origins[piece.begin].begin;
    const bool there =
        step.where != TextStep::Where::kEverywhere && text.view(piece).starts_with(step.content);
    if (!there && (step.where != TextStep::Where::kFirstUnlessThere || begin == 0))
      out.append(step.content, {begin, begin});
    out.copy(text, piece.begin, piece.end);
  });
}

void replace(const TextStep& step, TracedText& text, StepScratch& scratch) {
  rewrite(text, scratch.next, [&](const TextPiece& piece, TracedText& out) {
    step.pattern.find_parts(text.view(piece), scratch.regex, scratch.parts);
    for (const PatternPart& part : scratch.parts) {
      const size_t begin = piece.begin + part.begin, end = piece.begin + part.end;
      if (!part.matches) {
        out.copy(text, begin, end);
      } else {
        // The origin is the match's last letter, as in `tokenizers`. No match is empty.
        out.append(step.content, text.origins[end - 1]);
        check_growth(text, out);
      }
    }
  });
}

/// Joins parts in place as `behavior` says. Afterwards `matches` marks the parts to drop.
void join_parts(TextStep::Behavior behavior, std::vector<PatternPart>& parts) {
  using Behavior = TextStep::Behavior;
  if (behavior == Behavior::kRemoved) return;
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::ranges::reverse(parts);
  size_t count = 0;
  bool previous = false;
  for (const PatternPart part : parts) {
    const bool joins =
        behavior == Behavior::kContiguous ? part.matches == previous : part.matches && !previous;
    previous = part.matches;
    if (joins && count > 0 && behavior != Behavior::kIsolated) {
      parts[count - 1].begin = std::min(parts[count - 1].begin, part.begin);
      parts[count - 1].end = std::max(parts[count - 1].end, part.end);
    } else {
      parts[count++] = {part.begin, part.end, false};
    }
  }
  parts.resize(count);
  if (backwards) std::ranges::reverse(parts);
}

void split(const TextStep& step, TracedText& text, StepScratch& scratch) {
  std::vector<TextPiece>& pieces = scratch.next.pieces;
  pieces.clear();
  for (const TextPiece& piece : text.pieces) {
    if (piece.id >= 0) {
      pieces.push_back(piece);
      continue;
    }
    step.pattern.find_parts(text.view(piece), scratch.regex, scratch.parts);
    if (step.invert)
      for (PatternPart& part : scratch.parts) part.matches = !part.matches;
    join_parts(step.behavior, scratch.parts);
    for (const PatternPart& part : scratch.parts)
      if (!part.matches && part.begin < part.end)
        pieces.push_back({piece.begin + part.begin, piece.begin + part.end, -1});
  }
  std::swap(text.pieces, pieces);
}

}  // namespace

void TextPattern::find_parts(std::string_view text, RegexScratch& scratch,
                             std::vector<PatternPart>& parts) const {
  parts.clear();
  size_t done = 0;
  std::optional<size_t> last_end;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    size_t begin = 0, end = 0;
    if (regex) {
      const auto match = regex->find(text, at, scratch);
      if (!match) break;
      begin = match->begin, end = match->end;
    } else {
      begin = text.find(source, at);
      if (begin == std::string_view::npos) break;
      end = begin + source.size();
    }
    if (begin == end && last_end == end) {  // an empty match right after a match does not count
      at += at < text.size() ? sequence_bytes(text.substr(at, 4)) : 1;
      continue;
    }
    if (begin > done) parts.push_back({done, begin, false});
    parts.push_back({begin, end, true});
    at = done = end;
    last_end = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
}

void TextStep::apply(TracedText& text, StepScratch& scratch) const {
  switch (kind) {
    case Kind::kForm:
      return to_form(form, text, scratch.next);
    case Kind::kLowercase:
      return to_lowercase(text, scratch.next);
    case Kind::kStrip:
      return strip(left, right, text, scratch.next);
    case Kind::kPrepend:
      return prepend(*this, text, scratch.next);
    case Kind::kReplace:
      return replace(*this, text, scratch);
    case Kind::kSplit:
      return split(*this, text, scratch);
    case Kind::kByteLetters:
      return to_byte_letters(text, scratch.next);
  }
}

std::string TextStep::identity() const {
  return fmt::format("{} {} {} {} {} {} {} {} {}:{} {}:{}\n", static_cast<int>(kind), static_cast<int>(form),
                     left, right, invert, static_cast<int>(behavior), static_cast<int>(where),
                     pattern.regex.has_value(), pattern.source.size(), pattern.source, content.size(),
                     content);
}

uint32_t letter_of_byte(unsigned char byte) {
  const auto is_own = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  if (is_own(byte)) return byte;
  uint32_t others = 0;  // number of smaller bytes for which is_own() is false
  for (unsigned b = 0; b < byte; ++b) others += is_own(b) ? 0 : 1;
  return 0x100 + others;
}

}  // namespace ripstop
