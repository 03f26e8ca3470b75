// The constants and the hash of the data set format that writer and reader share. token_dataset.h describes
// the format.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "data/dataset/token_dataset.h"

namespace ripstop {

/// Attribute format_version.
constexpr int64_t kTokenDatasetVersion = 1;

/// Attribute token_block_bytes: bytes of /tokens that share a hash. A read checks whole blocks, so a block is
/// small; 8 bytes of hash for 16 KiB of tokens are 0.05 %.
constexpr int64_t kTokenBlockBytes = 16384;

/// The arrays of strings below /text.
constexpr std::array<const char*, 3> kTextFields = {"id", "document", "summary"};

/// Bytes of one token in /tokens.
constexpr int64_t token_bytes(int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? 2 : 4;
}

/// Attribute content_hash. `parts` are the hashes of the bytes of example_offset, separator_begin,
/// target_begin and token_block_hash; `text_hash` is the attribute.
std::string content_hash(const TokenDatasetHeader& header, const std::array<std::string, 4>& parts,
                         const std::string& text_hash);

}  // namespace ripstop
