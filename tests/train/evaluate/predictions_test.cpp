#include "train/evaluate/predictions.h"

#include <gtest/gtest.h>

#include "data/text/text_lines.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_has.h"

namespace ripstop {
namespace {

const Prediction kFirst{"a1", "a \"quoted\" summary\nof two lines", "what was written", "an article"};
const Prediction kSecond{"b2", "", "r\u00e9f\u00e9rence", ""};

class PredictionFileTest : public testing::Test {
 protected:
  std::string text() { return read_bytes(scratch_ / "evaluation/predictions.jsonl"); }
  PredictionFile open() {
    std::filesystem::create_directories(scratch_ / "evaluation");
    return PredictionFile(scratch_ / "evaluation");
  }
  ScratchDirectory scratch_;
};

TEST_F(PredictionFileTest, GoesOnWhereItStopped) {
  {
    PredictionFile file = open();
    EXPECT_EQ(file.count(), 0);
    file.append(kFirst);
    const std::string fields =
        R"({"example":0,"id":"a1","summary":"a \"quoted\" summary\nof two lines","reference":"what was written","document":"an article","at_limit":false,"hash":")";
    ASSERT_EQ(text().substr(0, fields.size()), fields);
    EXPECT_EQ(text().size(), fields.size() + 32 + 3) << text();
  }
  {
    PredictionFile file = open();
    ASSERT_EQ(file.count(), 1);
    EXPECT_EQ(file.note(), "");
    file.append(kSecond);
  }
  const PredictionFile file = open();
  ASSERT_EQ(file.count(), 2);
  EXPECT_EQ(file.predictions()[0].summary, kFirst.summary);
  EXPECT_EQ(file.predictions()[1].id, "b2");
  EXPECT_EQ(file.predictions()[1].reference, kSecond.reference);
  EXPECT_EQ(read_summaries((scratch_ / "evaluation/predictions.jsonl").string()),
            (std::vector<std::string>{kFirst.summary, ""}));
}

TEST_F(PredictionFileTest, TellsWhetherASummaryEndedAtTheLimit) {
  Prediction cut = kFirst;
  cut.at_limit = true;
  {
    PredictionFile file = open();
    file.append(cut);
    file.append(kSecond);
  }
  const PredictionFile file = open();
  ASSERT_EQ(file.count(), 2);
  EXPECT_TRUE(file.predictions()[0].at_limit);
  EXPECT_FALSE(file.predictions()[1].at_limit);
}

TEST_F(PredictionFileTest, CutsATornLine) {
  {
    PredictionFile file = open();
    file.append(kFirst);
    file.append(kSecond);
  }
  const std::string whole = text();
  // A kill may leave any part of the file. A resumed evaluation must end with the whole file.
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    write_bytes(scratch_ / "evaluation/predictions.jsonl", whole.substr(0, bytes));
    PredictionFile file = open();
    while (file.count() < 2) file.append(file.count() == 0 ? kFirst : kSecond);
    ASSERT_EQ(text(), whole) << bytes << " bytes were there";
    // A torn last line is no damage.
    ASSERT_EQ(file.note(), "");
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "evaluation/predictions.jsonl.damaged"));
}

TEST_F(PredictionFileTest, CutsAtTheFirstLineOutOfOrder) {
  { open(); }
  const std::string second =
      R"({"example":1,"id":"","summary":"","reference":"","document":"","at_limit":false})"
      "\n";
  for (const std::string& lines :
       {second, std::string("{}\n"), std::string("\n"), std::string("[0]\n"),
        "{\"example\":" + deep_list() + "}\n",
        std::string(R"({"example":0,"id":1,"summary":"","reference":"","document":"","at_limit":false})"
                    "\n")}) {
    write_bytes(scratch_ / "evaluation/predictions.jsonl", lines + second);
    const PredictionFile file = open();
    EXPECT_EQ(file.count(), 0) << lines;
    EXPECT_NE(file.note(), "");
    EXPECT_EQ(text(), "");
  }
}

