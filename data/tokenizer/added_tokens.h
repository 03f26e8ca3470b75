#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/traced_text.h"

namespace ripstop {

/// An entry of `added_tokens` in a tokenizer.json.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  ///< found only where no word letter stands next to it
  bool lstrip = false;       ///< includes the white space before it
  bool rstrip = false;       ///< includes the white space after it
  bool normalized = false;   ///< searched for in the normalized text
  bool special = false;      ///< found only if special tokens are wanted
  std::string spelling;      ///< text to search for and to decode to: `content`, or its normalized form
};

/// The tokens that are found in a text before it is cut into words.
class AddedTokens {
 public:
  /// Throws Error(kInputData) if a spelling is empty or belongs to two tokens with equal `normalized`.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  const std::vector<AddedToken>& all() const { return tokens_; }
  /// The token with this content or id; nullptr if there is none.
  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(int32_t id) const;
  /// Cuts tokens whose AddedToken::normalized equals `normalized` out of the text pieces of `text`. Where
  /// several tokens begin, the longest counts. Special tokens stay text unless `with_special`.
  void split(bool normalized, bool with_special, TracedText& text) const;
  /// All tokens and their flags, as one text.
  std::string identity() const;

 private:
  /// Indices of tokens, sorted by spelling, and the first bytes of the spellings.
  struct Search {
    std::vector<size_t> sorted;
    std::bitset<256> first_bytes;
  };
  const AddedToken* longest_at(const Search& search, std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<size_t> by_content_, by_id_;  // indices, sorted
  std::array<Search, 2> searches_;          // [0]: in the text as it is; [1]: in the normalized text
};

}  // namespace ripstop
