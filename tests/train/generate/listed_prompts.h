// A list of prompts, for tests of generation.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "train/generate/generate.h"

namespace ripstop {

/// A NextPrompt that returns the prompts in order, numbered from `first_number` on.
class ListedPrompts {
 public:
  explicit ListedPrompts(std::vector<std::vector<int32_t>> prompts, int64_t first_number = 1)
      : prompts_(std::move(prompts)), first_number_(first_number) {}

  std::optional<NumberedPrompt> operator()() {
    if (given_ == prompts_.size()) return std::nullopt;
    const int64_t number = first_number_ + static_cast<int64_t>(given_);
    return NumberedPrompt{prompts_[given_++], number};
  }

 private:
  std::vector<std::vector<int32_t>> prompts_;
  int64_t first_number_;
  size_t given_ = 0;
};

}  // namespace ripstop
