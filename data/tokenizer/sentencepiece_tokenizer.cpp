#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "data/text/utf8.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

/// The error on one line, without the prefix "src/file.cc(12) [condition]".
std::string sentence(const sentencepiece::util::Status& status) {
  std::string text = in_one_line(status.ToString());
  const size_t place_end = text.rfind("] ");
  if (place_end != std::string::npos) text.erase(0, place_end + 2);
  return text.find_first_not_of(' ') == std::string::npos ? "no reason given" : text;
}

/// Maximum bytes of a part of a text: kPartBytes, or kLongestPartBytes if these have no place to cut.
constexpr size_t kPartBytes = size_t{64} << 10;
constexpr size_t kLongestPartBytes = size_t{1} << 20;

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string_view model, const std::string& name)
    : name_(name), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  if (const std::string what = find_character_map_damage(model); !what.empty())
    fail(ExitCode::kInputData, "{}: not a sound SentencePiece model: {}", name, what);
  if (!processor_->LoadFromSerializedProto({model.data(), model.size()}).ok())
    throw Error(ExitCode::kInputData, fmt::format("{}: not a SentencePiece model", name),
                "give a tokenizer.model, as LLaMA's first two generations have it, or a tokenizer.json; if "
                "this is one, copy it again");
  vocabulary_size_ = processor_->GetPieceSize();
  if (vocabulary_size_ < 1 || vocabulary_size_ > kLargestVocabulary) {
    fail(ExitCode::kInputData, "{}: {} pieces, at most {} are accepted", name, vocabulary_size_,
         kLargestVocabulary);
  }
  unk_ = processor_->unk_id(), eos_ = processor_->eos_id();
  prefix_ = {processor_->bos_id()};
  // All three are needed: BOS begins and EOS ends examples, and unknown text is encoded as unk.
  for (const auto& [special, id] : {std::pair{"unk", unk_}, {"bos", prefix_.front()}, {"eos", eos_}}) {
    if (id < 0 || id >= vocabulary_size_)
      throw Error(ExitCode::kInputData, fmt::format("{}: has no {} token (id {})", name, special, id),
                  "tokenizers of LLaMA's kind have unk, bos and eos, and those of T5 and PEGASUS do not: "
                  "ripstop prepare --vocab-size N makes one");
  }
  find_cuts(model);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

/// Finds the places where a text can be cut without changing its ids. BPE merges neighbours only into pieces
/// of the vocabulary. No piece holds both letters beside a cut, so no merge crosses it or depends on the
/// other side. Texts are not cut if the model
/// - has a map of characters, which may join a letter with the space before it,
/// - drops spaces at the ends of a text, ends words in spaces, or does not spell them U+2581,
/// - has neither a piece for the space nor byte pieces: SentencePiece joins unknown neighbours,
/// - has unused pieces, which SentencePiece divides again by merges from anywhere in the text,
/// - is no BPE: a unigram model's scores are float32 sums from the start of the text.
void SentencePieceTokenizer::find_cuts(std::string_view bytes) {
  const SentencePieceModel model = read_sentencepiece_model(bytes);
  bool has_space = model.byte_fallback, has_unused = false;
  for (const ModelPiece& piece : model.pieces) {
    has_space |= piece.text == kSpacePiece;
    has_unused |= piece.kind == PieceKind::kUnused;
    // A user-defined piece may have a plain space.
    for (size_t at = 1; at < piece.text.size(); ++at)
      if (piece.text[at] == ' ' || std::string_view(piece.text).substr(at).starts_with(kSpacePiece))
        before_inner_space_.set(
            static_cast<unsigned char>(piece.text[at - 1] == ' ' ? kSpacePiece.back() : piece.text[at - 1]));
  }
  can_cut_ = model.algorithm == SentencePieceModel::kBpe && model.character_map.empty() &&
             model.escapes_spaces && !model.removes_extra_spaces && !model.spaces_end_words && has_space &&
             !has_unused;
  adds_space_ = model.adds_space && model.escapes_spaces && !model.spaces_end_words;
}

