#include "data/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "data/hash.h"
#include "data/sentencepiece_check.h"
#include "data/whole_file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

// Large vocabularies take a few MiB. The model is read into memory and copied into each data set.
constexpr int64_t kMostModelBytes = int64_t{64} << 20;
constexpr int kMostPieces = 1'000'000;

/// Where a directory keeps its SentencePiece model.
std::filesystem::path model_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  if (std::filesystem::exists(path / "tokenizer.model", ignored)) return path / "tokenizer.model";
  if (std::filesystem::exists(path / "tokenizer.json", ignored)) {
    throw Error(ExitCode::kInputData,
                fmt::format("{}: has tokenizer.json alone, which is not supported", path.string()),
                "give a SentencePiece model: models of LLaMA's first two generations have a tokenizer.model");
  }
  fail(ExitCode::kInputData, "{}: no tokenizer.model in this directory", path.string());
}

/// SentencePiece's messages carry source places and line ends; people need the sentence.
std::string one_line(const sentencepiece::util::Status& status) {
  std::string text = status.ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

// The model stays in memory as it was read: data sets and runs get an exact copy of it.
struct Tokenizer::State {
  std::string name, model, sha256;
  sentencepiece::SentencePieceProcessor processor;
  bool adds_space = false;  ///< puts a space before a text by itself

  void load();
};

void Tokenizer::State::load() {
  if (model.empty()) fail(ExitCode::kInputData, "{}: the tokenizer is empty", name);
  if (static_cast<int64_t>(model.size()) > kMostModelBytes) {
    fail(ExitCode::kInputData, "{}: {} bytes, at most {} are accepted", name, model.size(), kMostModelBytes);
  }
  // Before the library sees the model: it follows the map without bounds checks.
  if (const std::string what = find_character_map_damage(model); !what.empty()) {
    fail(ExitCode::kInputData, "{}: not a sound SentencePiece model: {}", name, what);
  }
  const auto status = processor.LoadFromSerializedProto(model);
  if (!status.ok()) fail(ExitCode::kInputData, "{}: not a SentencePiece model: {}", name, one_line(status));
  const int pieces = processor.GetPieceSize();
  if (pieces < 1 || pieces > kMostPieces) {
    fail(ExitCode::kInputData, "{}: {} pieces, at most {} are accepted", name, pieces, kMostPieces);
  }
  // Every example begins with BOS and ends with EOS; unk is what SentencePiece answers for an unknown text.
  const std::pair<const char*, int> specials[] = {
      {"unk", processor.unk_id()}, {"bos", processor.bos_id()}, {"eos", processor.eos_id()}};
  for (const auto& [special, id] : specials) {
    if (id < 0 || id >= pieces) fail(ExitCode::kInputData, "{}: has no {} token (id {})", name, special, id);
  }
  // SentencePiece has no call that tells this option of the model, so encode a letter and look.
  std::vector<std::string> probe;
  processor.Encode("a", &probe).IgnoreError();
  adds_space = !probe.empty() && probe.front().starts_with("\xe2\x96\x81");  // U+2581 stands for a space
  sha256 = sha256_hex(model);
}

Tokenizer::Tokenizer(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  const std::filesystem::path file = model_file(path);
  state_->model = read_whole_file(file, kMostModelBytes, ExitCode::kInputData);
  state_->name = file.string();
  state_->load();
}

Tokenizer::Tokenizer(std::string model, const std::string& name) : state_(std::make_unique<State>()) {
  state_->model = std::move(model);
  state_->name = name;
  state_->load();
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

const std::string& Tokenizer::name() const {
  return state_->name;
}
const std::string& Tokenizer::model() const {
  return state_->model;
}
const std::string& Tokenizer::sha256() const {
  return state_->sha256;
}
int64_t Tokenizer::vocabulary_size() const {
  return state_->processor.GetPieceSize();
}
int32_t Tokenizer::unk() const {
  return state_->processor.unk_id();
}
int32_t Tokenizer::bos() const {
  return state_->processor.bos_id();
}
int32_t Tokenizer::eos() const {
  return state_->processor.eos_id();
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const auto status = state_->processor.Encode({text.data(), text.size()}, &ids);
  if (!status.ok()) fail(ExitCode::kInputData, "a text cannot be tokenized: {}", one_line(status));
  return ids;
}

std::vector<int32_t> Tokenizer::encode_continuation(std::string_view text) const {
  return state_->adds_space ? encode(text) : encode(" " + std::string(text));
}

std::vector<SpannedToken> Tokenizer::encode_with_spans(std::string_view text) const {
  const auto encoded = state_->processor.EncodeAsImmutableProto({text.data(), text.size()});
  std::vector<SpannedToken> tokens;
  for (size_t i = 0; i < encoded.pieces_size(); ++i) {
    const auto piece = encoded.pieces(static_cast<int>(i));
    tokens.push_back({static_cast<int32_t>(piece.id()), static_cast<int64_t>(piece.end())});
  }
  return tokens;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size()) {
      fail(ExitCode::kInputData, "token {} lies outside the vocabulary of {}", id, vocabulary_size());
    }
  }
  std::string text;
  const auto status = state_->processor.Decode(ids, &text);
  if (!status.ok()) fail(ExitCode::kInputData, "tokens cannot be turned into text: {}", one_line(status));
  return text;
}

// ---- training

namespace {

/// Lines from a function, as the trainer wants them.
class LineIterator final : public sentencepiece::SentenceIterator {
 public:
  // The trainer asks for value() before it calls Next().
  explicit LineIterator(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_(line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string line_;
  bool done_ = false;
};

}  // namespace

std::string train_tokenizer(const std::function<bool(std::string&)>& next_line, int64_t vocabulary_size) {
  constexpr int64_t kSmallest = 300;  // 256 bytes, three control tokens, some letters
  if (vocabulary_size < kSmallest || vocabulary_size > kMostPieces) {
    fail(ExitCode::kUsage, "a vocabulary of {} pieces: {} to {} are possible", vocabulary_size, kSmallest,
         kMostPieces);
  }
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary_size)},
      // As LLaMA-2's tokenizer was trained: digits one by one, characters without a piece as bytes, and no
      // normalization, so that decode() gives back the text that was encoded.
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "true"},
      {"character_coverage", "0.99995"},
      // The trainer skips longer lines. Its default of 4,192 bytes would drop long paragraphs.
      {"max_sentence_length", "1048576"},
      {"num_threads", "1"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "-1"},
      {"minloglevel", "3"}};
  LineIterator lines(next_line);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
  if (!status.ok()) {
    throw Error(ExitCode::kUsage,
                fmt::format("cannot train a tokenizer of {} pieces: {}", vocabulary_size, one_line(status)),
                "a smaller --vocab-size, or more text");
  }
  return model;
}

}  // namespace ripstop
