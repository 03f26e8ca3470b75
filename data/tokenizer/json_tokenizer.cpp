#include "data/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <utility>

#include "data/files/hash.h"
#include "data/text/utf8.h"
#include "model/core/error.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

/// Refuses added tokens with another id than `tokenizers` would give them, or with the id of another piece.
void check_added_ids(const std::vector<AddedToken>& added, const BpeModel& model) {
  int64_t next = model.piece_count();
  for (size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    const std::string shown = in_one_line(begin_of(token.content, 100));
    const int32_t piece = model.find(token.content);
    const int64_t expected = piece >= 0 ? piece : next++;
    if (token.id != expected)
      fail(ExitCode::kInputData, "the added token '{}' has the id {}, but `tokenizers` would give it {}",
           shown, token.id, expected);
    if (piece < 0 && expected < model.size() && !model.piece(token.id).empty())
      fail(ExitCode::kInputData, "the added token '{}' and the piece '{}' have the same id {}", shown,
           in_one_line(begin_of(model.piece(token.id), 100)), token.id);
  }
}

}  // namespace

std::unique_ptr<JsonTokenizer::Scratch> JsonTokenizer::ScratchPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

void JsonTokenizer::ScratchPool::give_back(std::unique_ptr<Scratch> scratch) {
  constexpr size_t kKeptBytes = size_t{1} << 20;  // memory of a long text is not kept
  if (scratch->text.bytes.capacity() > kKeptBytes) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

JsonTokenizer::JsonTokenizer(TokenizerJson json, const std::string& name) try
    : model_(std::move(json.model)),
      normalizer_(std::move(json.normalizer)),
      pre_tokenizer_(std::move(json.pre_tokenizer)),
      decoder_(std::move(json.decoder)),
      prefix_(std::move(json.prefix)),
      suffix_(std::move(json.suffix)),
      added_(with_spellings(std::move(json.added))) {
  size_ = model_.size();
  for (const AddedToken& token : added_.all()) size_ = std::max(size_, int64_t{token.id} + 1);
  for (const std::vector<int32_t>* ids : {&prefix_, &suffix_})
    for (const int32_t id : *ids) check_id(id);
  std::string identity = model_.identity() + added_.identity() + "normalizer\n";
  for (const TextStep& step : normalizer_) identity += step.identity();
  identity += "pre-tokenizer\n";
  for (const TextStep& step : pre_tokenizer_) identity += step.identity();
  identity += decoder_.identity();
  for (const int32_t id : prefix_) identity += fmt::format("prefix {}\n", id);
  for (const int32_t id : suffix_) identity += fmt::format("suffix {}\n", id);
  sha256_ = sha256_hex(identity);
} catch (const Error& error) {
  throw Error(error.code(), name + ": " + error.what(), error.hint());
}

std::vector<AddedToken> JsonTokenizer::with_spellings(std::vector<AddedToken> tokens) const {
  check_added_ids(tokens, model_);
  Scratch scratch;
  for (AddedToken& token : tokens) {
    if (!token.normalized) continue;
    scratch.text.assign(token.content);
    for (const TextStep& step : normalizer_) step.apply(scratch.text, scratch.steps);
    token.spelling = scratch.text.bytes;
  }
  return tokens;
}

void JsonTokenizer::check_id(int32_t id) const {
  if (id < 0 || id >= size_)
    fail(ExitCode::kInputData, "token {} lies outside the vocabulary of {}", id, size_);
}

std::string_view JsonTokenizer::spelling(int32_t id) const {
  check_id(id);
  if (const AddedToken* token = added_.find(id)) return token->spelling;
  return id < model_.size() ? std::string_view(model_.piece(id)) : std::string_view();
}

std::vector<SpannedToken> JsonTokenizer::encode(std::string_view text, Special special) const {
  if (text.size() > UINT32_MAX) fail(ExitCode::kInputData, "a text of 4 GiB or more cannot be tokenized");
  if (const auto at = invalid_utf8(text)) fail(ExitCode::kInputData, "a text is not UTF-8 at byte {}", *at);
  std::unique_ptr<Scratch> scratch = scratches_.take();
  TracedText& traced = scratch->text;
  scratch->steps.regex.start();
  traced.assign(text);
  added_.split(false, special == Special::kTokens, traced);
  for (const TextStep& step : normalizer_) step.apply(traced, scratch->steps);
  added_.split(true, special == Special::kTokens, traced);
  for (const TextStep& step : pre_tokenizer_) step.apply(traced, scratch->steps);
  std::vector<SpannedToken> tokens;
  int64_t end_byte = 0;
  const auto add = [&](int32_t id, size_t end) {
    end_byte = std::max(end_byte, int64_t{traced.origins[end - 1].end});
    tokens.push_back({id, end_byte});
  };
  for (const TextPiece& piece : traced.pieces) {
    if (piece.id >= 0) {
      add(piece.id, piece.end);
      continue;
    }
    scratch->word.clear();
    model_.encode(traced.view(piece), scratch->bpe, scratch->word);
    for (const WordToken& token : scratch->word) add(token.id, piece.begin + token.end);
  }
  scratches_.give_back(std::move(scratch));
  return tokens;
}

std::string JsonTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string_view text = spelling(id);
    if (text.empty()) continue;
    const AddedToken* const named = skip_special ? added_.find(text) : nullptr;
    if (named == nullptr || !named->special) tokens.emplace_back(text);
  }
  return decoder_.decode(std::move(tokens));
}

std::optional<int32_t> JsonTokenizer::added_token(std::string_view content) const {
  const AddedToken* const token = added_.find(content);
  return token == nullptr ? std::nullopt : std::optional(token->id);
}

bool JsonTokenizer::is_special(int32_t id) const {
  const AddedToken* const token = added_.find(id);
  return token != nullptr && token->special;
}

std::string_view JsonTokenizer::piece_name(int32_t id) const {
  const AddedToken* const token = added_.find(id);
  return token != nullptr ? std::string_view(token->content) : spelling(id);
}

std::string JsonTokenizer::piece_bytes(int32_t id) const {
  return decoder_.bytes(std::string(spelling(id)));
}

}  // namespace ripstop
