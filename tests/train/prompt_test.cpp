#include "train/generate/prompt.h"

#include <gtest/gtest.h>

#include "model/error.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

// BOS 1, a document of four, a separator of three.
Prompt example() {
  return {{1, 10, 11, 12, 13, 90, 91, 92}, 5};
}

TEST(CutDocument, TakesFromItsEndAlone) {
  Prompt prompt = example();
  EXPECT_EQ(cut_document(prompt, 8), 0);
  EXPECT_EQ(prompt.tokens, example().tokens);
  EXPECT_EQ(cut_document(prompt, 6), 2);
  EXPECT_EQ(prompt.tokens, (Ids{1, 10, 11, 90, 91, 92}));
  EXPECT_EQ(prompt.separator_begin, 3);
  EXPECT_EQ(cut_document(prompt, 4), 2);
  EXPECT_EQ(prompt.tokens, (Ids{1, 90, 91, 92}));
}

TEST(CutDocument, RefusesToCutTheSeparator) {
  Prompt prompt = example();
  EXPECT_THROW(cut_document(prompt, 3), Error);
  EXPECT_THROW(cut_document(prompt, -5), Error);
  EXPECT_EQ(prompt.tokens, example().tokens);
}

}  // namespace
}  // namespace ripstop
