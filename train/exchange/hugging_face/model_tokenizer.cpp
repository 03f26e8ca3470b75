#include "train/exchange/hugging_face/model_tokenizer.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "train/checkpoint/manifest.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
// nlohmann::json finds a member in a tree; ordered_json would search the whole vocabulary for each piece.
using IndexedJson = nlohmann::json;

constexpr int64_t kMostPiecesBytes = int64_t{64} << 20;
// Digits of a SHA-256 in messages: enough to tell two tokenizers apart by eye.
constexpr size_t kShownDigits = 12;

// Reads the id of each piece from a tokenizer.json. "vocab" maps pieces to ids (BPE), or lists [piece, score]
// in the order of ids (Unigram). "added_tokens" has further pieces. Source:
// https://github.com/huggingface/tokenizers
std::map<std::string, int64_t> ids_of_pieces(const fs::path& path) {
  const std::string text = read_plain_file(path, kMostPiecesBytes, ExitCode::kInputData);
  constexpr int kDeepestPieces = 16;
  // Leaves out the merges, which are large and have no ids.
  const auto keep = [&](int depth, IndexedJson::parse_event_t event, IndexedJson& value) {
    if (depth > kDeepestPieces)
      fail(ExitCode::kInputData, "{}: nests deeper than {} levels", path.string(), kDeepestPieces);
    return event != IndexedJson::parse_event_t::key || value != "merges";
  };
  std::map<std::string, int64_t> ids;
  try {
    const IndexedJson document = IndexedJson::parse(text, keep);
    const IndexedJson& vocabulary = document.at("model").at("vocab");
    if (vocabulary.is_object())
      for (const auto& [piece, id] : vocabulary.items()) ids.emplace(piece, id.get<int64_t>());
    else
      for (const IndexedJson& piece : vocabulary)
        ids.emplace(piece.at(0).get<std::string>(), static_cast<int64_t>(ids.size()));
    if (document.contains("added_tokens"))
      for (const IndexedJson& token : document["added_tokens"])
        ids.emplace(token.at("content").get<std::string>(), token.at("id").get<int64_t>());
  } catch (const IndexedJson::exception& error) {
    fail(ExitCode::kInputData, "{}: is no tokenizer: {}", path.string(), in_one_line(error.what()));
  }
  return ids;
}

// A message about the first piece of `tokenizer` that differs in the tokenizer.json at `path`, else "". Skips
// special tokens, whose names may differ between the files of one tokenizer; with may_go_on, also ids beyond
// those of the file.
std::string first_difference(const fs::path& path, const Tokenizer& tokenizer, bool may_go_on) {
  const std::map<std::string, int64_t> ids = ids_of_pieces(path);
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (may_go_on && id >= std::ssize(ids)) break;
    const TokenPiece piece = tokenizer.piece(id);
    if (piece.is_special) continue;
    const auto found = ids.find(piece.name);
    if (found == ids.end())
      return fmt::format("the piece '{}', id {} here, is not in its tokenizer.json", in_one_line(piece.name),
                         id);
    if (found->second != id)
      return fmt::format("the piece '{}' has id {} here and {} in its tokenizer.json",
                         in_one_line(piece.name), id, found->second);
  }
  return "";
}

// Whether the directory of a model has the .model file of `tokenizer`, perhaps beside a tokenizer.json.
bool has_same_file(const fs::path& directory, const Tokenizer& tokenizer) {
  const fs::path file = directory / kSentencePieceFile;
  return tokenizer.is_sentencepiece() && is_file(file) &&
         read_tokenizer_files(file).carried.front().second == tokenizer.model();
}

// The directory for `prepare --tokenizer`: the run if `model` is one of its checkpoints, else `model`.
fs::path tokenizer_directory(const fs::path& model) {
  const fs::path run = fs::absolute(model).lexically_normal().parent_path().parent_path();
  return !has_tokenizer(model) && has_tokenizer(run) ? run : model;
}

