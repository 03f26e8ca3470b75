#include "data/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/text/utf8.h"
#include "data/tokenizer/unicode.h"
#include "model/core/error.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

/// The letter right before byte `at` > 0.
std::string_view letter_before(std::string_view text, size_t at) {
  const size_t begin = character_begin(text, at - 1);
  return text.substr(begin, at - begin);
}

std::string_view letter_behind(std::string_view text, size_t at) {
  return text.substr(at, sequence_bytes(text.substr(at, 4)));
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !is_word_letter(code_point(letter_before(text, begin)))) &&
         (end == text.size() || !is_word_letter(code_point(letter_behind(text, end))));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  by_content_.resize(tokens_.size());
  std::iota(by_content_.begin(), by_content_.end(), 0);
  by_id_ = by_content_;
  std::ranges::sort(by_content_, {}, [&](size_t i) { return std::string_view(tokens_[i].content); });
  std::ranges::sort(by_id_, {}, [&](size_t i) { return tokens_[i].id; });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (token.spelling.empty())
      fail(ExitCode::kInputData, "the added token '{}' is empty once it is normalized",
           in_one_line(begin_of(token.content, 100)));
    Search& search = searches_[token.normalized ? 1 : 0];
    search.sorted.push_back(i);
    search.first_bytes.set(static_cast<unsigned char>(token.spelling.front()));
  }
  for (Search& search : searches_) {
    const auto spelling = [&](size_t i) { return std::string_view(tokens_[i].spelling); };
    std::ranges::sort(search.sorted, {}, spelling);
    if (const auto twice = std::ranges::adjacent_find(search.sorted, {}, spelling);
        twice != search.sorted.end())
      fail(ExitCode::kInputData, "two added tokens are found by '{}'",
           in_one_line(begin_of(tokens_[*twice].spelling, 100)));
  }
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = std::ranges::lower_bound(by_content_, content, {},
                                              [&](size_t i) { return std::string_view(tokens_[i].content); });
  return found != by_content_.end() && tokens_[*found].content == content ? &tokens_[*found] : nullptr;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = std::ranges::lower_bound(by_id_, id, {}, [&](size_t i) { return tokens_[i].id; });
  return found != by_id_.end() && tokens_[*found].id == id ? &tokens_[*found] : nullptr;
}

/// The longest token with which `text` begins.
const AddedToken* AddedTokens::longest_at(const Search& search, std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto begin = search.sorted.begin(), end = search.sorted.end();
  for (size_t depth = 0; depth < text.size() && begin != end; ++depth) {
    // [begin, end): tokens with the first `depth` bytes of `text`; a token of just these bytes comes first.
    const auto byte = [&](size_t i) {
      const std::string& spelling = tokens_[i].spelling;
      return depth < spelling.size() ? static_cast<unsigned char>(spelling[depth]) : -1;
    };
    const int next = static_cast<unsigned char>(text[depth]);
    begin = std::ranges::lower_bound(begin, end, next, {}, byte);
    end = std::ranges::upper_bound(begin, end, next, {}, byte);
    if (begin != end && tokens_[*begin].spelling.size() == depth + 1) longest = &tokens_[*begin];
  }
  return longest;
}

void AddedTokens::split(bool normalized, bool with_special, TracedText& text) const {
  const Search& search = searches_[normalized ? 1 : 0];
  if (search.sorted.empty()) return;
  std::vector<TextPiece> pieces;
  for (const TextPiece& piece : text.pieces) {
    if (piece.id >= 0) {
      pieces.push_back(piece);
      continue;
    }
    const std::string_view view = text.view(piece);
    size_t done = 0;
    const auto take = [&](size_t begin, size_t end, int32_t id) {
      if (begin < end) pieces.push_back({piece.begin + begin, piece.begin + end, id});
    };
    for (size_t at = 0; at < view.size();) {
      const AddedToken* const token = search.first_bytes.test(static_cast<unsigned char>(view[at]))
                                          ? longest_at(search, view.substr(at))
                                          : nullptr;
      if (token == nullptr) {
        ++at;
        continue;
      }
      size_t begin = at, end = at += token->spelling.size();
      if (token->special && !with_special) continue;
      if (token->single_word && !stands_alone(view, begin, end)) continue;
      while (token->lstrip && begin > done && is_white_space(code_point(letter_before(view, begin))))
        begin -= letter_before(view, begin).size();
      while (token->rstrip && end < view.size() && is_white_space(code_point(letter_behind(view, end))))
        end += letter_behind(view, end).size();
      // White space that the previous token took stays with it; an lstrip token inside the space is dropped.
      if (token->lstrip) begin = std::max(begin, done);
      take(done, begin, -1);
      take(begin, end, token->id);
      done = end;
    }
    take(done, view.size(), -1);
  }
  text.pieces = std::move(pieces);
}

std::string AddedTokens::identity() const {
  std::string text;
  for (const size_t i : by_id_) {
    const AddedToken& token = tokens_[i];
    text += fmt::format("added {} {} {} {} {} {} {}:{}\n", token.id, token.single_word, token.lstrip,
                        token.rstrip, token.normalized, token.special, token.content.size(), token.content);
  }
  return text;
}

}  // namespace ripstop
