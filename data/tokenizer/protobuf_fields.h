#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace ripstop {

/// Iterates over the fields of a message, which must outlive this object, up to the end or the first damage.
/// Source: https://protobuf.dev/programming-guides/encoding/.
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view message) : left_(message) {}

  /// Moves to the next field. Returns false at the end of the message, or if it is damaged.
  bool next() {
    const auto key = varint();
    if (!key) return false;
    number = static_cast<uint32_t>(*key >> 3);
    value = {};
    integer = 0;
    // Wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes. Groups (3, 4) are deprecated.
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
  std::string_view value;  ///< bytes of the value, for wire types 1, 2 and 5
  uint64_t integer = 0;    ///< the value for wire type 0: an integer, a bool or an enum

  /// The value of a field of wire type 5; 0 if the field does not have four bytes.
  float as_float() const {
    static_assert(std::endian::native == std::endian::little);
    float number = 0;
    if (value.size() == sizeof number) std::memcpy(&number, value.data(), sizeof number);
    return number;
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t result = 0;
    // A varint has at most ten bytes.
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      result |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return result;
    }
    return std::nullopt;
  }
  bool take(uint64_t bytes) {
    if (bytes > left_.size()) return false;
    value = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return true;
  }
  std::string_view left_;
};

}  // namespace ripstop
