#include "data/dataset/dataset_directory.h"

#include <gtest/gtest.h>

#include "data/dataset/prompt_template.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

template <class Action>
std::string refusal(Action&& action) {
  return what_and_hint_of(action, ExitCode::kInputData);
}

class DatasetDirectory : public testing::Test {
 protected:
  DatasetDirectory() { write_bytes(scratch_ / "tokenizer.model", small_model()); }

  /// A data set whose i-th example has the summary texts[i] in its targets and stored[i] as its text.
  TokenDataset write(const std::vector<std::string>& texts, const std::vector<std::string>& stored,
                     int64_t more_pieces = 0, char sha256 = '\0') {
    const PromptTemplate prompt(tokenizer_, std::string(kDefaultTemplate));
    TokenDatasetHeader header;
    header.vocabulary_size = tokenizer_.vocabulary_size() + more_pieces;
    header.tokenizer_sha256 = sha256 == '\0' ? tokenizer_.sha256() : std::string(64, sha256);
    header.prompt_template = prompt.text();
    header.separator = prompt.separator();
    header.with_text = true;
    TokenDatasetWriter writer(scratch_ / "test.h5", header);
    for (size_t i = 0; i < texts.size(); ++i) {
      const ExampleText text{fmt::format("id{}", i), "The document.", stored[i]};
      writer.add(prompt.encode_pair(text.document, texts[i]), &text);
    }
    writer.finish();
    return TokenDataset(scratch_ / "test.h5");
  }
  ScratchDirectory scratch_;
  const Tokenizer tokenizer_{small_model(), "small"};
};

TEST_F(DatasetDirectory, ItsFilesAreFoundOrTheCommandThatMakesThemIsNamed) {
  EXPECT_EQ(dataset_file(scratch_.path(), "tokenizer.model"), scratch_ / "tokenizer.model");
  const std::string absent = refusal([] { dataset_file("no/such/set", "train.h5"); });
  EXPECT_HAS(absent, "no/such/set: there is no such directory, looked for " +
                         (std::filesystem::current_path() / "no/such/set").string());
  EXPECT_HAS(absent, "| ripstop prepare --output no/such/set makes one");
  EXPECT_HAS(absent, "counts from the current directory");
  const std::string file = refusal([&] { dataset_file(scratch_ / "tokenizer.model", "train.h5"); });
  EXPECT_HAS(file, "a file, expected a data set's directory");
  EXPECT_HAS(file, "| ripstop prepare --output DIR --input ");
  const std::string inside = refusal([&] { dataset_file(scratch_ / "tokenizer.model", "tokenizer.model"); });
  EXPECT_HAS(inside, "| did you mean " + scratch_.path().string() + "?");
  const std::string other = refusal([&] { dataset_file(scratch_.path(), "train.h5"); });
  EXPECT_HAS(other, "there is no train.h5 in this directory");
}

TEST_F(DatasetDirectory, AnotherTokenizerIsRefusedWithTheFix) {
  require_dataset_tokenizer(write({"A summary."}, {"A summary."}), tokenizer_);
  std::filesystem::remove(scratch_ / "test.h5");
  const TokenDataset other = write({"A summary."}, {"A summary."}, 0, 'a');
  const std::string found = refusal([&] { require_dataset_tokenizer(other, Tokenizer(scratch_.path())); });
  EXPECT_HAS(found, "test.h5 was made with another tokenizer (SHA-256 aaaaaaaaaaaa..) than " +
                        (scratch_ / "tokenizer.model").string());
  EXPECT_HAS(found, "prepare the data set again with --tokenizer");
}

// Only another program writes such a file: prepare takes the number from the tokenizer.
TEST_F(DatasetDirectory, AVocabularyThatTheTokenizerLacksIsRefused) {
  const TokenDataset dataset = write({"A summary."}, {"A summary."}, 7);
  const std::string found = refusal([&] { require_dataset_tokenizer(dataset, tokenizer_); });
  EXPECT_HAS(found, "test.h5 states a vocabulary of 407, small has 400 pieces");
}

TEST_F(DatasetDirectory, SwappedSummariesAreNoticed) {
  const std::vector<std::string> texts = {"The market closed.", "The bridge — “old”.", "The harbour opened."};
  const TokenDataset good = write(texts, texts);
  EXPECT_EQ(checked_text(good, tokenizer_, 1, 2).at(1).summary, "The harbour opened.");
  std::filesystem::remove(scratch_ / "test.h5");
  const TokenDataset swapped = write(texts, {texts[0], texts[2], texts[1]});
  EXPECT_EQ(checked_text(swapped, tokenizer_, 0, 1).at(0).id, "id0");
  const std::string found = refusal([&] { checked_text(swapped, tokenizer_, 0, 3); });
  EXPECT_HAS(found, "the summary of example 1 ('id1') is not the text of its targets");
}

}  // namespace
}  // namespace ripstop
