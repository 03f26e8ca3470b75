#include "train/report/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>
#include <sstream>

#include "data/files/whole_file.h"
#include "model/core/error.h"
#include "tests/data/fault_io.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class Metrics : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ripstop_metrics_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "metrics.jsonl";
    fs::remove(path_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string text() const { return read(path_); }
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void set_text(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  // Writes a start, the steps 1..count, and a validation and a checkpoint at every fourth step.
  void write_run(int64_t count) const {
    MetricsFile file(path_);
    StartEvent start;
    start.steps = 20;
    file.write(start);
    for (int64_t step = 1; step <= count; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.loss = 1.0 / 3.0 + 1e-13 * static_cast<double>(step);
      file.write(metrics);
      if (step % 4 != 0) continue;
      ValidationEvent validation;
      validation.step = step;
      validation.loss = 2.5;
      file.write(validation);
      file.write(CheckpointEvent{step, "checkpoints/x", 10, 0.5, 0});
    }
  }

  fs::path folder_;
  fs::path path_;
};

TEST_F(Metrics, TornLastLineIsSkippedAndRemoved) {
  write_run(3);
  const std::string whole = text();
  for (const size_t cut : {size_t{1}, size_t{40}, size_t{100}}) {
    set_text(whole.substr(0, whole.size() - cut));
    EXPECT_EQ(read_metrics(path_).steps.size(), 2u);
    StepMetrics again;
    again.step = 3;
    MetricsFile(path_).write(again);
    const MetricsLog log = read_metrics(path_);
    ASSERT_EQ(log.steps.size(), 3u);
    EXPECT_EQ(log.steps[2].step, 3);
  }
  set_text("{\"event\"");
  MetricsFile(path_).write(WarningEvent{1, "first", 0});
  EXPECT_EQ(read_metrics(path_).warnings.size(), 1u);
}

TEST_F(Metrics, TornLineLongerThanABlockIsRemoved) {
  write_run(1);
  const std::string whole = text();
  set_text(whole + std::string(10000, 'x'));
  MetricsFile file(path_);
  EXPECT_EQ(text(), whole);
}

TEST_F(Metrics, CutLeavesNoStepTwice) {
  write_run(10);
  cut_to_step(path_, 8);
  MetricsLog log = read_metrics(path_);
  EXPECT_EQ(log.starts.size(), 1u);
  ASSERT_EQ(log.steps.size(), 8u);
  EXPECT_EQ(log.steps.back().step, 8);
  EXPECT_EQ(log.validations.size(), 2u);
  EXPECT_EQ(log.checkpoints.size(), 2u);
  const std::string before = text();
  cut_to_step(path_, 8);
  EXPECT_EQ(text(), before);
  cut_to_step(path_, 3);
  log = read_metrics(path_);
  EXPECT_EQ(log.steps.size(), 3u);
  EXPECT_TRUE(log.validations.empty());
  EXPECT_TRUE(log.checkpoints.empty());
  cut_to_step(folder_ / "absent.jsonl", 3);
  EXPECT_FALSE(fs::exists(folder_ / "absent.jsonl"));
  EXPECT_FALSE(fs::exists(path_.string() + ".tmp"));
}

// A process that lost the run to a takeover may have the log open. Its later writes must not reach the new
// log.
TEST_F(Metrics, AReplacedLogIsAnotherFile) {
  write_run(4);
  MetricsFile old(path_);
  const std::string before = text();
  cut_to_step(path_, 4);
  old.write(WarningEvent{.step = 4, .text = "the same file"});
  old.sync();
  EXPECT_HAS(text(), "the same file");
  cut_to_step(path_, 4, /*replace=*/true);
  const std::string replaced = text();
  old.write(WarningEvent{.step = 4, .text = "too late"});
  old.sync();
  EXPECT_EQ(text(), replaced);
}

TEST_F(Metrics, CutRemovesATornLineToo) {
  write_run(4);
  const std::string whole = text();
  set_text(whole + "{\"event\":\"st");
  cut_to_step(path_, 100);
  EXPECT_EQ(text(), whole);
}

// A crash of the machine or an editor may damage any line. A damaged log must not stop a run.
TEST_F(Metrics, LinesThatAreNoEventsArePassedOverAndKeptAside) {
  write_run(3);
  const std::string whole = text();
  const size_t second = whole.find('\n') + 1, third = whole.find('\n', second) + 1;
  const std::string nul_block(4096, '\0');
  for (const std::string& bad : {nul_block + "\n", std::string("\n"), std::string("garbage\n"),
                                 std::string("[1]\n"), std::string("{\"event\":\"step\",\"step\":\"7\"}\n"),
                                 std::string("{\"event\":\"step\",\"step\":1e300}\n"),
                                 std::string("{\"event\":\"step\",\"step\":2,\"loss\":\"x\"}\n"),
                                 std::string("{\"event\":\"step\"}\n"), std::string("{\"step\":2}\n"),
                                 std::string(100000, '[') + "\n"}) {
    const std::string damaged = whole.substr(0, second) + bad + whole.substr(second);
    set_text(damaged);
    const MetricsLog log = read_metrics(path_);
    EXPECT_EQ(log.steps.size(), 3u) << bad.substr(0, 60);
    EXPECT_EQ(log.damage.rfind("1 line is no event, line 2: ", 0), 0u) << log.damage;

    const std::string note = cut_to_step(path_, 3);
    EXPECT_HAS(note, "metrics.jsonl.damaged");
    EXPECT_HAS(note, "line 2");
    EXPECT_EQ(text(), whole) << "what can be read goes on";
    EXPECT_EQ(read(path_.string() + ".damaged"), damaged);
    fs::remove(path_.string() + ".damaged");
    cut_to_step(path_, 3);
    EXPECT_FALSE(fs::exists(path_.string() + ".damaged")) << "the second time there is no damage";
  }
  set_text(whole.substr(0, second) + "x\n" + whole.substr(second, third - second) + "y\n" +
           whole.substr(third));
  EXPECT_EQ(read_metrics(path_).damage, "2 lines are no events, the first is line 2: no JSON");
  cut_to_step(path_, 1);
  EXPECT_EQ(text(), whole.substr(0, third)) << "also cut back to the step";
}

TEST_F(Metrics, ACopyOfADamagedFileOverwritesNothing) {
  for (const char* bad : {"first\n", "second\n", "third\n"}) {
    set_text(bad);
    cut_to_step(path_, 0);
    EXPECT_EQ(text(), "");
  }
  EXPECT_EQ(read(path_.string() + ".damaged"), "first\n");
  EXPECT_EQ(read(path_.string() + ".damaged.2"), "second\n");
  EXPECT_EQ(read(path_.string() + ".damaged.3"), "third\n");
}

// On a full disk, each start would leave one more partial copy.
TEST_F(Metrics, ACopyThatFailsIsRemoved) {
  set_text("a\n");
  FaultIo io;
  io.kind = FaultIo::Kind::kError;
  io.error = ENOSPC;
  for (io.at = 0;; ++io.at) {
    io.calls = 0;
    try {
      copy_aside(io, path_, "damaged");
      break;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kStorage) << error.what();
      EXPECT_FALSE(fs::exists(path_.string() + ".damaged")) << "call " << io.at << ": " << error.what();
      EXPECT_EQ(text(), "a\n");
    }
  }
  EXPECT_EQ(read(path_.string() + ".damaged"), "a\n");
  // The calls: stat, open, write, sync, close; then open, sync and close of the directory, which may fail.
  EXPECT_GE(io.at, 7) << "the name of the copy is not synced";
}

