// Hashes: XXH3 to find damage and duplicates, SHA-256 to identify a tokenizer.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ripstop {

/// XXH3-64 of `bytes` bytes.
uint64_t hash64(const void* data, int64_t bytes);

/// XXH3-128 of bytes that are given in parts.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;

  void update(const void* data, int64_t bytes);
  void update(std::string_view text) { update(text.data(), static_cast<int64_t>(text.size())); }
  /// The hash of everything so far, as 32 hex digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// SHA-256 of `bytes` as 64 hex digits. Source: FIPS 180-4.
std::string sha256_hex(std::string_view bytes);

}  // namespace ripstop
