#include "data/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "data/files/hash.h"
#include "data/text/utf8.h"
#include "data/tokenizer/tokenizer_json.h"
#include "model/core/error.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

/// Memory for one thread that encodes a text.
struct Scratch {
  TracedText text;
  StepScratch steps;
  BpeScratch bpe;
  std::vector<WordToken> word;
};

/// Scratches that no thread uses now.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) {
    constexpr size_t kKeptBytes = size_t{1} << 20;  // memory of a long text is not kept
    if (scratch->text.bytes.capacity() > kKeptBytes) return;
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

/// Refuses added tokens whose stated ids differ from the ids that `tokenizers` would give them.
void check_added_ids(const std::vector<AddedToken>& added, const BpeModel& model) {
  int64_t next = model.piece_count();
  for (size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    const std::string shown = in_one_line(token.content.substr(0, 100));
    const int32_t piece = model.find(token.content);
    const int64_t expected = piece >= 0 ? piece : next++;
    if (token.id != expected)
      fail(ExitCode::kInputData, "the added token '{}' has the id {}, but `tokenizers` would give it {}",
           shown, token.id, expected);
    if (piece < 0 && expected < model.size() && !model.piece(token.id).empty())
      fail(ExitCode::kInputData, "the added token '{}' and the piece '{}' have the same id {}", shown,
           in_one_line(model.piece(token.id).substr(0, 100)), token.id);
  }
}

}  // namespace

struct JsonTokenizer::Parts {
  explicit Parts(TokenizerJson json)
      : model(std::move(json.model)),
        normalizer(std::move(json.normalizer)),
        pre_tokenizer(std::move(json.pre_tokenizer)),
        decoder(std::move(json.decoder)),
        prefix(std::move(json.prefix)),
        suffix(std::move(json.suffix)),
        added(with_spellings(std::move(json.added))) {
    size = model.size();
    for (const AddedToken& token : added.all()) size = std::max(size, int64_t{token.id} + 1);
    for (const std::vector<int32_t>* ids : {&prefix, &suffix})
      for (const int32_t id : *ids) check_id(id);
    std::string identity = model.identity() + added.identity() + "normalizer\n";
    for (const TextStep& step : normalizer) identity += step.identity();
    identity += "pre-tokenizer\n";
    for (const TextStep& step : pre_tokenizer) identity += step.identity();
    identity += decoder.identity();
    for (const int32_t id : prefix) identity += fmt::format("prefix {}\n", id);
    for (const int32_t id : suffix) identity += fmt::format("suffix {}\n", id);
    sha256 = sha256_hex(identity);
  }

  std::vector<AddedToken> with_spellings(std::vector<AddedToken> tokens) const {
    check_added_ids(tokens, model);
    Scratch scratch;
    for (AddedToken& token : tokens) {
      if (!token.normalized) continue;
      scratch.text.assign(token.content);
      for (const TextStep& step : normalizer) step.apply(scratch.text, scratch.steps);
      token.spelling = scratch.text.bytes;
    }
    return tokens;
  }
  void check_id(int32_t id) const {
    if (id < 0 || id >= size)
      fail(ExitCode::kInputData, "token {} lies outside the vocabulary of {}", id, size);
  }
  std::string_view spelling(int32_t id) const {
    check_id(id);
    if (const AddedToken* token = added.find(id)) return token->spelling;
    return id < model.size() ? std::string_view(model.piece(id)) : std::string_view();
  }

  BpeModel model;
  std::vector<TextStep> normalizer, pre_tokenizer;
  TokenDecoder decoder;
  std::vector<int32_t> prefix, suffix;
  AddedTokens added;
  int64_t size = 0;
  std::string sha256;
  mutable ScratchPool scratches;
};

JsonTokenizer::JsonTokenizer(std::string_view json, const std::string& name) {
  TokenizerJson read = read_tokenizer_json(json, name);
  try {
    parts_ = std::make_unique<const Parts>(std::move(read));
  } catch (const Error& error) {
    throw Error(error.code(), name + ": " + error.what(), error.hint());
  }
}
JsonTokenizer::~JsonTokenizer() = default;
JsonTokenizer::JsonTokenizer(JsonTokenizer&&) noexcept = default;
JsonTokenizer& JsonTokenizer::operator=(JsonTokenizer&&) noexcept = default;

int64_t JsonTokenizer::vocabulary_size() const {
  return parts_->size;
}
const std::string& JsonTokenizer::sha256() const {
  return parts_->sha256;
}
const std::vector<int32_t>& JsonTokenizer::prefix() const {
  return parts_->prefix;
}
const std::vector<int32_t>& JsonTokenizer::suffix() const {
  return parts_->suffix;
}

std::vector<SpannedToken> JsonTokenizer::encode(std::string_view text, Special special) const {
  if (text.size() > UINT32_MAX) fail(ExitCode::kInputData, "a text of 4 GiB or more cannot be tokenized");
  if (const auto at = invalid_utf8(text)) fail(ExitCode::kInputData, "a text is not UTF-8 at byte {}", *at);
  const Parts& parts = *parts_;
  std::unique_ptr<Scratch> scratch = parts.scratches.take();
  TracedText& traced = scratch->text;
  scratch->steps.regex.start();
  traced.assign(text);
  parts.added.split(false, special == Special::kTokens, traced);
  for (const TextStep& step : parts.normalizer) step.apply(traced, scratch->steps);
  parts.added.split(true, special == Special::kTokens, traced);
  for (const TextStep& step : parts.pre_tokenizer) step.apply(traced, scratch->steps);
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
    parts.model.encode(traced.view(piece), scratch->bpe, scratch->word);
    for (const WordToken& token : scratch->word) add(token.id, piece.begin + token.end);
  }
  parts.scratches.give_back(std::move(scratch));
  return tokens;
}

std::string JsonTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string_view spelling = parts_->spelling(id);
    if (spelling.empty()) continue;
    const AddedToken* const named = skip_special ? parts_->added.find(spelling) : nullptr;
    if (named == nullptr || !named->special) tokens.emplace_back(spelling);
  }
  return parts_->decoder.decode(std::move(tokens));
}

std::optional<int32_t> JsonTokenizer::added_token(std::string_view content) const {
  const AddedToken* const token = parts_->added.find(content);
  return token == nullptr ? std::nullopt : std::optional(token->id);
}

bool JsonTokenizer::is_special(int32_t id) const {
  const AddedToken* const token = parts_->added.find(id);
  return token != nullptr && token->special;
}

std::string_view JsonTokenizer::piece_name(int32_t id) const {
  const AddedToken* const token = parts_->added.find(id);
  return token != nullptr ? std::string_view(token->content) : parts_->spelling(id);
}

std::string JsonTokenizer::piece_bytes(int32_t id) const {
  return parts_->decoder.bytes(std::string(parts_->spelling(id)));
}

}  // namespace ripstop
