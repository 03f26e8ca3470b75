#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"

namespace ripstop {

/// The tokens of an example. Indices count from the example's first token.
struct TokenExample {
  std::vector<int32_t> tokens;
  std::vector<TargetSpan> spans;         ///< are_valid() must hold
  std::vector<int64_t> turn_begin = {};  ///< for a conversation: the first token of each turn
  std::string why_only_last = {};        ///< for a conversation: TokenDatasetHeader::why_only_last

  int64_t targets() const;
};

/// Writes a data set to one HDF5 file in bounded memory: add() writes to spool files beside `path`, and
/// finish() assembles them. Main thread only. Throws Error(kStorage).
class TokenDatasetWriter {
 public:
  TokenDatasetWriter(const std::filesystem::path& path, TokenDatasetHeader header);
  ~TokenDatasetWriter();
  TokenDatasetWriter(const TokenDatasetWriter&) = delete;
  TokenDatasetWriter& operator=(const TokenDatasetWriter&) = delete;

  /// Adds an example. The header takes the first why_only_last that is not empty. `text` must be given if the
  /// header has with_text, and must be null otherwise.
  void add(const TokenExample& example, const ExampleText* text = nullptr);
  int64_t examples() const;
  int64_t tokens() const;
  /// Assembles and syncs the file, then removes the spool files. Returns the content hash.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
