// ProtobufFields: walks a protobuf message without its library, for the few fields that ripstop reads itself.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace ripstop {

/// The fields of a message, one after the other. Stops at the first byte that cannot be one. Refers to the
/// message. Source: https://protobuf.dev/programming-guides/encoding/.
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view message) : left_(message) {}

  /// Moves to the next field; false at the end or at damage.
  bool next() {
    const auto key = varint();
    if (!key) return false;
    number = static_cast<uint32_t>(*key >> 3);
    value = {};
    integer = 0;
    // Wire types: 0 varint, 1 eight bytes, 2 with a length, 5 four bytes. Groups (3, 4) are out of use.
    switch (*key & 7) {
      case 0: {
        const auto read = varint();
        integer = read.value_or(0);
        return read.has_value();
      }
      case 1:
        return take(8);
      case 2: {
        const auto length = varint();
        return length && take(*length);
      }
      case 5:
        return take(4);
      default:
        return false;
    }
  }

  uint32_t number = 0;
  std::string_view value;  ///< the bytes of a field with a length, or of a fixed size
  uint64_t integer = 0;    ///< of a varint: an integer, a bool, an enum

  /// The number that a field of four bytes holds; 0 if it is no such field.
  float as_float() const {
    static_assert(std::endian::native == std::endian::little);
    float number = 0;
    if (value.size() == sizeof number) std::memcpy(&number, value.data(), sizeof number);
    return number;
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t result = 0;
    // A varint has at most ten bytes. A longer one would shift past 64 bits.
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      result |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return result;
    }
    return std::nullopt;
  }
  // A length comes from the file: compare it with what is left before it is used.
  bool take(uint64_t bytes) {
    if (bytes > left_.size()) return false;
    value = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return true;
  }
  std::string_view left_;
};

}  // namespace ripstop
