// ripstop prepare --show: examples as training sees them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/dataset/batch_loader.h"
#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

class ShowExamples : public testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 300; ++i) {
      lines += fmt::format("{{\"id\": \"n{0}\", \"document\": \"The harbour number {0} opened.", i);
      for (int w = 0; w < i % 7; ++w) lines += " The old bridge in \u6771\u4eac stays closed.";
      lines += fmt::format("\", \"summary\": \"Harbour {} opened.\"}}\n", i);
    }
    write_bytes(scratch_ / "train.jsonl", lines);
    write_bytes(scratch_ / "val.jsonl",
                "{\"id\": \"n\", \"document\": \"A tab\\t \\u001b[31m.\\nLine.\", \"summary\": \"S.\"}\n");
    expect_success(run_program(fmt::format("prepare --input {} {} --vocab-size 350 --output {}",
                                           file("train.jsonl"), file("val.jsonl"), file("data"))));
  }
  std::string file(const std::string& name) const { return (scratch_ / name).string(); }
  ProgramRun show(const std::string& arguments) const { return run_program("prepare --show " + arguments); }
  nlohmann::json shown(const std::string& arguments) const {
    const ProgramRun run = expect_success(show(arguments + " --json " + file("data")));
    return nlohmann::json::parse(run.out);
  }
  void expect_refused(const std::string& arguments, int code, const std::string& what) const {
    const ProgramRun run = run_program("prepare " + arguments);
    expect_exit(run, code, what);
    EXPECT_EQ(run.out, "");
  }
  ScratchDirectory scratch_;
};

TEST_F(ShowExamples, IdsAndMarksAreThoseOfTheLoader) {
  const TokenDataset dataset(scratch_ / "data/train.h5");
  for (const int64_t length : {24, 60, 4096}) {
    const nlohmann::json document = shown(fmt::format("300 --sequence-length {}", length));
    EXPECT_EQ(document.at("sequence_length"), length);
    EXPECT_EQ(document.at("split_examples"), 300);
    BatchLoaderOptions options;
    options.sequence_length = length;
    options.pack = options.shuffle = false;
    options.global_batch_sequences = 1;
    options.epochs = 1;
    BatchLoader loader(dataset, options);
    int64_t cut = 0, number = 0;
    while (loader.next_step()) {
      const PackedBatch& batch = loader.next_batch();
      const nlohmann::json& example = document.at("examples").at(static_cast<size_t>(number));
      EXPECT_EQ(example.at("example"), number++);
      const auto ids = example.at("ids").get<Ids>();
      const auto counted = example.at("counted").get<std::vector<bool>>();
      ASSERT_EQ(counted.size(), ids.size());
      EXPECT_EQ(example.at("pieces").size(), ids.size());
      ASSERT_EQ(batch.document_offset.at(1), std::ssize(ids) - 1);
      EXPECT_FALSE(counted[0]);
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        EXPECT_EQ(batch.token[i], ids[i]);
        EXPECT_EQ(batch.target[i], counted[i + 1] ? ids[i + 1] : -1);
      }
      EXPECT_EQ(example.at("targets"), batch.target_count);
      cut += example.at("cut_document_tokens").get<int64_t>();
    }
    EXPECT_EQ(number, 300);
    EXPECT_EQ(cut > 0, length < 4096) << length;
  }
}

TEST_F(ShowExamples, TheTextShowsWhatCounts) {
  const ProgramRun run = expect_success(show("2 " + file("data")));
  EXPECT_EQ(run.err, "");
  EXPECT_HAS(run.out,
             "train.h5: 2 of 300 examples, nothing is cut; tokens in the loss stand between [[ and ]]\n");
  EXPECT_HAS(run.out, "<s> The harbour number 0 opened.\n\nTL;DR:[[ Harbour 0 opened.</s>]]\n");
  EXPECT_HAS(
      run.out,
      "<s> The harbour number 1 opened. The old bridge in \u6771\u4eac stays closed.\n\nTL;DR:[[ Harbour");
  const ProgramRun all = show("1 --loss-on all " + file("data"));
  EXPECT_HAS(all.out, "<s>[[ The harbour number 0 opened.\n\nTL;DR: Harbour 0 opened.</s>]]\n");
  // Validation stores texts and their ids.
  const ProgramRun stored = show("9 --split val " + file("data"));
  EXPECT_HAS(stored.out, "validation.h5: 1 of 1 example, ");
  EXPECT_HAS(stored.out, "\nexample 0  id n  tokens: document ");
  EXPECT_HAS(stored.out, "<s> A tab\\t \\x1b[31m.\nLine.\n\nTL;DR:[[ S.</s>]]\n");
  EXPECT_HAS(show("7 --sequence-length 24 " + file("data")).out,
             " tokens cut>\n\nTL;DR:[[ Harbour 6 opened.</s>]]");
}