/// Whether `text` may be cut before byte `at`: there must be a space that is not its last byte, and no piece
/// may hold this space together with the letter in front of it.
bool SentencePieceTokenizer::is_cut(std::string_view text, size_t at) const {
  if (text[at] != ' ' || at + 1 == text.size()) return false;
  const char before = text[at - 1] == ' ' ? kSpacePiece.back() : text[at - 1];
  return !before_inner_space_.test(static_cast<unsigned char>(before));
}

size_t SentencePieceTokenizer::part_end(std::string_view text, size_t begin) const {
  const size_t rest = text.size() - begin;
  if (rest <= kPartBytes) return text.size();
  if (can_cut_) {
    // A part of one byte could be just the space that for_each_part() leaves out, and would have no ids.
    for (size_t at = begin + kPartBytes; at > begin + 1; --at)
      if (is_cut(text, at)) return at;
    for (size_t at = begin + kPartBytes + 1; at <= begin + std::min(rest - 1, kLongestPartBytes); ++at)
      if (is_cut(text, at)) return at;
  }
  if (rest <= kLongestPartBytes) return text.size();
  throw LongWordError(
      ExitCode::kInputData,
      can_cut_
          ? "a word of over 1 MiB cannot be tokenized"
          : fmt::format("a text of over 1 MiB cannot be tokenized: {} normalizes texts or is no BPE", name_),
      "cut it into shorter ones");
}

/// Calls take(part, begin) for each part of `text` in order; the part begins at byte `begin` of `text`. If
/// the model itself puts a space before each text, every part but the first loses the space at its start.
template <class Take>
void SentencePieceTokenizer::for_each_part(std::string_view text, const Take& take) const {
  for (size_t begin = 0;;) {
    const size_t end = part_end(text, begin);
    const size_t space = begin > 0 && adds_space_ ? 1 : 0;
    std::unique_lock<std::mutex> alone(large_part_, std::defer_lock);
    if (end - begin > 4 * kPartBytes) alone.lock();
    take(text.substr(begin + space, end - begin - space), begin + space);
    if (end == text.size()) return;
    begin = end;
  }
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text,
                                                    std::vector<int32_t> before) const {
  std::vector<std::vector<int>> parts;
  size_t count = before.size();
  for_each_part(text, [&](std::string_view part, size_t) {
    const auto status = processor_->Encode({part.data(), part.size()}, &parts.emplace_back());
    if (!status.ok()) fail(ExitCode::kInputData, "a text cannot be tokenized: {}", sentence(status));
    count += parts.back().size();
  });
  if (before.empty() && parts.size() == 1) return std::move(parts.front());
  before.reserve(count + 1);  // with room for EOS
  for (std::vector<int>& part : parts) {
    before.insert(before.end(), part.begin(), part.end());
    part = {};
  }
  return before;
}

std::vector<SpannedToken> SentencePieceTokenizer::encode_with_spans(std::string_view text) const {
  std::vector<SpannedToken> tokens;
  for_each_part(text, [&](std::string_view part, size_t begin) {
    const auto encoded = processor_->EncodeAsImmutableProto({part.data(), part.size()});
    for (size_t i = 0; i < encoded.pieces_size(); ++i) {
      const auto piece = encoded.pieces(static_cast<int>(i));
      tokens.push_back({static_cast<int32_t>(piece.id()), static_cast<int64_t>(begin + piece.end())});
    }
  });
  return tokens;
}

std::string SentencePieceTokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  const auto status = processor_->Decode(ids, &text);
  if (!status.ok()) fail(ExitCode::kInputData, "tokens cannot be turned into text: {}", sentence(status));
  return text;
}

bool SentencePieceTokenizer::is_special(int32_t id) const {
  return processor_->IsControl(id) || processor_->IsUnknown(id) || processor_->IsUnused(id);
}

std::string_view SentencePieceTokenizer::piece_name(int32_t id) const {
  return processor_->IdToPiece(id);
}

std::string SentencePieceTokenizer::piece_bytes(int32_t id) const {
  const std::string_view name = piece_name(id);
  // A byte piece has a name such as "<0x0A>".
  const bool is_byte = processor_->IsByte(id) && name.size() == 6;
  return is_byte ? std::string(1, static_cast<char>(std::stoi(std::string(name.substr(3, 2)), nullptr, 16)))
                 : replace_all(name, kSpacePiece, " ");
}

}  // namespace ripstop