// A run without its checkpoints begins again at step 0. The log may be all that is left of hours of work.
TEST_F(Metrics, StepsThatWereSavedAreNotCutWithoutACopy) {
  write_run(7);
  const std::string whole = text();
  EXPECT_EQ(cut_to_step(path_, 4), "") << "steps 5 to 7 were not saved";
  EXPECT_FALSE(fs::exists(path_.string() + ".uncut"));
  set_text(whole);
  const std::string note = cut_to_step(path_, 3);
  EXPECT_HAS(note, "checkpoint of step 4");
  EXPECT_HAS(note, "metrics.jsonl.uncut");
  EXPECT_EQ(read(path_.string() + ".uncut"), whole);
  EXPECT_EQ(read_metrics(path_).steps.size(), 3u);
}

// A disk that did not answer at the end of a start may cost lines up to the checkpoint. The next start tells.
TEST_F(Metrics, LinesThatTheLastStartLostAreCounted) {
  write_run(10);
  EXPECT_HAS(cut_to_step(path_, 10), "lacks at least 1 line of the start before: the checkpoint of step 10");
  const std::string note = cut_to_step(path_, 12);
  EXPECT_HAS(
      note,
      "lacks at least 3 lines of the start before: those of steps 11 to 12 and the checkpoint of step 12");
  {
    MetricsFile file(path_);
    StartEvent again;
    again.step = 12;
    file.write(again);
  }
  EXPECT_EQ(cut_to_step(path_, 12), "");
}

