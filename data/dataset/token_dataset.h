// A data set of token ids in one HDF5 file: its format and the reader.
//
// File format, version 1 (n examples; all 1-D, contiguous, little-endian):
//   /tokens           uint16 | int32  the examples end to end, each BOS ... EOS; uint16: vocabulary <= 65,536
//   /example_offset   int64 [n + 1]   index in /tokens of the first token of example i; [n]: number of tokens
//   /separator_begin  int64 [n]       index of the first token of the separator; tokens before it may be cut
//   /target_begin     int64 [n]       index of the first token whose prediction counts
//   /token_block_hash uint64          XXH3-64 of every 16 KiB of the bytes of /tokens; the last is shorter
//   /text/{id,document,summary}       UTF-8 strings [n], in files made for evaluation
//
// Attributes of the root group, scalar:
//   format_version    int64           1
//   kind              string          "summary" (documents with summaries) or "text" (running text)
//   vocabulary_size   int64           every token is below it
//   tokenizer_sha256  string          SHA-256 of tokenizer.model, 64 hex digits
//   template          string          the prompt, "{document}\n\nTL;DR:" by default
//   separator         string          the part of the template after {document}
//   examples          int64           n
//   tokens            int64           elements of /tokens
//   targets           int64           tokens whose prediction counts, of all examples
//   token_block_bytes int64           16384
//   text_hash         string          XXH3-128 of the texts
//   content_hash      string          XXH3-128 that stands for the whole file
//
// Every example has at least two tokens; separator_begin and target_begin lie after its first token, and
// separator_begin not after target_begin. In a file of kind "text" nothing is cut: separator_begin is the
// example's end, target_begin its second token.
// docs/formats.md says from which bytes the hashes are computed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"
#include "data/hdf5/hdf5.h"

namespace ripstop {

/// The kind of an example: a document with a summary to learn, or running text to learn whole.
enum class ExampleKind { kSummary, kText };
/// The spelling of the attribute `kind`: "summary" or "text".
std::string_view to_string(ExampleKind kind);

/// Facts that all examples of a file share.
struct TokenDatasetHeader {
  ExampleKind kind = ExampleKind::kSummary;
  int64_t vocabulary_size = 0;
  std::string tokenizer_sha256;  ///< of tokenizer.model, 64 hex digits
  std::string prompt_template;   ///< "{document}\n\nTL;DR:"
  std::string separator;         ///< the part of the template after {document}
  bool with_text = false;        ///< the file has /text
};

/// The texts of an example, kept for ROUGE.
struct ExampleText {
  std::string id, document, summary;
};

/// A file open for reading.
///
/// The constructor reads the index into memory (24 bytes an example) and checks it: version, types, monotone
/// offsets, indices inside their example, content hash. If the prepare.json beside the file lists it, the
/// constructor first compares everything but /tokens with the hash listed there: libhdf5 may crash on a
/// damaged file. Main thread only, because it uses libhdf5.
///
/// `read_tokens` may be called from any thread. It uses pread, checks the hash of every block it touches, and
/// checks that ids are below the vocabulary size. Throws Error(kInputData) with the file and what is wrong.
class TokenDataset {
 public:
  explicit TokenDataset(const std::filesystem::path& path);
  ~TokenDataset();
  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const TokenDatasetHeader& header() const { return header_; }
  const std::string& content_hash() const { return content_hash_; }
  int64_t examples() const { return static_cast<int64_t>(separator_begin_.size()); }
  int64_t tokens() const { return example_offset_.back(); }

  /// Indices in /tokens; see the file format.
  int64_t example_begin(int64_t example) const { return example_offset_[static_cast<size_t>(example)]; }
  int64_t example_end(int64_t example) const { return example_offset_[static_cast<size_t>(example) + 1]; }
  int64_t separator_begin(int64_t example) const { return separator_begin_[static_cast<size_t>(example)]; }
  int64_t target_begin(int64_t example) const { return target_begin_[static_cast<size_t>(example)]; }

  /// Reads tokens [begin, end) of /tokens into `out`. Any thread.
  void read_tokens(int64_t begin, int64_t end, int32_t* out) const;
  /// Reads and checks all tokens.
  void verify_tokens() const;

  /// Texts of examples first .. first + count - 1. Main thread only. Throws Error(kInputData) if the file has
  /// none.
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
  std::optional<Hdf5File> hdf5_;  // kept for /text alone
};

/// XXH3-128 of a data set file without bytes [tokens_offset, tokens_offset + tokens_bytes): /tokens has
/// hashes of its own. prepare.json lists it.
std::string hash_outside(const InputFile& file, int64_t tokens_offset, int64_t tokens_bytes);

}  // namespace ripstop
