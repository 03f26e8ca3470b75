// Data sets of token ids in HDF5 files. docs/formats.md describes the format, version 3.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"
#include "data/hdf5/hdf5.h"
#include "model/core/words.h"

namespace ripstop {

inline constexpr int64_t kTokenDatasetVersion = 3;

/// Bytes of /tokens that share one hash. Each read checks whole blocks, so blocks are small; their hashes
/// enlarge the file by 0.05 %.
inline constexpr int64_t kTokenBlockBytes = 16384;

/// Upper bound of TokenDatasetHeader::begin_tokens, far above what tokenizers have.
inline constexpr int64_t kMostBeginTokens = 16;

/// Bytes of one token in /tokens.
constexpr int64_t token_bytes(int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? 2 : 4;
}

enum class ExampleKind { kSummary, kText, kConversation };
template <>
inline constexpr std::array<std::string_view, 3> kWords<ExampleKind> = {"summary", "text", "conversation"};

/// Consecutive targets, and the text before them that may be cut. Indices count from the example's begin.
///
/// A pair has one span: the summary as targets, the document to cut. Running text has one span, with nothing
/// to cut. A conversation has a span for each turn of the assistant, with the text of the user's turn before
/// it to cut; in a turn that does not count, both ends of the targets are at the turn's end.
struct TargetSpan {
  int32_t target_begin = 0, target_end = 0;
  int32_t cut_begin = 0, cut_end = 0;  ///< cut_end <= target_begin; tokens at the end are cut first
  friend bool operator==(const TargetSpan&, const TargetSpan&) = default;
};

/// Whether an example of `count` tokens may have these spans: one or more, ascending, inside the example,
/// without token 0 as target. A pair or running text must have one span with targets, up to the end.
bool are_valid(ExampleKind kind, std::span<const TargetSpan> spans, int64_t count);

/// Facts that all examples of a file share.
struct TokenDatasetHeader {
  ExampleKind kind = ExampleKind::kSummary;
  int64_t vocabulary_size = 0;
  std::string tokenizer_sha256;       ///< Tokenizer::sha256
  int64_t begin_tokens = 1;           ///< size of Tokenizer::begin; a chat template may begin otherwise
  int64_t end_token = 2;              ///< EOS, the last token of each example without a chat template
  bool reads_special_tokens = false;  ///< Tokenizer::reads_special_tokens
  std::string prompt_template;        ///< such as "{document}\n\nTL;DR:"
  std::string separator;              ///< part of the template after {document}
  std::string chat_template;          ///< name of the chat template of prompts; "" for none
  std::string chat_date;              ///< TokenizerChoice::chat_date
  std::string why_only_last;  ///< why only last turns of the assistant have right targets; "" if all have
  bool with_text = false;     ///< the file has /text
  /// Whether the file has texts with which generated texts can be compared.
  bool has_references() const { return kind != ExampleKind::kText && with_text; }
};

/// Texts of an example, which ROUGE needs.
struct ExampleText {
  std::string id, document, summary;
  std::string messages = {};  ///< JSON of a conversation (text_of_conversation); else empty
};
/// An array of the group /text.
struct TextField {
  const char* name;
  std::string ExampleText::*member;
};
/// The arrays of the group /text in a file of `kind`.
std::span<const TextField> text_fields(ExampleKind kind);

/// The arrays of the index in the order of content_hash().
inline constexpr std::array<const char*, 8> kIndexArrays = {
    "example_offset", "target_offset", "target_begin", "target_end",
    "cut_begin",      "cut_end",       "turn_begin",   "token_block_hash"};

/// The attribute content_hash. `parts`: hashes of the bytes of kIndexArrays.
std::string content_hash(const TokenDatasetHeader& header, std::span<const std::string> parts,
                         const std::string& text_hash);

/// A data set open for reading. All members throw Error(kInputData), or Error(kStorage) if a read fails, with
/// the name of the file.
///
/// The constructor reads the index into memory (24 bytes an example; for a conversation 16, 8 a turn, and 16
/// more a turn of the assistant) and checks version, types, offsets, content hash. Before that, it compares
/// hash_outside() with prepare.json beside the file, if there is one: libhdf5 may crash on a damaged file.
/// Only the main thread may make or destroy it or call text() (Hdf5File).
class TokenDataset {
 public:
  explicit TokenDataset(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const TokenDatasetHeader& header() const { return header_; }
  const std::string& content_hash() const { return content_hash_; }
  int64_t examples() const { return static_cast<int64_t>(example_offset_.size()) - 1; }
  int64_t tokens() const { return example_offset_.back(); }

  /// Indices in /tokens: begin and end of an example, and the two places below.
  int64_t example_begin(int64_t example) const { return example_offset_[static_cast<size_t>(example)]; }
  int64_t example_end(int64_t example) const { return example_offset_[static_cast<size_t>(example) + 1]; }
  /// The first target of the last span.
  int64_t target_begin(int64_t example) const {
    return example_begin(example) + spans(example).back().target_begin;
  }
  /// The end of the last span's text to cut: in a pair, the first token of the separator.
  int64_t separator_begin(int64_t example) const {
    return example_begin(example) + spans(example).back().cut_end;
  }
  /// The spans of an example: one or more, ascending.
  std::span<const TargetSpan> spans(int64_t example) const;
  /// The number of turns that begin in tokens [begin, end) of /tokens. A leading system message is no turn.
  int64_t turns(int64_t begin, int64_t end) const;
  /// Tokens of a conversation before its first turn: begin tokens and a system message. 0 for other kinds.
  int64_t head(int64_t example) const;

  /// Reads tokens [begin, end) of /tokens into `out`, on any thread, with pread. Throws if the hash of a
  /// block is wrong, or if an id is not below the vocabulary size.
  void read_tokens(int64_t begin, int64_t end, int32_t* out) const;

  /// Texts of examples first .. first + count - 1. Throws if the file has no texts.
  std::vector<ExampleText> text(int64_t first, int64_t count) const;

 private:
  void read_header(const Hdf5File& hdf5);
  std::vector<std::string> read_index(const Hdf5File& hdf5);
  void check_sizes(const Hdf5File& hdf5);
  void check_examples() const;
  void check_target_offsets(int64_t spans);
  void take_places(const char* array_name, const std::vector<int64_t>& places, int32_t TargetSpan::*member);
  void check_spans() const;
  void read_block(int64_t block, std::string& bytes) const;

  std::filesystem::path path_;
  TokenDatasetHeader header_;
  std::string content_hash_;
  std::vector<int64_t> example_offset_, turn_begin_;
  std::vector<int64_t> target_offset_;  // empty unless the examples are conversations
  std::vector<TargetSpan> spans_;
  std::vector<uint64_t> block_hash_;
  int64_t token_bytes_ = 2, tokens_offset_bytes_ = 0;
  std::optional<InputFile> file_;
  std::optional<Hdf5File> hdf5_;  // open only for a file with /text
};

/// XXH3-128 of a data set file without the bytes of its tokens, whose blocks have hashes of their own.
std::string hash_outside(const InputFile& file, int64_t tokens_offset, int64_t tokens_bytes);

}  // namespace ripstop