TEST_F(Metrics, AHardLinkedCopyGetsNoLinesOfTheRun) {
  write_run(4);
  const std::string whole = text();
  const fs::path copy = folder_ / "copy.jsonl";
  fs::create_hard_link(path_, copy);
  EXPECT_EQ(cut_to_step(path_, 4), "");
  MetricsFile(path_).write(WarningEvent{5, "later", 0});
  EXPECT_EQ(read(copy), whole);
  EXPECT_EQ(read_metrics(path_).warnings.size(), 1u);
}

// Nobody writes into the pipe, so reading it would never end.
TEST_F(Metrics, AFileThatIsNoneIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const auto refused = [&](auto&& body) { expect_error(body, ExitCode::kStorage, "not a plain file"); };
  refused([&] { read_metrics(path_); });
  refused([&] { check_metrics_file(path_); });
  refused([&] { cut_to_step(path_, 1); });
  refused([&] { MetricsFile file(path_); });
}

TEST_F(Metrics, WhateverIsDamagedTheRestIsRead) {
  write_run(8);
  const std::string whole = text();
  std::mt19937 random(1);
  int damaged_files = 0;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = whole;
    for (int change = 0; change < 2; ++change) {
      const size_t at = random() % damaged.size();
      if (random() % 2 == 0)
        damaged[at] = static_cast<char>(random());
      else
        damaged.erase(at, 1 + random() % 50);
    }
    set_text(damaged);
    const MetricsLog log = read_metrics(path_);
    damaged_files += log.damage.empty() ? 0 : 1;
    EXPECT_GE(log.steps.size(), 4u) << damaged;  // two changes hit at most four lines
    EXPECT_LE(log.steps.size(), 8u);
    cut_to_step(path_, int64_t{1} << 40);
    EXPECT_EQ(read_metrics(path_).damage, "");
    fs::remove(path_.string() + ".damaged");
  }
  EXPECT_GT(damaged_files, 100);
}

TEST_F(Metrics, PathsThatCannotBeOpenedAreStorageErrors) {
  for (const fs::path& path : {folder_ / "no" / "metrics.jsonl", folder_}) {
    expect_error([&] { MetricsFile file(path); }, ExitCode::kStorage);
  }
  EXPECT_THROW(read_metrics(folder_ / "absent"), Error);
}

TEST_F(Metrics, FullDiskLeavesNoHalfLine) {
  write_run(2);
  const std::string whole = text();
  MetricsFile file(path_);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = whole.size() + 20;  // a write across the limit is short, and the next one fails
  setrlimit(RLIMIT_FSIZE, &full);
  file.write(StepMetrics{});
  // An `end` that could not be written must not be written later: its exit code may be wrong by then.
  file.write(EndEvent{});
  const ExitCode refused = error_of([&] { file.sync(); }).code();
  EXPECT_TRUE(file.take_back());
  const std::string written = text();
  const int64_t waiting = file.waiting_lines();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(refused, ExitCode::kStorage);
  EXPECT_EQ(written, whole);
  EXPECT_EQ(waiting, 1);
  EndEvent end;
  end.exit_code = 74;
  file.write(end);
  file.sync();
  const MetricsLog log = read_metrics(path_);
  EXPECT_EQ(log.steps.size(), 3U);
  ASSERT_EQ(log.ends.size(), 1U);
  EXPECT_EQ(log.ends[0].exit_code, 74);
}

