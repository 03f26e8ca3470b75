// A run on a pipeline that is stopped in a long step, and goes on.
#include "data/dataset/token_dataset_writer.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_has.h"
#include "tests/train/shared_directory.h"
#include "train/checkpoint/manifest.h"
#include "train/report/metrics.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

// Many micro-batches of one sequence.
constexpr const char* kLongSteps = R"(
[run]
device = "cpu"
[model]
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 4
num_attention_heads = 2
num_key_value_heads = 2
max_position_embeddings = 16
[data]
sequence_length = 16
pack = false
[train]
steps = 4
global_batch_sequences = 96
micro_batch_sequences = 1
[optimizer]
learning_rate = 1e-2
[log]
every_steps = 1
)";

class PipelineStopRanks : public SharedDirectory {
 protected:
  void fill(const std::filesystem::path& directory) override {
    write_bytes(directory / "tokenizer.model", small_model());
    const Tokenizer tokenizer(small_model(), "small");
    const TokenDatasetHeader header = header_of(tokenizer);
    TokenDatasetWriter writer(directory / "train.h5", header);
    for (int32_t i = 0; i < 400; ++i)
      writer.add({.tokens = {1, 5 + i % 40, 6, 7 + i % 30, 8, 9, 10 + i % 20, 2}, .spans = {{5, 8, 1, 4}}});
    writer.finish();
  }

  struct Ended {
    ExitCode code = ExitCode::kOk;
    std::string said;
  };
  // Trains; a stop that comes behind step `last` gives the next one up. 0: none comes.
  Ended train(const std::string& run, int64_t stages, int64_t last) {
    const RunConfig config = parse_run_config(
        kLongSteps, "test",
        std::vector<std::string>{"run.directory=" + (directory_ / run).string(),
                                 "data.directory=" + directory_.string(),
                                 fmt::format("mesh.pipeline={}", stages), "checkpoint.every_steps=0"});
    Ended ended;
    bool stops = false;
    const auto say = [&](const std::string& line) {
      ended.said += line + "\n";
      stops |= last > 0 && line.starts_with(fmt::format("step {}/", last));
    };
    ended.code = Trainer::make({.config = config,
                                .argv = {},
                                .say = say,
                                .stop_requested = [&] { return stops; },
                                .long_step = {.vote_seconds = 0, .most_seconds = 0}},
                               test_world())
                     ->run();
    return ended;
  }
  std::vector<std::pair<int64_t, double>> losses(const std::string& run) const {
    std::vector<std::pair<int64_t, double>> all;
    for (const StepMetrics& step : read_metrics(directory_ / run / "metrics.jsonl").steps)
      all.emplace_back(step.step, step.loss);
    return all;
  }
};

TEST_F(PipelineStopRanks, TheStepIsMadeAgainWithEqualBits) {
  const int64_t ranks = test_world().communicator().size(), stages = ranks % 2 == 0 ? 2 : ranks;
  ASSERT_EQ(train("unbroken", stages, 0).code, ExitCode::kOk);
  const Ended stopped = train("stopped", stages, 2);
  EXPECT_EQ(stopped.code, ExitCode::kRequeue);
  if (test_world().communicator().rank() == 0) {
    EXPECT_HAS(stopped.said, "stopped on a signal in step 3, which is made again");
    EXPECT_HAS(stopped.said, "units kept whole after forward");
  }
  EXPECT_EQ(losses("stopped").size(), 2);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "stopped/checkpoints" / step_directory_name(2)));
  test_world().communicator().barrier();  // behind the look at the files
  EXPECT_EQ(train("stopped", stages, 0).code, ExitCode::kOk);
  EXPECT_EQ(losses("stopped"), losses("unbroken"));
  EXPECT_FALSE(read_metrics(directory_ / "stopped/metrics.jsonl").starts.back().reshard_after_forward);
}

}  // namespace
}  // namespace ripstop
