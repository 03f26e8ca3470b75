#include "train/run/run_report.h"

#include <gtest/gtest.h>

#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"
#include "tests/expect_has.h"
#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

// A run of 8 sequences a step on `ranks` ranks, two on each node.
struct JobOf {
  explicit JobOf(int64_t ranks, const std::vector<std::string>& overrides = {})
      : config(small_config::parsed(small_config::kSmallest, overrides)),
        run(resolve_run(config, run_target(ranks, DeviceKind::kCpu, std::nullopt, 32000))) {
    for (int64_t r = 0; r < ranks; ++r) hosts.push_back(fmt::format("n{}", r / 2 + 1));
  }
  // The `start` event of the run.
  StartEvent start() const {
    StartEvent event;
    event.mesh = run.mesh;
    event.hosts = hosts;
    event.recompute = std::string(to_string(run.step.sharding.recompute));
    event.reshard_after_forward = run.step.sharding.reshard_after_forward;
    event.micro_batch_sequences = run.step.sharding.sequence_count;
    event.micro_batches = run.micro_batches;
    event.plan = {run.memory(), run.plan.traffic_per_step};
    return event;
  }
  std::string since(const MetricsLog& log) const {
    std::string text;
    for (const std::string& line : lines_since(log, start(), config, run)) text += line + "\n";
    return text;
  }

  RunConfig config;
  ResolvedRun run;
  std::vector<std::string> hosts;
};

// The log of a start, with one step if `speed` is known.
MetricsLog log_of(const StartEvent& start, std::optional<double> speed) {
  MetricsLog log;
  log.starts = {start};
  if (speed) log.steps.emplace_back().tokens_per_second = *speed;
  return log;
}

TEST(SinceLastStart, TheSameLayoutIsNoWordWorth) {
  EXPECT_EQ(JobOf(4).since(log_of(JobOf(4).start(), 100)), "");
}

TEST(SinceLastStart, FewerNodesCostWhatTheyCost) {
  const std::string text = JobOf(4).since(log_of(JobOf(8).start(), 1000));
  EXPECT_HAS(
      text, "since the last start:\n  nodes        4 nodes of 8 ranks in all -> 2 nodes of 4 ranks in all\n");
  EXPECT_HAS(text, "  mesh         replicate 1 x fsdp 8 x tensor 1 -> replicate 1 x fsdp 4 x tensor 1\n");
  EXPECT_HAS(text, "  micro-batch  1 sequence in 1 a step -> 2 sequences in 1 a step\n");
  EXPECT_HAS(text, "  memory       ");
  EXPECT_HAS(text, "  sent         ");
  EXPECT_HAS(text, "  speed        1000 tok/s before, about 500 expected if a rank is as fast as before\n");
  EXPECT_HAS(text, "  as before: 8 sequences a step, the order of the data, the learning rate\n");
  EXPECT_EQ(text.find("recompute"), std::string::npos);
}

// Another length of the run stretches the schedule.
TEST(SinceLastStart, TheLearningRateIsAsBeforeWithAsManySteps) {
  StartEvent before = JobOf(8).start();
  before.steps = 70;
  const std::string text = JobOf(4).since(log_of(before, 1000));
  EXPECT_HAS(text, "  as before: 8 sequences a step, the order of the data\n");
}

TEST(SinceLastStart, WhatChangedIsNotAsBefore) {
  const JobOf job(4);
  StartEvent now = job.start();
  const auto as_before = [&](const StartEvent& before, const std::string& key) {
    now.changes = {{.key = key, .old_value = "1", .new_value = "2"}};
    const std::vector<std::string> lines = lines_since(log_of(before, 1000), now, job.config, job.run);
    return lines.empty() ? "" : lines.back();
  };
  for (const char* key : {"optimizer.learning_rate", "schedule.kind"})
    EXPECT_EQ(as_before(JobOf(8).start(), key), "  as before: 8 sequences a step, the order of the data");
  EXPECT_EQ(as_before(JobOf(8).start(), "optimizer.weight_decay"),
            "  as before: 8 sequences a step, the order of the data, the learning rate");
  EXPECT_EQ(as_before(JobOf(8).start(), "data.weights"),
            "  as before: 8 sequences a step, the learning rate");
  EXPECT_EQ(as_before(job.start(), "optimizer.learning_rate"), "") << "a warning tells the change";
}

// Three data ranks compute 3, 3 and 2 of eight sequences: one of nine is empty.
TEST(SinceLastStart, IdleRanksBringNoSpeed) {
  const std::string text = JobOf(3).since(log_of(JobOf(4).start(), 1200));
  EXPECT_HAS(text, "  idle         0.0% -> 11.1%\n");
  EXPECT_HAS(text, "about 800 expected");  // 1200 x 3/4 x 8/9
}

