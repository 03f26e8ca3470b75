// Data sets of token ids in HDF5 files. docs/formats.md describes the format, version 3.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"
#include "data/hdf5/hdf5.h"

namespace ripstop {

inline constexpr int64_t kTokenDatasetVersion = 3;

/// Bytes of /tokens that share one hash. Each read checks whole blocks, so blocks are small; their hashes
/// enlarge the file by 0.05 %.
inline constexpr int64_t kTokenBlockBytes = 16384;

/// Names of the arrays in the group /text.
inline constexpr std::array<const char*, 3> kTextFields = {"id", "document", "summary"};

/// Upper bound of TokenDatasetHeader::begin_tokens, far above what tokenizers have.
inline constexpr int64_t kMostBeginTokens = 16;

/// Bytes of one token in /tokens.
constexpr int64_t token_bytes(int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? 2 : 4;
}

enum class ExampleKind { kSummary, kText };
/// "summary" or "text".
std::string_view to_string(ExampleKind kind);

/// Facts that all examples of a file share.
struct TokenDatasetHeader {
  ExampleKind kind = ExampleKind::kSummary;
  int64_t vocabulary_size = 0;
  std::string tokenizer_sha256;       ///< Tokenizer::sha256
  int64_t begin_tokens = 1;           ///< tokens with which each example begins: Tokenizer::begin
  int64_t end_token = 2;              ///< the last token of each example
  bool reads_special_tokens = false;  ///< Tokenizer::reads_special_tokens
  std::string prompt_template;        ///< such as "{document}\n\nTL;DR:"
  std::string separator;              ///< part of the template after {document}
  std::string chat_template;          ///< name of the template of conversations; "" for none
  std::string chat_date;              ///< the date that `chat_template` writes; "" for none
  bool with_text = false;             ///< the file has /text
};

/// Texts of an example, which ROUGE needs.
struct ExampleText {
  std::string id, document, summary;
};

/// The attribute content_hash. `parts`: hashes of the bytes of example_offset, separator_begin, target_begin
/// and token_block_hash.
std::string content_hash(const TokenDatasetHeader& header, const std::array<std::string, 4>& parts,
                         const std::string& text_hash);

/// A data set open for reading. All members throw Error(kInputData), or Error(kStorage) if a read fails, with
/// the name of the file.
///
/// The constructor reads the index into memory (24 bytes an example) and checks version, types, offsets and
/// content hash. Before that, it compares hash_outside() with the hash in a prepare.json beside the file, if
/// there is one, because libhdf5 may crash on a damaged file. Main thread only, because of libhdf5, except
/// for read_tokens().
class TokenDataset {
 public:
  explicit TokenDataset(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const TokenDatasetHeader& header() const { return header_; }
  const std::string& content_hash() const { return content_hash_; }
  int64_t examples() const { return static_cast<int64_t>(separator_begin_.size()); }
  int64_t tokens() const { return example_offset_.back(); }

  /// Places in an example, as indices in /tokens.
  int64_t example_begin(int64_t example) const { return example_offset_[static_cast<size_t>(example)]; }
  int64_t example_end(int64_t example) const { return example_offset_[static_cast<size_t>(example) + 1]; }
  int64_t separator_begin(int64_t example) const { return separator_begin_[static_cast<size_t>(example)]; }
  int64_t target_begin(int64_t example) const { return target_begin_[static_cast<size_t>(example)]; }

  /// Reads tokens [begin, end) of /tokens into `out`, on any thread, with pread. Throws if the hash of a
  /// block is wrong, or if an id is not below the vocabulary size.
  void read_tokens(int64_t begin, int64_t end, int32_t* out) const;

  /// Texts of examples first .. first + count - 1. Throws if the file has no texts.
  std::vector<ExampleText> text(int64_t first, int64_t count) const;

 private:
  void read_header(const Hdf5File& hdf5);
  void read_index(const Hdf5File& hdf5);
  bool is_in_order(int64_t example) const;
  void check_index() const;
  void check_content_hash(const Hdf5File& hdf5) const;
  void read_block(int64_t block, std::string& bytes) const;

  std::filesystem::path path_;
  TokenDatasetHeader header_;
  std::string content_hash_;
  std::vector<int64_t> example_offset_, separator_begin_, target_begin_;
  std::vector<uint64_t> block_hash_;
  int64_t token_bytes_ = 2, tokens_offset_bytes_ = 0;
  std::optional<InputFile> file_;
  std::optional<Hdf5File> hdf5_;  // open only for a file with /text
};

/// XXH3-128 of a data set file without the bytes of its tokens, whose blocks have hashes of their own.
/// prepare.json lists this hash.
std::string hash_outside(const InputFile& file, int64_t tokens_offset, int64_t tokens_bytes);

}  // namespace ripstop
