// A tokenizer of 400 pieces, trained once in a test program.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

inline std::string train_small_model() {
  const std::vector<std::string> words = {"the",     "harbour", "opened",  "closed", "on",   "Monday",
                                          "Tuesday", "police",  "council", "said",   "that", "a",
                                          "bridge",  "market",  "near",    "old",    "new",  "A",
                                          "summary", "The",     "document"};
  std::mt19937 random(1);
  int left = 400;
  return train_tokenizer(
      [&](std::string& line) {
        line.clear();
        for (int i = 0; i < 12; ++i) line += (i ? " " : "") + words[random() % words.size()];
        line += " " + std::to_string(random() % 1000) + ".";
        return left-- > 0;
      },
      400);
}

inline const std::string& small_model() {
  static const std::string model = train_small_model();
  return model;
}

/// small_model() with further pieces, each a text of at most 100 bytes that is always one token.
inline std::string small_model_with(const std::vector<std::string>& pieces) {
  std::string model = small_model();
  for (const std::string& piece : pieces) {
    const std::string text = std::string("\x0a") + static_cast<char>(piece.size()) + piece;
    const std::string fields = text + std::string("\x15\0\0\0\0", 5) + "\x18\x04";  // score 0, user-defined
    model += std::string("\x0a") + static_cast<char>(fields.size()) + fields;
  }
  return model;
}

/// The header of a data set of this tokenizer, without prompt and texts.
inline TokenDatasetHeader header_of(const Tokenizer& tokenizer) {
  TokenDatasetHeader header;
  header.vocabulary_size = tokenizer.vocabulary_size();
  header.tokenizer_sha256 = tokenizer.sha256();
  return header;
}

}  // namespace ripstop
