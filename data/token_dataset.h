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
// Attributes: format_version, kind ("summary" or "text"), vocabulary_size, tokenizer_sha256, template,
// separator, examples, tokens, targets, token_block_bytes, text_hash, content_hash (XXH3-128 of everything
// above). In a file of kind "text" nothing is cut: separator_begin is the example's end, target_begin its
// second token.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/file.h"
#include "data/hdf5.h"

namespace ripstop {

/// What an example is: a document with a summary to learn, or running text to learn whole.
enum class ExampleKind { kSummary, kText };
/// As the attribute `kind` spells it: "summary" or "text".
std::string_view to_string(ExampleKind kind);

/// What all examples of a file share.
struct TokenDatasetHeader {
  ExampleKind kind = ExampleKind::kSummary;
  int64_t vocabulary_size = 0;
  std::string tokenizer_sha256;  ///< of tokenizer.model, 64 hex digits
  std::string prompt_template;   ///< "{document}\n\nTL;DR:"
  std::string separator;         ///< what follows {document} in the template
  bool with_text = false;        ///< /text is there
};

/// The words of an example, kept for ROUGE.
struct ExampleText {
  std::string id, document, summary;
};

/// A file open for reading. The constructor runs on the main thread (it is where libhdf5 is used), reads the
/// index into memory (24 bytes an example) and checks it: version, types, monotone offsets, places inside
/// their example, content hash. `read_tokens` may be called from any thread: it uses pread, checks the hash
/// of every block it touches and that ids lie below the vocabulary size. Where a prepare.json beside the file
/// lists it, everything but /tokens is compared with the hash listed there before libhdf5 sees the file.
/// Throws Error(kInputData) with the file and what is wrong.
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

  /// Places in /tokens; see the file format.
  int64_t example_begin(int64_t example) const { return example_offset_[static_cast<size_t>(example)]; }
  int64_t example_end(int64_t example) const { return example_offset_[static_cast<size_t>(example) + 1]; }
  int64_t separator_begin(int64_t example) const { return separator_begin_[static_cast<size_t>(example)]; }
  int64_t target_begin(int64_t example) const { return target_begin_[static_cast<size_t>(example)]; }

  /// Tokens [begin, end) of /tokens into `out`. Any thread.
  void read_tokens(int64_t begin, int64_t end, int32_t* out) const;
  /// Reads and checks all tokens.
  void verify_tokens() const;

  /// Words of examples first .. first + count - 1. Main thread only; refused where the file has none.
  std::vector<ExampleText> text(int64_t first, int64_t count) const;

 private:
  void read_header(const Hdf5File& hdf5);
  void read_index(const Hdf5File& hdf5);
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

/// The hash of a data set file without the bytes of /tokens (those have hashes of their own), as prepare.json
/// lists it: XXH3-128 of the file with [tokens_offset, tokens_offset + tokens_bytes) left out.
std::string hash_outside(const InputFile& file, int64_t tokens_offset, int64_t tokens_bytes);

}  // namespace ripstop
