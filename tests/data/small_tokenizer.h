// A tokenizer of 400 pieces, trained once in a test program.
#pragma once
#include <random>
#include <string>
#include <vector>

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

}  // namespace ripstop
