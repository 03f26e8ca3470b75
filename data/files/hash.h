// XXH3 finds damage and duplicates, SHA-256 identifies files and texts, CRC-32 checks files in ZIP archives.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;  // declared by xxHash

namespace ripstop {

/// XXH3-64.
uint64_t hash64(const void* data, int64_t bytes);
inline uint64_t hash64(std::string_view text) {
  return hash64(text.data(), std::ssize(text));
}

/// XXH3-128 of a stream of bytes.
class StreamHash {
 public:
  StreamHash();
  void update(const void* data, int64_t bytes);
  void update(std::string_view text) { update(text.data(), static_cast<int64_t>(text.size())); }
  /// 32 hex digits.
  std::string hex() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

/// The CRC-32 (as in ZIP archives) of earlier bytes, whose CRC-32 is `before`, followed by `bytes`. Source:
/// PKWARE's APPNOTE.TXT, 4.4.7.
uint32_t crc32(std::string_view bytes, uint32_t before = 0);

/// SHA-256 as 64 hex digits. Source: FIPS 180-4.
std::string sha256_hex(std::string_view bytes);

}  // namespace ripstop
