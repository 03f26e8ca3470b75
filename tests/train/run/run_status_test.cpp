#include "train/run/run_status.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"
#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

// Three runs whose numbers are in another order than their names, and one without any number.
class Statuses : public testing::Test {
 protected:
  void SetUp() override {
    write("a", 3, 1e-4, 0.2, 2e9);
    write("b", 1, 3e-4, 0.1, 1e9);
    write("c", 2, 2e-4, 0.3, 1.5e9);
    write_bytes(scratch_ / "b/more", std::string(100'000, 'x'));
    write_bytes(scratch_ / "d/metrics.jsonl", "");
    Io io;
    for (const char* name : {"a", "b", "c", "d"}) runs_.push_back(read_status(io, scratch_ / name));
  }
  void write(const std::string& name, double loss, double rate, double rouge, double time) const {
    std::filesystem::create_directories(scratch_ / name);
    MetricsFile file(scratch_ / name / "metrics.jsonl");
    StartEvent start;
    start.time = time;
    file.write(start);
    StepMetrics step;
    step.step = 1;
    step.loss = loss;
    step.learning_rate = rate;
    if (name != "c")
      step.account = RunAccount{.node_hours = 10 * loss, .tokens = 1000, .kwh = loss, .gpu_kwh = {}};
    file.write(step);
    ValidationEvent validation;
    validation.step = 1;
    validation.loss = 4 - loss;
    validation.rougeL = rouge;
    file.write(validation);
    validation.loss = 9;
    validation.rougeL = 0.01;
    file.write(validation);
    validation.step = 0;  // of the initial weights
    validation.loss = 0.5;
    validation.rougeL = 0.9;
    file.write(validation);
  }
  std::string order(const std::string& key) {
    const ProgramRun sorted =
        expect_success(run_program("status --json --sort " + key + " " + scratch_.path().string()));
    std::string names;
    for (const auto& run : nlohmann::json::parse(sorted.out))
      names += run.at("directory").get<std::string>().back();
    return names;
  }

  ScratchDirectory scratch_;
  std::vector<RunStatus> runs_;
};

TEST_F(Statuses, HaveTheNumbersOfTheirRuns) {
  EXPECT_EQ(runs_[1].learning_rate, 3e-4);
  EXPECT_EQ(runs_[1].best_validation_loss, 3);
  EXPECT_EQ(runs_[1].best_rougeL, 0.1);
  EXPECT_EQ(runs_[1].started_at, 1e9);
  EXPECT_EQ(runs_[1].size_bytes,
            100'000 + static_cast<int64_t>(std::filesystem::file_size(scratch_ / "b/metrics.jsonl")));
  const std::string table = status_table(runs_);
  EXPECT_HAS(table, "best val  rougeL");
  EXPECT_HAS(table, "3.00e-04");
  EXPECT_HAS(table, "size  node-h     kWh  tok/kWh");
  EXPECT_HAS(table, "      10       1     1000 ");
  EXPECT_EQ(runs_[1].account->node_hours, 10);
  EXPECT_FALSE(runs_[2].account);
  for (const char* column : {"rougeL", "node-h", "kWh"})
    EXPECT_EQ(status_table(std::span(runs_).last(1)).find(column), std::string::npos) << "no run has it";
}

// The losses of the data sets are those of the best validation, by the names of the run's config.
TEST_F(Statuses, NameTheDataSetsOfTheBestValidation) {
  EXPECT_TRUE(runs_[0].best_validation_sets.empty());
  std::filesystem::create_directories(scratch_ / "mixed");
  const auto write_config = [&](const std::string& list) {
    write_bytes(scratch_ / "mixed/config.toml",
                std::regex_replace(std::string(small_config::kSmallest),
                                   std::regex("directory = \"[^\"]*\"\n(?=sequence_length)"),
                                   "directories = [" + list + "]\n"));
  };
  write_config(R"("sets/one", "sets/two", "sets/three")");
  auto file = std::make_unique<MetricsFile>(scratch_ / "mixed/metrics.jsonl");
  file->write(StartEvent{});
  for (const auto& [step, loss] : {std::pair(0, 1.0), {1, 3.0}, {2, 2.0}, {3, 4.0}}) {
    ValidationEvent validation;
    validation.step = step;
    validation.loss = loss;
    validation.sets.emplace(3);
    validation.sets->at(0).loss = loss + 0.25;
    validation.sets->at(1).loss = loss - 0.25;
    file->write(validation);
  }
  file.reset();  // all is written
  Io io;
  const RunStatus status = read_status(io, scratch_ / "mixed");
  ASSERT_EQ(status.best_validation_sets.size(), 3u);
  EXPECT_EQ(status.best_validation_sets[0], (std::pair<std::string, double>("sets/one", 2.25)));
  EXPECT_EQ(status.best_validation_sets[1], (std::pair<std::string, double>("sets/two", 1.75)));
  EXPECT_HAS(status_table(std::span(&status, 1)),
             "best val of each data set: one 2.2500, two 1.7500, three not validated\n");
  const ProgramRun json = run_program("status --json " + (scratch_ / "mixed").string());
  EXPECT_EQ(nlohmann::json::parse(json.out).at(0).at("best_validation_sets"),
            nlohmann::json::parse(R"([{"directory": "sets/one", "loss": 2.25},
                {"directory": "sets/two", "loss": 1.75}, {"directory": "sets/three", "loss": null}])"));
  EXPECT_FALSE(nlohmann::json::parse(run_program("status --json " + (scratch_ / "a").string()).out)
                   .at(0)
                   .contains("best_validation_sets"));
  write_config(R"("sets/one", "sets/two")");
  const RunStatus other = read_status(io, scratch_ / "mixed");
  EXPECT_TRUE(other.best_validation_sets.empty());
  EXPECT_HAS(other.note, "losses of the data sets are not named");
}

TEST_F(Statuses, AreOrderedByEachKey) {
  write("0", std::nan(""), 5e-4, 0.05, 3e9);
  EXPECT_EQ(order("loss"), "bca0d");
  EXPECT_EQ(order("learning_rate"), "acb0d");
  EXPECT_EQ(order("best_validation_loss"), "acb0d");
  EXPECT_EQ(order("best_rougeL"), "0bacd");
  EXPECT_EQ(order("started_at"), "bca0d");
  EXPECT_EQ(order("kwh"), "ba0cd") << "nan is not known";
  EXPECT_EQ(order("node_hours"), "ba0cd");
  EXPECT_EQ(order("tokens_per_kwh"), "ab0cd");
  EXPECT_EQ(order("size_bytes").back(), 'b');
  EXPECT_EQ(order("step").front(), 'd');
  EXPECT_EQ(order("directory"), "0abcd");
  EXPECT_EQ(order("state").front(), 'd') << "empty comes before interrupted";
  expect_exit(run_program("status --sort rouge " + scratch_.path().string()), 64, "best_rougeL");
}

}  // namespace
}  // namespace ripstop
