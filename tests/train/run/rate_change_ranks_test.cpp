// A run whose rate, schedule, weight decay and clipping change when it resumes, on the meshes of this world,
// beside PyTorch that did the same (tests/golden/make_rate_change.py has the same settings).
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/dataset/token_dataset_writer.h"
#include "tests/data/small_tokenizer.h"
#include "tests/test_files.h"
#include "tests/train/exchange/golden_pairs.h"
#include "tests/train/shared_directory.h"
#include "train/checkpoint/manifest.h"
#include "train/report/metrics.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

constexpr const char* kRateConfig = R"(
[model]
resize_vocabulary = "mean"
[data]
sequence_length = 64
shuffle = false
[train]
steps = 40
global_batch_sequences = 8
[optimizer]
learning_rate = 2e-3
[schedule]
warmup_steps = 5
minimum_ratio = 0.1
[precision]
compute = "float32"
[log]
every_steps = 1
)";

constexpr int64_t kChange = 20;  // the last step before the change
const std::vector<std::string> kChanges = {"optimizer.learning_rate=5e-4", "optimizer.weight_decay=0.5",
                                           "train.max_grad_norm=0.25", "schedule.kind=linear"};

class FinetuningRateRanks : public SharedDirectory {
 protected:
  void fill(const std::filesystem::path& directory) override {
    write_bytes(directory / "tokenizer.model", small_model());
    const Tokenizer tokenizer(small_model(), "small");
    const TokenDatasetHeader header = header_of(tokenizer);
    TokenDatasetWriter writer(directory / "train.h5", header);
    const auto golden = nlohmann::json::parse(std::ifstream(golden_file("finetuning.json")));
    for (const golden_pairs::IdPair& pair : golden_pairs::synthetic_pairs(golden)) {
      TokenExample example{.tokens = {golden_pairs::kBegin}, .spans = {}};
      example.tokens.insert(example.tokens.end(), pair.document.begin(), pair.document.end());
      const auto target = static_cast<int32_t>(example.tokens.size());
      example.tokens.insert(example.tokens.end(), pair.summary.begin(), pair.summary.end());
      example.tokens.push_back(golden_pairs::kEnd);
      example.spans = {{target, static_cast<int32_t>(example.tokens.size()), 1, target}};
      writer.add(example);
    }
    writer.finish();
  }

  // Trains, up to step `last` if it is not 0, and returns the exit code.
  ExitCode train(const std::string& run, std::vector<std::string> overrides, bool allow_changes,
                 int64_t last = 0) {
    overrides.push_back("run.directory=" + (directory_ / run).string());
    overrides.push_back("model.pretrained=" + golden_file("pretrained/untied_bf16").string());
    overrides.push_back("data.directory=" + directory_.string());
    const RunConfig config = parse_run_config(kRateConfig, "test", overrides);
    bool stops = false;  // asked for after step last - 1, a stop comes after the next step
    const auto say = [&](const std::string& line) {
      stops |= line.starts_with(fmt::format("step {}/", last - 1));
    };
    return Trainer::make({.config = config,
                          .argv = {},
                          .say = say,
                          .stop_requested = [&] { return stops; },
                          .allow_changes = allow_changes},
                         test_world())
        ->run();
  }
};

TEST_F(FinetuningRateRanks, ChangesOnResumeAreThoseOfPyTorch) {
  const auto golden = nlohmann::json::parse(std::ifstream(golden_file("rate_change.json")));
  const int ranks = test_world().communicator().size();
  std::vector<std::pair<int, int>> meshes = {{ranks, 1}};
  if (ranks == 2) meshes.emplace_back(1, 2);
  if (ranks == 4) meshes = {{2, 2}};
  for (const auto& [fsdp, tensor] : meshes) {
    const std::string run = fmt::format("run_{}_{}", fsdp, tensor);
    SCOPED_TRACE(run);
    std::vector<std::string> overrides = {fmt::format("mesh.fsdp={}", fsdp),
                                          fmt::format("mesh.tensor={}", tensor)};
    ASSERT_EQ(train(run, overrides, false, kChange), ExitCode::kRequeue);
    overrides.insert(overrides.end(), kChanges.begin(), kChanges.end());
    EXPECT_THROW(train(run, overrides, false), Error);
    ASSERT_EQ(train(run, overrides, true), ExitCode::kOk);
    const auto log_of = [&](const std::string& name) {
      return read_metrics(directory_ / name / "metrics.jsonl");
    };
    const auto expect_golden = [&](const StepMetrics& step) {
      const double loss = golden["losses"][static_cast<size_t>(step.step - 1)];
      EXPECT_NEAR(step.loss, loss, 1e-4 * loss) << "step " << step.step;
    };
    const MetricsLog log = log_of(run);
    ASSERT_EQ(log.starts.back().step, kChange);
    EXPECT_EQ(log.starts.back().changes.size(), kChanges.size());
    ASSERT_EQ(log.steps.size(), golden["losses"].size());
    for (const StepMetrics& step : log.steps) expect_golden(step);
    // A new run that continues the first one, with the axes of the mesh exchanged.
    overrides[0] = fmt::format("mesh.fsdp={}", tensor);
    overrides[1] = fmt::format("mesh.tensor={}", fsdp);
    overrides.push_back("run.continue_from=" + (directory_ / run / "checkpoints/step_20").string());
    ASSERT_EQ(train("new_" + run, overrides, false), ExitCode::kOk);
    const MetricsLog continued = log_of("new_" + run);
    ASSERT_EQ(continued.steps.size(), golden["losses"].size() - kChange);
    for (const StepMetrics& step : continued.steps) expect_golden(step);
  }
}

}  // namespace
}  // namespace ripstop
