#include "train/generate/write_texts.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

// BOS, a document of four tokens, a separator of three.
EncodedPrompt example() {
  return {{1, 10, 11, 12, 13, 90, 91, 92}, 5};
}

TEST(StoredPrompt, EndsWhereTheSummaryBegins) {
  const ScratchDirectory scratch;
  {
    TokenDatasetWriter writer(scratch / "test.h5", marked_header(ExampleKind::kSummary));
    writer.add({{1, 10, 11, 90, 20, 21, 2}, {{4, 7, 1, 3}}});
    writer.add({{1, 12, 90, 91, 22, 2}, {{4, 6, 1, 2}}});
    writer.finish();
  }
  const TokenDataset dataset(scratch / "test.h5");
  EXPECT_EQ(stored_prompt(dataset, 0, 100).tokens, (Ids{1, 10, 11, 90}));
  EXPECT_EQ(stored_prompt(dataset, 0, 100).separator_begin, 3);
  EXPECT_EQ(stored_prompt(dataset, 1, 100).tokens, (Ids{1, 12, 90, 91}));
  EXPECT_EQ(stored_prompt(dataset, 1, 100).separator_begin, 2);
  // Each prompt has 4 tokens.
  EXPECT_EQ(count_cut_documents(dataset, 2, 4), 0);
  EXPECT_EQ(count_cut_documents(dataset, 2, 3), 2);
  EXPECT_EQ(count_cut_documents(dataset, 1, 3), 1);
}

TEST(CutDocument, TakesFromItsEndAlone) {
  EncodedPrompt prompt = example();
  EXPECT_EQ(cut_document(prompt, 8), 0);
  EXPECT_EQ(prompt.tokens, example().tokens);
  EXPECT_EQ(cut_document(prompt, 6), 2);
  EXPECT_EQ(prompt.tokens, (Ids{1, 10, 11, 90, 91, 92}));
  EXPECT_EQ(prompt.separator_begin, 3);
  EXPECT_EQ(cut_document(prompt, 4), 2);
  EXPECT_EQ(prompt.tokens, (Ids{1, 90, 91, 92}));
}

TEST(CutDocument, WithoutBosTakesAllOfIt) {
  EncodedPrompt prompt = example();
  prompt.begin_tokens = 0;
  EXPECT_EQ(cut_document(prompt, 3), 5);
  EXPECT_EQ(prompt.tokens, (Ids{90, 91, 92}));
  EXPECT_EQ(prompt.separator_begin, 0);
}

TEST(CutDocument, RefusesToCutTheSeparator) {
  EncodedPrompt prompt = example();
  EXPECT_THROW(cut_document(prompt, 3), Error);
  EXPECT_THROW(cut_document(prompt, -5), Error);
  EXPECT_EQ(prompt.tokens, example().tokens);
}

}  // namespace
}  // namespace ripstop