// Removed summaries may have taken hours, so a copy stays.
TEST_F(PredictionFileTest, KeepsACopyOfWhatItDrops) {
  {
    PredictionFile file = open();
    for (int i = 0; i < 4; ++i) file.append(kFirst);
  }
  const std::string whole = text();
  const size_t line = whole.size() / 4;
  // Someone removed the second line.
  const std::string edited = whole.substr(0, line) + whole.substr(2 * line);
  for (const char* name : {"predictions.jsonl.damaged", "predictions.jsonl.damaged.2"}) {
    write_bytes(scratch_ / "evaluation/predictions.jsonl", edited);
    const PredictionFile file = open();
    EXPECT_EQ(file.count(), 1);
    EXPECT_HAS(file.note(),
               "line 2 was changed or removed after it was written: the lines before it are kept");
    EXPECT_TRUE(file.note().ends_with(std::string(" is ") + name)) << file.note();
    EXPECT_EQ(text(), whole.substr(0, line));
    EXPECT_EQ(read_bytes(scratch_ / "evaluation" / name), edited);
  }
}

// Scores must be those of the model's texts.
TEST_F(PredictionFileTest, FindsAnEditedText) {
  {
    PredictionFile file = open();
    for (const Prediction& prediction : {kFirst, kSecond, kFirst}) file.append(prediction);
  }
  const std::string whole = text();
  for (const std::string word : {"what was written", "an article", "a1", "of two lines"}) {
    std::string edited = whole;
    edited.replace(edited.rfind(word), 1, "A");
    ASSERT_NE(edited, whole);
    write_bytes(scratch_ / "evaluation/predictions.jsonl", edited);
    const PredictionFile file = open();
    EXPECT_EQ(file.count(), 2) << word;
    EXPECT_HAS(file.note(), "line 3 was changed");
  }
  // A word moves from one text to the next, which keeps all letters in order.
  write_bytes(scratch_ / "evaluation/predictions.jsonl", whole);
  std::string moved = whole;
  const std::string before = R"(","document":"an article)", after = R"(an","document":" article)";
  moved.replace(moved.find(before), before.size(), after);
  write_bytes(scratch_ / "evaluation/predictions.jsonl", moved);
  EXPECT_EQ(open().count(), 0);
}

// `cp -al` copies a run with hard links.
TEST_F(PredictionFileTest, LeavesALinkedCopyAlone) {
  { open().append(kFirst); }
  const std::string before = text();
  std::filesystem::create_hard_link(scratch_ / "evaluation/predictions.jsonl", scratch_ / "copy.jsonl");
  PredictionFile file = open();
  EXPECT_EQ(file.count(), 1);
  EXPECT_EQ(file.note(), "");
  file.append(kSecond);
  EXPECT_EQ(read_bytes(scratch_ / "copy.jsonl"), before);
  EXPECT_TRUE(text().starts_with(before));
  EXPECT_GT(text().size(), before.size());
}

TEST_F(PredictionFileTest, KeepsWhatTheFileSays) {
  PredictionFile file = open();
  // A model may end in the middle of a UTF-8 character.
  file.append({"a", "half \xE2\x82", "r", "d"});
  EXPECT_EQ(file.predictions()[0].summary, open().predictions()[0].summary);
  EXPECT_EQ(file.predictions()[0].summary, "half \uFFFD");
}

// Another process may write the file, so reading must not cut it.
TEST_F(PredictionFileTest, ReadingChangesNothing) {
  { open().append(kFirst); }
  const std::string torn = text() + R"({"example":1,"id":"b)";
  write_bytes(scratch_ / "evaluation/predictions.jsonl", torn);
  const std::vector<Prediction> read = read_predictions(scratch_ / "evaluation");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].summary, kFirst.summary);
  EXPECT_EQ(read[0].document, kFirst.document);
  EXPECT_EQ(text(), torn);
  EXPECT_TRUE(read_predictions(scratch_ / "absent").empty());
}

}  // namespace
}  // namespace ripstop
