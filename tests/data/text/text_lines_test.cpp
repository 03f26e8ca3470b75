#include "data/text/text_lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "model/core/error.h"
#include "tests/data/compressed_files.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

using Texts = std::vector<std::string>;

class TextLinesTest : public testing::Test {
 protected:
  std::string file(const std::string& bytes) {
    write_bytes(scratch_ / "texts", bytes);
    return (scratch_ / "texts").string();
  }
  // The message with which `bytes` are refused; "" if they are accepted.
  std::string refusal(const std::string& bytes) {
    const std::string what = what_of([&] { read_summaries(file(bytes)); }, ExitCode::kInputData);
    return what.empty() ? "" : what.substr(scratch_.path().string().size() + 1);
  }
  ScratchDirectory scratch_;
};

TEST_F(TextLinesTest, PlainLinesAreTexts) {
  EXPECT_EQ(read_summaries(file("one\ntwo words\n\nfour")), (Texts{"one", "two words", "", "four"}));
  EXPECT_EQ(read_summaries(file("\xEF\xBB\xBFone\r\ntwo\r\n")), (Texts{"one", "two"}));
  EXPECT_EQ(read_summaries(file("\n\n")), (Texts{"", ""}));
  EXPECT_EQ(read_summaries(file("{ is how it begins\nplain")), (Texts{"{ is how it begins", "plain"}));
}

TEST_F(TextLinesTest, JsonObjectsHoldASummary) {
  EXPECT_EQ(read_summaries(
                file("\n{\"summary\": \"a\\u00e9\", \"id\": 1}\n\n  {\"id\": 2, \"summary\": \"\"}\n \n")),
            (Texts{"a\u00e9", ""}));
  EXPECT_EQ(read_summaries(file("{\"score\": NaN, \"summary\": \"NaN\"}\n")), Texts{"NaN"});
  Texts ids;
  read_summaries(file(R"({"id": 123456789012345678901234, "summary": ""})"
                      "\n"
                      R"({"summary": "", "id": "\u0061"})"
                      "\n{\"summary\": \"\", \"id\":1.50}\n"),
                 &ids);
  EXPECT_EQ(ids, (Texts{"123456789012345678901234", "\"a\"", "1.50"}));
  read_summaries(file("{\"summary\": \"\", \"id\": " + deep_list() + "}\n"), &ids);
  EXPECT_EQ(ids.back(), deep_list());
}

TEST_F(TextLinesTest, AFileMayBeCompressed) {
  write_gzip(scratch_ / "texts.jsonl.gz", "{\"summary\": \"one\"}\n{\"summary\": \"two\"}\n");
  EXPECT_EQ(read_summaries((scratch_ / "texts.jsonl.gz").string()), (Texts{"one", "two"}));
  write_gzip(scratch_ / "texts.gz", "\xEF\xBB\xBFone\r\n\ntwo");
  EXPECT_EQ(read_summaries((scratch_ / "texts.gz").string()), (Texts{"one", "", "two"}));
  write_gzip(scratch_ / "bad.gz", "good\nbad \xC3\n");
  EXPECT_THROW(read_summaries((scratch_ / "bad.gz").string()), Error);
}

// A pipe gives each line before the next is written: people type into summarize.
TEST_F(TextLinesTest, APipeGivesEachLineWhenItIsThere) {
  const std::string path = (scratch_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  // O_RDWR, so that opening does not wait for the reader.
  const int pipe = open(path.c_str(), O_RDWR);
  ASSERT_GE(pipe, 0);
  const auto send = [&](const std::string& text) {
    return write(pipe, text.data(), text.size()) == std::ssize(text);
  };
  ASSERT_TRUE(send("1\n"));
  TextLines lines(path);
  std::string line;
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "1");
  ASSERT_TRUE(send("2\nthe rest"));
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "2");
  EXPECT_EQ(lines.number(), 2);
  close(pipe);
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "the rest");
  EXPECT_FALSE(lines.next(line));
}

// A bad line ends the reading at once, even if the writer keeps its end open.
TEST_F(TextLinesTest, APipeIsLeftWithoutWaitingForItsWriter) {
  const std::string path = (scratch_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int pipe = open(path.c_str(), O_RDWR);
  ASSERT_GE(pipe, 0);
  const std::string bad = "bad \xC3\n";
  ASSERT_EQ(write(pipe, bad.data(), bad.size()), std::ssize(bad));
  {
    TextLines lines(path);
    std::string line;
    EXPECT_THROW(lines.next(line), Error);
  }
  close(pipe);  // reached only if the reader did not wait
}

TEST_F(TextLinesTest, AnEmptyPipeHasNoLine) {
  const std::string path = (scratch_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { close(open(path.c_str(), O_WRONLY)); });
  TextLines lines(path);
  writer.join();
  std::string line;
  EXPECT_FALSE(lines.next(line));
}

TEST_F(TextLinesTest, WhatDoesNotFitIsRefusedWithItsLine) {
  EXPECT_EQ(refusal("{\"summary\": \"a\"}\nplain\n"), "texts:2: not a JSON object");
  EXPECT_EQ(refusal("{\"summary\": \"a\"}\n[1]\n"), "texts:2: not a JSON object");
  EXPECT_EQ(refusal("\n{\"text\": \"a\", \"" + std::string(50, 'x') + "\\n\": 1}\n"),
            "texts:2: no field 'summary'; the line has text, " + std::string(40, 'x') + "...");
  EXPECT_EQ(refusal("{\"summary\": 3}\n"), "texts:1: 'summary' is of type number, expected a string");
  EXPECT_EQ(refusal("good\nbad \xC3\n"), "texts:2: invalid UTF-8 at byte 5");
  EXPECT_EQ(refusal("{\"summary\": \"\xFF\"}\n"), "texts:1: invalid UTF-8 at byte 14");
  EXPECT_EQ(refusal(""), "texts has no text");
  EXPECT_EQ(refusal(std::string(100000, '[') + "\n"), "");
  EXPECT_THROW(read_summaries((scratch_ / "absent").string()), Error);
  EXPECT_THROW(read_summaries(scratch_.path().string()), Error);
}

}  // namespace
}  // namespace ripstop
