#include "data/tokenizer/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/tokenizer/sentencepiece_check.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

// Large vocabularies take a few MiB. The model is read into memory and copied into each data set.
constexpr int64_t kMostModelBytes = int64_t{64} << 20;

/// The file of the model that `path` names.
std::filesystem::path model_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) && looks_like_hub_name(path)) {
    throw Error(
        ExitCode::kInputData,
        fmt::format("{}: no such file or directory, and nothing is downloaded", path.string()),
        fmt::format("give a local directory with a tokenizer.model, such as the one that `hf download {}` "
                    "prints",
                    path.string()));
  }
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ExitCode::kInputData, fmt::format("{}: no such file or directory", path.string()),
                "give a SentencePiece model, such as LLaMA's tokenizer.model, or a directory that has one");
  }
  if (!std::filesystem::is_directory(path, ignored)) return path;
  if (std::filesystem::exists(path / kTokenizerFile, ignored)) return path / kTokenizerFile;
  if (std::filesystem::exists(path / "tokenizer.json", ignored)) {
    throw Error(
        ExitCode::kInputData,
        fmt::format("{}: has tokenizer.json (a fast tokenizer) alone, which is not supported", path.string()),
        "give a SentencePiece model: models of LLaMA's first two generations have a tokenizer.model");
  }
  throw Error(ExitCode::kInputData, fmt::format("{}: no tokenizer.model in this directory", path.string()),
              "give the directory of a Hugging Face model, of a data set or of a run, or a .model file");
}

/// SentencePiece's sentence about a failure: after "src/file.cc(12) [condition]", on one line. May be empty.
std::string sentence(const sentencepiece::util::Status& status) {
  std::string text = status.ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  const size_t place_end = text.rfind("] ");
  if (place_end != std::string::npos) text.erase(0, place_end + 2);
  return text.find_first_not_of(' ') == std::string::npos ? "no reason given" : text;
}

/// The fault of bytes that are no SentencePiece model, as far as their begin tells.
[[noreturn]] void refuse_model(const std::string& name, const std::string& model) {
  const size_t first = model.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && model[first] == '{') {
    throw Error(
        ExitCode::kInputData,
        fmt::format("{}: a JSON file, as tokenizer.json of a fast tokenizer is, which is not supported",
                    name),
        "give the SentencePiece model: the tokenizer.model of the same Hugging Face directory");
  }
  throw Error(
      ExitCode::kInputData, fmt::format("{}: not a SentencePiece model", name),
      "give a tokenizer.model, as LLaMA's first two generations have it; if this is one, copy it again");
}

void check_id(int32_t id, int64_t vocabulary_size) {
  if (id < 0 || id >= vocabulary_size)
    fail(ExitCode::kInputData, "token {} lies outside the vocabulary of {}", id, vocabulary_size);
}

/// U+2581, which stands for a space in pieces.
constexpr std::string_view kSpacePiece = "\xe2\x96\x81";

/// The text of a piece that is neither special nor a byte.
std::string with_spaces(std::string_view name) {
  std::string text;
  while (!name.empty()) {
    const bool space = name.starts_with(kSpacePiece);
    text += space ? ' ' : name.front();
    name.remove_prefix(space ? kSpacePiece.size() : 1);
  }
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
  if (!status.ok()) refuse_model(name, model);
  const int pieces = processor.GetPieceSize();
  if (pieces < 1 || pieces > kLargestVocabulary) {
    fail(ExitCode::kInputData, "{}: {} pieces, at most {} are accepted", name, pieces, kLargestVocabulary);
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
  adds_space = !probe.empty() && probe.front().starts_with(kSpacePiece);
  sha256 = sha256_hex(model);
}

bool has_tokenizer(const std::filesystem::path& directory) {
  return path_exists(posix_io(), directory / kTokenizerFile);
}

bool looks_like_hub_name(const std::filesystem::path& path) {
  const std::string text = path.string();
  for (const char* own : {"models/", "runs/", "exported/", "imported/"})
    if (text.starts_with(own)) return false;
  return std::count(text.begin(), text.end(), '/') == 1 && text.front() != '.' && text.front() != '/' &&
         text.front() != '~' && text.back() != '/' && !text.ends_with(".model");
}

Tokenizer::Tokenizer(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  const std::filesystem::path file = model_file(path);
  // A pipe such as that of <(...) has another name. In a directory nobody would write to it.
  state_->model = file.filename() == kTokenizerFile
                      ? read_plain_file(file, kMostModelBytes, ExitCode::kInputData)
                      : read_whole_file(file, kMostModelBytes, ExitCode::kInputData);
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
  if (!status.ok()) fail(ExitCode::kInputData, "a text cannot be tokenized: {}", sentence(status));
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
  for (const int32_t id : ids) check_id(id, vocabulary_size());
  std::string text;
  const auto status = state_->processor.Decode(ids, &text);
  if (!status.ok()) fail(ExitCode::kInputData, "tokens cannot be turned into text: {}", sentence(status));
  return text;
}

TokenPiece Tokenizer::piece(int32_t id) const {
  check_id(id, vocabulary_size());
  const auto& processor = state_->processor;
  TokenPiece piece;
  piece.name = processor.IdToPiece(id);
  piece.is_special = processor.IsControl(id) || processor.IsUnknown(id) || processor.IsUnused(id);
  if (piece.is_special) return piece;
  // SentencePiece spells them so: "<0x0A>".
  const bool is_byte = processor.IsByte(id) && piece.name.size() == 6;
  piece.text = is_byte ? std::string(1, static_cast<char>(std::stoi(piece.name.substr(3, 2), nullptr, 16)))
                       : with_spaces(piece.name);
  return piece;
}

}  // namespace ripstop