// A log of 20 MiB: steps 1 to 20,000, each with a KiB of text that readers skip, starts from the steps 0,
// 5,000 and 9,000, and a checkpoint of every thousandth step, whose event comes two steps later.
class LongLog : public Metrics {
 protected:
  void SetUp() override {
    Metrics::SetUp();
    std::string text;
    for (int64_t step = 0; step <= kSteps; ++step) {
      if (step > 0) text += line("step", step, "");
      if (step == 0 || step == 5000 || step == 9000) text += line("start", step, R"(,"steps":20000)");
      if (step % 1000 == 2 && step > 2) text += line("checkpoint", step - 2, R"(,"path":"x","seconds":1)");
    }
    set_text(text);
    ASSERT_GT(std::ssize(text), kWholeLogBytes);
  }
  static std::string line(const std::string& event, int64_t step, const std::string& fields) {
    return R"({"event":")" + event + R"(","step":)" + std::to_string(step) + fields + R"(,"more":")" +
           std::string(event == "step" ? 1000 : 0, 'x') + "\"}\n";
  }
  std::vector<int64_t> starts(const std::vector<int64_t>& started_at) const {
    std::vector<int64_t> steps;
    for (const StartEvent& start : read_log_ends(path_, started_at).starts) steps.push_back(start.step);
    return steps;
  }
  static constexpr int64_t kSteps = 20000;
};

TEST_F(LongLog, OnlyItsEndsAreRead) {
  const MetricsLog log = read_log_ends(path_, {9000});
  EXPECT_TRUE(log.has_gap);
  EXPECT_EQ(log.damage, "");
  EXPECT_EQ(log.steps.front().step, 1);
  EXPECT_EQ(log.steps.back().step, kSteps);
  EXPECT_GT(log.steps.size(), 8000U);
  EXPECT_LT(log.steps.size(), 9500U) << "a head of 1 MiB and a tail of 8 MiB";
  EXPECT_EQ(log.checkpoints.back().step, 19000);
  EXPECT_FALSE(read_metrics(path_).has_gap);
}

TEST_F(LongLog, StartsBetweenTheEndsAreFoundByTheirSteps) {
  EXPECT_EQ(starts({}), (std::vector<int64_t>{0}));
  EXPECT_EQ(starts({5000}), (std::vector<int64_t>{0, 5000}));
  EXPECT_EQ(starts({5000, 9000}), (std::vector<int64_t>{0, 5000, 9000}));
  EXPECT_EQ(starts({9000, 9000}), (std::vector<int64_t>{0, 9000}));
  EXPECT_EQ(starts({0, 8000}), (std::vector<int64_t>{0})) << "there is no such start";
  EXPECT_EQ(starts({kSteps + 5}), (std::vector<int64_t>{0}));
}

TEST_F(LongLog, IsCutLikeAShortOne) {
  const std::string whole = text();
  const auto cut = [&](int64_t step) {
    std::string kept;
    std::istringstream lines(whole);
    for (std::string line; std::getline(lines, line);)
      if (std::stoll(line.substr(line.find("\"step\":") + 7)) <= step) kept += line + "\n";
    return kept;
  };
  for (const int64_t step : {0, 1, 5000, 12000, 19000, 19999, 20000, 30000}) {
    set_text(whole);
    cut_to_step(path_, step);
    EXPECT_TRUE(text() == cut(step)) << step;
    fs::remove(path_.string() + ".uncut");
  }
  EXPECT_FALSE(fs::exists(path_.string() + ".partial"));
}

// Damage in the part that goes on is removed, and named by its place.
TEST_F(LongLog, ItsDamageIsNamedByTheByte) {
  set_text(text() + "garbage\n");
  EXPECT_HAS(read_log_ends(path_, {}).damage, "1 line is no event, line ");
  EXPECT_HAS(read_log_ends(path_, {}).damage, " on: no JSON");
  EXPECT_HAS(cut_to_step(path_, 20000), " on: no JSON: a copy of the file is metrics.jsonl.damaged");
  EXPECT_EQ(read_log_ends(path_, {}).damage, "");
  EXPECT_EQ(read_metrics(path_).steps.size(), size_t{kSteps});
}

}  // namespace
}  // namespace ripstop