// A hint on how to make a data set with the model's tokenizer.
std::string way_to_data(const TokenizerOwners& owners) {
  const fs::path own = tokenizer_directory(owners.model);
  if (read_tokenizer_sha256(own).empty())
    return "ripstop prepare --tokenizer FILE makes a data set for it: FILE is the tokenizer of its "
           "training";
  if (const int64_t pieces = Tokenizer(own).vocabulary_size();
      owners.model_ids > 0 && pieces > owners.model_ids)
    return fmt::format(
        "the tokenizer in {} has {} pieces, too: resize_token_embeddings({}) of transformers gives each an "
        "id",
        own.string(), pieces, pieces);
  return fmt::format("ripstop prepare --tokenizer {} makes a data set for it", shell_word(own.string()));
}

// The number of pieces that `tokenizer` has after the pieces of the model's tokenizer; 0 if its first
// pieces are not the model's, or if the tokenizers begin texts with different tokens or give different ids.
int64_t further_pieces(const TokenizerOwners& owners, const Tokenizer& tokenizer) {
  const fs::path own = tokenizer_directory(owners.model);
  if (!has_tokenizer(own)) return 0;
  const Tokenizer theirs(own);
  const int64_t more = tokenizer.vocabulary_size() - theirs.vocabulary_size();
  if (theirs.sha256() != owners.model_sha256 || more <= 0) return 0;
  for (int32_t id = 0; id < theirs.vocabulary_size(); ++id)
    if (theirs.piece(id).name != tokenizer.piece(id).name) return 0;
  return theirs.begin() == tokenizer.begin() && text_told_apart(theirs, tokenizer).empty() ? more : 0;
}

}  // namespace

std::string read_tokenizer_sha256(const fs::path& directory) {
  if (!has_tokenizer(directory)) return "";
  try {
    return Tokenizer(directory).sha256();
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInputData || is_file(directory / kSentencePieceFile)) throw;
    return "";
  }
}

std::string find_tokenizer_sha256(Io& io, const fs::path& directory) {
  if (!is_pretrained_model(directory)) return read_manifest(io, directory).state.tokenizer_sha256;
  return read_tokenizer_sha256(directory);
}

std::string compare_tokenizers(const TokenizerOwners& owners, const Tokenizer& tokenizer) {
  const std::string model = owners.model.string();
  const auto refuse = [&](const std::string& what, const std::string& otherwise) {
    throw Error(ExitCode::kInputData, fmt::format("{} has another tokenizer {}", owners.user, what),
                owners.remedy.empty() ? otherwise : owners.remedy);
  };
  const fs::path pieces = owners.model / kTokenizerJsonFile;
  const bool has_pieces = tokenizer.is_sentencepiece() && is_file(pieces);
  const bool is_same = owners.model_sha256 == tokenizer.sha256() || has_same_file(owners.model, tokenizer);
  const bool differs = !owners.model_sha256.empty() && !is_same;
  if (differs && owners.may_go_on)
    if (const int64_t more = further_pieces(owners, tokenizer); more > 0)
      return fmt::format("{} has the tokenizer of {} and {} more piece{}", owners.user, model, more,
                         more == 1 ? "" : "s");
  if (differs && !has_pieces)
    refuse(fmt::format("(SHA-256 {}..) than {} ({}..): its ids mean other texts",
                       tokenizer.sha256().substr(0, kShownDigits), model,
                       owners.model_sha256.substr(0, kShownDigits)),
           way_to_data(owners));
  if (owners.model_ids > 0 && tokenizer.vocabulary_size() > owners.model_ids)
    refuse(fmt::format("than {}: it has {} pieces, the model {} ids", model, tokenizer.vocabulary_size(),
                       owners.model_ids),
           way_to_data(owners));
  if (is_same) return "";
  if (!is_file(pieces))
    return fmt::format(
        "{} has {}: whether {} has its tokenizer was not checked; it must be the one that "
        "the model was trained with",
        model, kNoTokenizer, owners.user);
  if (const std::string difference = first_difference(pieces, tokenizer, owners.may_go_on);
      !difference.empty())
    refuse(fmt::format("than {}: {}", model, difference), way_to_data(owners));
  if (tokenizer.is_sentencepiece()) return "";
  return fmt::format(
      "ripstop cannot read {}: only its pieces were compared with those of {}, not how it divides texts",
      pieces.string(), owners.user);
}

}  // namespace ripstop
