// Whole runs of a tiny model on one rank, in this process.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "data/dataset/token_dataset_writer.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_error.h"
#include "train/checkpoint/manifest.h"
#include "train/report/metrics.h"
#include "train/run/trainer.h"

namespace ripstop {

class SmallRuns : public ::testing::Test {
 protected:
  static constexpr const char* kConfig = R"(
[run]
directory = "RUN"
device = "cpu"
[model]
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 2
max_position_embeddings = 16
[data]
directory = "DATA"
sequence_length = 16
pack = false
[train]
steps = 1
global_batch_sequences = 1
[optimizer]
learning_rate = 1e-2
[schedule]
kind = "constant"
warmup_steps = 0
[precision]
compute = "float32"
)";

  /// Writes a data set of `equal` equal examples, whose order does not matter, and examples whose targets the
  /// loader cuts off, because their separator is longer than a sequence.
  std::string make_data(const std::string& name, int64_t equal, int64_t without_targets = 0,
                        const std::string& tokenizer = small_model()) {
    const std::filesystem::path directory = scratch_.path() / name;
    std::filesystem::create_directories(directory);
    write_bytes(directory / "tokenizer.model", tokenizer);
    write_examples(directory / "train.h5", equal, without_targets, "", tokenizer);
    return directory.string();
  }
  /// `tokenizer_sha256`: of another tokenizer than make_data writes.
  static void write_examples(const std::filesystem::path& path, int64_t equal, int64_t without_targets,
                             const std::string& tokenizer_sha256 = "",
                             const std::string& model = small_model()) {
    const Tokenizer tokenizer(model, "small");
    TokenDatasetHeader header = header_of(tokenizer);
    if (!tokenizer_sha256.empty()) header.tokenizer_sha256 = tokenizer_sha256;
    TokenDatasetWriter writer(path, header);
    for (int64_t i = 0; i < equal; ++i)
      writer.add({.tokens = {1, 5, 6, 7, 8, 9, 10, 2}, .spans = {{5, 8, 1, 4}}});
    const TokenExample too_long{.tokens = std::vector<int32_t>(24, 3), .spans = {{22, 24, 1, 1}}};
    for (int64_t i = 0; i < without_targets; ++i) writer.add(too_long);
    writer.finish();
  }

  RunConfig config(const std::string& run, const std::string& data,
                   const std::vector<std::string>& overrides = {}) const {
    std::string text = kConfig;
    text.replace(text.find("RUN"), 3, (scratch_ / run).string());
    text.replace(text.find("DATA"), 4, data);
    return parse_run_config(text, "test", overrides);
  }
  /// Trains. Then said() has the lines for people.
  ExitCode train(const RunConfig& config, std::function<bool()> stop_requested = {}) {
    said_.clear();
    const auto say = [this](const std::string& line) {
      said_ += line + "\n";
      if (on_line_) on_line_(line);
    };
    return Trainer::make({.config = config,
                          .argv = {},
                          .say = say,
                          .stop_requested = std::move(stop_requested),
                          .allow_changes = allow_changes_,
                          .powercap = scratch_ / "class/powercap"},
                         world_)
        ->run();
  }
  /// The error that ends a run.
  Error refusal(const RunConfig& config) {
    const Error error = error_of([&] { train(config); });
    EXPECT_NE(error.code(), ExitCode::kOk) << "it ended without an error:\n" << said_;
    return error;
  }
  const std::string& said() const { return said_; }

  std::filesystem::path checkpoint(const std::string& run, int64_t step) const {
    return scratch_ / run / "checkpoints" / step_directory_name(step);
  }
  CheckpointState state(const std::string& run, int64_t step) const {
    Io io;
    return read_manifest(io, checkpoint(run, step)).state;
  }
  MetricsLog metrics(const std::string& run) const { return read_metrics(scratch_ / run / "metrics.jsonl"); }
  /// The steps in metrics.jsonl, as they stand there.
  std::vector<int64_t> steps(const std::string& run) const {
    std::vector<int64_t> result;
    for (const StepMetrics& step : metrics(run).steps) result.push_back(step.step);
    return result;
  }
  /// The losses in metrics.jsonl of the steps after `after`.
  std::vector<double> losses(const std::string& run, int64_t after = 0) const {
    std::vector<double> found;
    for (const StepMetrics& step : metrics(run).steps)
      if (step.step > after) found.push_back(step.loss);
    return found;
  }
  /// Weights, moments and place in the data after `step` are those of `other`, bit for bit.
  void expect_same(const std::string& run, const std::string& other, int64_t step) const {
    EXPECT_EQ(read_bytes(checkpoint(run, step) / "rank_00000.h5"),
              read_bytes(checkpoint(other, step) / "rank_00000.h5"));
    const CheckpointState a = state(run, step), b = state(other, step);
    EXPECT_EQ(std::tie(a.updates, a.cursor, a.tokens), std::tie(b.updates, b.cursor, b.tokens));
  }

  MpiWorld world_;
  ScratchDirectory scratch_;
  bool allow_changes_ = false;                       ///< --allow-changes
  std::function<void(const std::string&)> on_line_;  ///< called for each line that a run says

 private:
  std::string said_;
};

}  // namespace ripstop
