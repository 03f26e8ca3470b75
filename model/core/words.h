#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ripstop {

/// The word for each value of an enum, as configs and messages spell it; empty for types without words.
template <class Enum>
inline constexpr std::array<std::string_view, 0> kWords = {};

template <class T>
concept HasWords = !kWords<T>.empty();

/// Returns the word of the value, such as "auto" or "rougeL".
template <HasWords Enum>
std::string_view to_string(Enum value) {
  return kWords<Enum>[static_cast<size_t>(value)];
}

/// Returns the value that `word` stands for; nullopt if no value has this word.
template <HasWords Enum>
std::optional<Enum> value_of(std::string_view word) {
  const auto found = std::ranges::find(kWords<Enum>, word);
  if (found == kWords<Enum>.end()) return std::nullopt;
  return static_cast<Enum>(found - kWords<Enum>.begin());
}

}  // namespace ripstop