TEST_F(ShowExamples, ASeedDraws) {
  const auto numbers = [&](const std::string& arguments) {
    std::vector<int64_t> found;
    const nlohmann::json document = shown(arguments);
    for (const auto& example : document.at("examples")) found.push_back(example.at("example"));
    return found;
  };
  EXPECT_EQ(numbers("3"), (std::vector<int64_t>{0, 1, 2}));
  const auto drawn = numbers("3 --seed 0");
  EXPECT_NE(drawn, numbers("3"));
  EXPECT_EQ(drawn, numbers("3 --seed 0"));
  EXPECT_NE(drawn, numbers("3 --seed 1"));
}

TEST_F(ShowExamples, ANewDataSetIsShownAtOnce) {
  const std::string make = fmt::format("2 --vocab-size 350 --input {} --output ", file("train.jsonl"));
  const ProgramRun made = expect_success(show(make + file("again")));
  const size_t written = made.out.find("written      ");
  ASSERT_NE(written, std::string::npos) << made.out;
  EXPECT_GT(made.out.find("again/train.h5: 2 of 300 examples, "), written) << made.out;
  EXPECT_HAS(made.out, "TL;DR:[[ Harbour 1 opened.</s>]]\n");
  // The seed draws the examples.
  const ProgramRun json = expect_success(show(make + file("third") + " --json --seed 3"));
  EXPECT_EQ(nlohmann::json::parse(json.out).at("examples").size(), 2u);
  EXPECT_HAS(json.err, "written      ");
  EXPECT_EQ(json.err.find("not used: --seed"), std::string::npos) << json.err;
  // The data set is made, though nothing of it can be shown.
  const ProgramRun other = expect_success(show(make + file("fifth") + " --loss-on assistant"));
  EXPECT_HAS(other.err, "note: no example is shown: data.loss_on is \"assistant\"");
  expect_exit(show(make + file("sixth") + " --json --loss-on assistant"), 64, "has no conversations");
  // The report names the empty split, so --show prints nothing.
  const ProgramRun empty = expect_success(show(make + file("fourth") + " --json --split test"));
  EXPECT_EQ(nlohmann::json::parse(empty.out).at("examples").size(), 0u);
}

TEST_F(ShowExamples, MistakesHaveTheirFix) {
  const std::string data = file("data");
  expect_refused("--show 0 " + data, 64, "'0' is not an integer above 0");
  expect_refused("--show 1 " + file("dta"), 64, "did you mean " + data + "?");
  expect_refused("--show 1 " + file("train.jsonl"), 65, "a file, expected a data set's directory");
  expect_refused("--show 1 " + scratch_.path().string(), 65, "there is no train.h5 in this directory");
  expect_refused("--show 1 --split test " + data, 65,
                 "name a split that has some with --split: train, validation");
  expect_refused("--show 1 --sequence-length 1 " + data, 64, "--sequence-length");
  expect_refused("--show 1", 64, "--show needs a data set");
  expect_refused("--split test " + data, 64, "--split is for --show N");
  expect_refused(file("train.jsonl") + " --output " + file("x"), 64,
                 "--input " + file("train.jsonl") + " makes");
  expect_refused("--show 1 " + data + " --vocab-size 400", 64, "leave out --vocab-size");
  ASSERT_EQ(
      run_program("prepare --source synthetic --examples 300 --vocab-size 380 --output " + file("other"))
          .exit_code,
      0);
  std::filesystem::copy_file(scratch_ / "other/tokenizer.model", scratch_ / "data/tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  expect_refused("--show 1 " + data, 65, "was made with another tokenizer");
}

}  // namespace
}  // namespace ripstop