TEST(SinceLastStart, WhatIsComputedAgainCostsTime) {
  const std::string text = JobOf(4, {"train.recompute=full"}).since(log_of(JobOf(4).start(), 1000));
  EXPECT_HAS(text, "  recompute    none -> full\n");
  const double share = JobOf(4, {"train.recompute=full"}).run.recomputed_share();
  EXPECT_HAS(text, fmt::format("about {:.0f} expected", 1000 / (1 + share)));
}

TEST(SinceLastStart, LayersOfStagesAreNamed) {
  const JobOf job(4);
  StartEvent before = job.start(), now = before;
  now.pipeline_layers = {3, 3};
  const auto since = [&] { return lines_since(log_of(before, 1000), now, job.config, job.run); };
  EXPECT_TRUE(since().empty()) << "the line of the mesh tells of a new pipeline";
  before.pipeline_layers = {4, 2};
  ASSERT_FALSE(since().empty());
  EXPECT_EQ(since()[1], "  stages       of 4, 2 layers -> of 3, 3 layers");
}

TEST(SinceLastStart, KeptUnitsAreNamed) {
  const std::string text =
      JobOf(4, {"train.reshard_after_forward=false"}).since(log_of(JobOf(4).start(), 1000));
  EXPECT_HAS(text, "  units        resharded after forward -> kept whole after forward\n");
}

TEST(SinceLastStart, NoSpeedIsMadeUp) {
  EXPECT_HAS(JobOf(2).since(log_of(JobOf(4).start(), std::nullopt)),
             "not known: no step of the last start is left");
  EXPECT_HAS(JobOf(4, {"mesh.tensor=2"}).since(log_of(JobOf(4).start(), 1000)),
             "1000 tok/s before; that of this mesh is not known yet");
  StartEvent old = JobOf(4).start();
  old.micro_batch_sequences = 0;  // of a version that did not write it
  EXPECT_HAS(JobOf(2).since(log_of(old, 1000)), "micro-batch  not known -> ");
}

TEST(SinceLastStart, TheLastOfSeveralStartsCounts) {
  MetricsLog log;
  EXPECT_EQ(JobOf(2).since(log), "");
  const auto start = [&](int64_t ranks, double time) {
    log.starts.push_back(JobOf(ranks).start());
    log.starts.back().time = time;
  };
  const auto step = [&](double speed, double time) {
    StepMetrics& metrics = log.steps.emplace_back();
    metrics.tokens_per_second = speed;
    metrics.time = time;
  };
  start(8, 1000);
  step(7, 1001);
  start(4, 2000);
  EXPECT_HAS(JobOf(2).since(log), "not known: no step of the last start is left");
  step(5, 2001);
  EXPECT_HAS(JobOf(2).since(log), "fsdp 4 x tensor 1 -> replicate 1 x fsdp 2 x tensor 1");
  EXPECT_HAS(JobOf(2).since(log), "5 tok/s before");
}

std::string next_of(const std::vector<std::string>& overrides, ExampleKind kind = ExampleKind::kSummary) {
  std::string text;
  for (const std::string& line : next_lines(small_config::parsed(small_config::kSmallest, overrides), kind))
    text += line + "\n";
  return text;
}

void write_split(const std::filesystem::path& file, int64_t examples) {
  TokenDatasetWriter writer(file, marked_header(ExampleKind::kSummary));
  for (int64_t i = 0; i < examples; ++i) writer.add({{1, 10, 11, 90, 20, 21, 2}, {{4, 7, 1, 3}}});
  writer.finish();
}

TEST(NextLines, AreCommandsToPaste) {
  const ScratchDirectory scratch;
  write_split(scratch / "test.h5", 1);
  EXPECT_EQ(next_of({"run.directory=runs/my run/", "data.directory=" + scratch.path().string()}),
            "next:\n"
            "  ripstop evaluate 'runs/my run'                                  scores of a split\n"
            "  ripstop summarize 'runs/my run' --input article.txt             a summary of another text\n"
            "  ripstop report 'runs/my run'                                    its curves and texts as one "
            "HTML file\n"
            "  ripstop checkpoint export 'runs/my run' 'runs/my run-exported'  its model, for "
            "transformers\n");
}

TEST(NextLines, NameOnlyWhatTheRunCanDo) {
  const ScratchDirectory scratch;
  const std::vector<std::string> overrides = {"run.directory=r", "data.directory=" + scratch.path().string()};
  write_split(scratch / "test.h5", 0);
  EXPECT_EQ(next_of(overrides).find("evaluate"), std::string::npos);
  write_split(scratch / "validation.h5", 1);
  EXPECT_HAS(next_of(overrides), "  ripstop evaluate r --split validation ");
  EXPECT_HAS(next_of(overrides, ExampleKind::kConversation), "  ripstop summarize r --input question.txt ");
  EXPECT_EQ(next_of({"run.directory=r"}, ExampleKind::kText).find("summarize"), std::string::npos);
  EXPECT_HAS(next_of({"run.directory=r", "model.pretrained=base", "lora.rank=4", "lora.alpha=8"}),
             "  ripstop checkpoint export --format peft r r-exported  its adapters, for PEFT\n");
}

}  // namespace
}  // namespace ripstop
