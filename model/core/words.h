// The words of enums, as config files and JSON spell them.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace ripstop {

/// The words in the order of the enum's values; empty for types without words.
template <class Enum>
inline constexpr std::array<std::string_view, 0> kWords = {};

template <class T>
concept HasWords = !kWords<T>.empty();

/// Returns the word of the value, such as "auto" or "rougeL".
template <HasWords Enum>
std::string_view to_string(Enum value) {
  return kWords<Enum>[static_cast<size_t>(value)];
}

}  // namespace ripstop
