#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "data/tokenizer/end_token.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"

namespace ripstop {
namespace {

constexpr const char* kEndHint =
    "ripstop prepare --eos-token '<|im_end|>', or another one, names it, as does eos_token in "
    "tokenizer_config.json";

/// A note if add_bos_token of tokenizer_config.json contradicts tokenizer.json; else "". AutoTokenizer of
/// transformers 5 drops add_bos_token beside a tokenizer.json. Source: transformers 5.24,
/// tokenization_utils_base.py, _from_pretrained().
std::string begin_note(const TokenizerFiles& files, bool begins) {
  const std::string* text = files.find(kTokenizerConfigFile);
  if (text == nullptr) return "";
  const JsonReader reader((files.path.parent_path() / kTokenizerConfigFile).string(), ExitCode::kInputData);
  const JsonReader::Json json = reader.parse(*text);
  if (reader.find(json, "add_bos_token") == nullptr || reader.flag(json, "add_bos_token") == begins)
    return "";
  return fmt::format(
      "an example begins with {}, as the post-processor of {} says; AutoTokenizer of "
      "transformers 5 drops add_bos_token of {}, too",
      begins ? "a token" : "no token", files.path.string(), kTokenizerConfigFile);
}

/// Texts that tokenizers of one vocabulary are likely to divide differently.
constexpr std::array<const char*, 12> kTellingTexts = {
    "The harbour",
    " leading space",
    "two  spaces and   three ",
    "lines\n\nand\ttabs\r\n",
    "2,024.50 and 1234567",
    "don't, we'll, I'D",
    "caf\u00e9 cafe\u0301 \ufb01 \u00a0x",
    "\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u0440\u0443\u0441\u0441\u043a\u0438\u0439",
    "\U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea \u2026\u2014",
    "</s> <s> <unk>",
    "f(x) => { return x_1[0]; }",
    "\u2581x \u2581\u2581"};

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& path, const TokenizerChoice& choice)
    : files_(read_tokenizer_files(path)) {
  std::error_code ignored;
  const std::filesystem::path other = path / kSentencePieceFile;
  if (files_.is_json() && std::filesystem::exists(other, ignored)) {
    try {
      json_ = std::make_unique<JsonTokenizer>(model(), files_.path.string());
    } catch (const Error& error) {
      try {
        *this = Tokenizer(other, choice);
      } catch (const Error&) {
        throw error;  // the error of tokenizer.json, as LLaMA 3's tokenizer.model is no SentencePiece model
      }
      notes_.push_back(fmt::format("{} is read, because {}", other.string(), error.what()));
      return;
    }
  }
  load(choice);
}

Tokenizer::Tokenizer(std::string model, const std::string& name, const TokenizerChoice& choice)
    : files_(tokenizer_files_of(std::move(model), name)) {
  load(choice);
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

template <class Use>
auto Tokenizer::of_kind(const Use& use) const {
  return json_ ? use(*json_) : use(*sentencepiece_);
}

void Tokenizer::load(const TokenizerChoice& choice) {
  name_ = files_.path.string();
  if (model().empty()) fail(ExitCode::kInputData, "{}: the tokenizer is empty", name_);
  if (!choice.eos_token.empty()) files_.choice.eos_token = choice.eos_token;
  if (choice.reads_special_tokens) files_.choice.reads_special_tokens = choice.reads_special_tokens;
  if (choice.chat_template) {
    files_.choice.chat_template = choice.chat_template;
    files_.choice.chat_date = choice.chat_date;
    files_.questions.reset();
  }
  if (files_.is_json())
    load_json();
  else
    load_sentencepiece();
  vocabulary_size_ = of_kind([](const auto& kind) { return kind.vocabulary_size(); });
  begin_ = of_kind([](const auto& kind) { return kind.prefix(); });
  if (!files_.choice.eos_token.empty()) eos_ = id_of(files_.choice.eos_token);
  if (!files_.choice.eos_token.empty() && !eos_)
    throw Error(ExitCode::kInputData, fmt::format("{} has no token '{}'", name_, files_.choice.eos_token),
                kEndHint);
  // Carry the name of the end token: the other carried files may name another token, or none.
  if (files_.is_json() && eos_) files_.choice.eos_token = piece(*eos_).name;
  if (!files_.choice.eos_token.empty() || files_.questions) files_.carry_choice();
}

void Tokenizer::carry_questions(const std::optional<TokenizerChoice>& questions) {
  files_.questions = questions;
  if (questions) files_.carry_choice();
}

void Tokenizer::load_sentencepiece() {
  if (files_.choice.reads_special_tokens.value_or(false))
    throw Error(ExitCode::kUsage, fmt::format("{} reads special tokens in a text as text alone", name_),
                "a chat template and --read-special-tokens need a tokenizer.json");
  sentencepiece_ = std::make_unique<SentencePieceTokenizer>(model(), name_);
  sha256_ = sha256_hex(model());
  eos_ = sentencepiece_->eos();
  adds_space_ = sentencepiece_->adds_space();
}

void Tokenizer::load_json() {
  if (!json_) json_ = std::make_unique<JsonTokenizer>(model(), name_);
  sha256_ = json_->sha256();
  if (json_->vocabulary_size() > kLargestVocabulary)
    fail(ExitCode::kInputData, "{}: {} ids, at most {} are accepted", name_, json_->vocabulary_size(),
         kLargestVocabulary);
  const std::vector<SpannedToken> probe = json_->encode("a", JsonTokenizer::Special::kText);
  adds_space_ = !probe.empty() && json_->piece_bytes(probe.front().id).starts_with(' ');
  if (files_.choice.eos_token.empty()) {
    EndToken end = find_end_token(files_, *json_);
    eos_ = end.id;
    no_end_ = std::move(end.problem);
    if (!end.note.empty()) notes_.push_back(std::move(end.note));
  }
  if (std::string note = begin_note(files_, !json_->prefix().empty()); !note.empty())
    notes_.push_back(std::move(note));
}

int32_t Tokenizer::eos() const {
  if (!eos_) throw Error(ExitCode::kInputData, no_end_, kEndHint);
  return *eos_;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view name) const {
  if (json_) return find_token(*json_, name);
  for (int32_t id = 0; id < vocabulary_size_; ++id)
    if (sentencepiece_->piece_name(id) == name) return id;
  return std::nullopt;
}

std::vector<SpannedToken> Tokenizer::encode_json(std::string_view text) const {
  try {
    return json_->encode(
        text, reads_special_tokens() ? JsonTokenizer::Special::kTokens : JsonTokenizer::Special::kText);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInputData) throw;
    throw LongWordError(error.code(), error.what(), error.hint());
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::vector<int32_t> before) const {
  if (sentencepiece_) return sentencepiece_->encode(text, std::move(before));
  const std::vector<SpannedToken> tokens = encode_json(text);
  before.reserve(before.size() + tokens.size() + 1);  // with room for EOS
  for (const SpannedToken& token : tokens) before.push_back(token.id);
  return before;
}

std::vector<int32_t> Tokenizer::encode_continuation(std::string_view text,
                                                    std::vector<int32_t> before) const {
  return adds_space_ ? encode(text, std::move(before)) : encode(" " + std::string(text), std::move(before));
}

std::vector<SpannedToken> Tokenizer::encode_with_spans(std::string_view text) const {
  return json_ ? encode_json(text) : sentencepiece_->encode_with_spans(text);
}

int64_t Tokenizer::tokens_before(std::string_view text, int64_t byte) const {
  const std::vector<SpannedToken> tokens = encode_with_spans(text);
  return std::ranges::upper_bound(tokens, byte, {}, &SpannedToken::end_byte) - tokens.begin();
}

void Tokenizer::check_id(int32_t id) const {
  if (id < 0 || id >= vocabulary_size_)
    fail(ExitCode::kInputData, "token {} lies outside the vocabulary of {}", id, vocabulary_size_);
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  for (const int32_t id : ids) check_id(id);
  return json_ ? json_->decode(ids, /*skip_special=*/true) : sentencepiece_->decode(ids);
}

TokenPiece Tokenizer::piece(int32_t id) const {
  check_id(id);
  return of_kind([&](const auto& kind) {
    TokenPiece piece{.name = std::string(kind.piece_name(id)), .text = {}, .is_special = kind.is_special(id)};
    if (!piece.is_special) piece.text = kind.piece_bytes(id);
    return piece;
  });
}

std::vector<std::string> Tokenizer::notes() const {
  std::vector<std::string> notes = notes_;
  const std::filesystem::path file = name_;
  const std::filesystem::path other = file.parent_path() / kSentencePieceFile;
  std::error_code ignored;
  if (file.filename() != kTokenizerJsonFile || !std::filesystem::exists(other, ignored)) return notes;
  try {
    if (const std::string text = text_told_apart(
            *this,
            Tokenizer(read_plain_file(other, kMostTokenizerBytes, ExitCode::kInputData), other.string()));
        !text.empty())
      notes.push_back(
          fmt::format("{} is read, as AutoTokenizer does; {} beside it gives other ids, as for {}",
                      file.string(), kSentencePieceFile, text_of_json(text)));
  } catch (const Error&) {
    // A model that cannot be loaded gives no note: LLaMA 3's tokenizer.model is not a SentencePiece model.
  }
  return notes;
}

std::string text_told_apart(const Tokenizer& one, const Tokenizer& other) {
  for (const char* text : kTellingTexts)
    if (one.encode(text) != other.encode(text)) return text;
  return "";
}

}  // namespace ripstop
