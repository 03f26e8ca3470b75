// The events of metrics.jsonl, written and read back.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/data/scratch_directory.h"
#include "tests/expect_has.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

class MetricsLines : public ::testing::Test {
 protected:
  std::string text() const { return read_bytes(path_); }
  void set_text(const std::string& text) const { write_bytes(path_, text); }

  ScratchDirectory scratch_;
  std::filesystem::path path_ = scratch_ / "metrics.jsonl";
};

TEST_F(MetricsLines, EveryEventReadsBackEqual) {
  StartEvent start;
  start.step = 3;
  start.steps = 2000;
  // A command line may hold quotes, and bytes that are not UTF-8.
  start.argv = {"ripstop", "train", "a \"b\".toml", "\xff"};
  start.version = "0.1.0";
  start.git_commit = "abc";
  start.mesh.fsdp = 2;
  start.mesh.tensor = 4;
  start.mesh.pipeline = 3;
  start.hosts = {"n1", "n2"};
  start.pipeline_layers = {5, 4, 3};
  start.recompute = "selective";
  start.reshard_after_forward = false;
  start.micro_batch_sequences = 4;
  start.micro_batches = 3;
  start.parameters = int64_t{1} << 40;
  start.flops_per_token = 1e11 / 3;
  start.flops_formula = "6 P + 6 L C T";
  start.plan = {.memory = {{1, 2, 3, 4, 5, 6, 7}}, .traffic_per_step = {7, 8, 9}};
  start.kernel_plans = 12;
  start.kernel_plans_seconds = 7.25;
  StepMetrics step;
  step.step = 1200;
  step.tokens = 4096;
  step.tokens_seen = 4915200;
  // With too few digits these numbers would lose their last bit.
  step.loss = 0.1 + 0.2;
  step.grad_norm = std::nextafter(0.41, 1.0);
  step.learning_rate = 1.98e-5;
  step.step_seconds = 1e-300;
  step.tokens_per_second = 118400.25;
  step.model_flops_utilization = 0.412;
  step.peak_memory_bytes = int64_t{61} << 30;
  step.communication_exposed_seconds.fsdp = 0.25;
  step.data_wait_seconds = 5e-324;
  start.startup = StartupSeconds{.program = 0.1,
                                 .mpi = 1.0 / 3,
                                 .data = 0.2,
                                 .memory = 0.3,
                                 .weights = 0.4,
                                 .resume = 0.5,
                                 .other = 0.6,
                                 .first_step = {},
                                 .total = 2.5};
  step.startup = start.startup;
  step.startup->first_step = 0.25;
  HostsEvent hosts;
  hosts.step = 1200;
  hosts.steps = 5;
  hosts.hosts = {"n1", "n2"};
  hosts.compute_seconds = {0.51234567, 123456.789};
  hosts.wait_seconds = {0, 1.0 / 3};
  hosts.slow = {{3, "n2", 0.52}};
  hosts.exclude = "--exclude=n2";
  ValidationEvent validation;
  validation.step = 1200;
  validation.loss = 2.25;
  validation.target_count = 12345;
  validation.best = true;
  validation.rougeL = 0.75;
  start.account = RunAccount{.node_hours = 1.0 / 3, .tokens = 5, .kwh = {}, .gpu_kwh = 0.25};
  start.tokens_seen = 4915200;
  EndEvent end;
  end.account = RunAccount{.node_hours = 2.0 / 3, .tokens = 9, .kwh = 1e-300, .gpu_kwh = {}};
  end.step = 1200;
  end.exit_code = 75;
  end.reason = EndReason::kStopRequested;
  end.planned = start.plan;
  end.measured = {{1, 2, 3, 4, 5, 6, 8}, {7, 8, 10}};
  {
    MetricsFile file(path_);
    file.write(start);
    file.write(step);
    file.write(hosts);
    file.write(validation);
    file.write(CheckpointEvent{1200, "checkpoints/step_00001200", 99, 1.5, 0});
    file.write(WarningEvent{1200, "loss spike", 0});
    file.write(end);
    file.sync();
  }
  const MetricsLog log = read_metrics(path_);
  ASSERT_EQ(log.starts.size(), 1u);
  EXPECT_EQ(log.starts[0].step, 3);
  EXPECT_EQ(log.starts[0].steps, 2000);
  EXPECT_EQ(log.starts[0].argv[2], "a \"b\".toml");
  EXPECT_EQ(log.starts[0].hosts, start.hosts);
  EXPECT_EQ(log.starts[0].pipeline_layers, start.pipeline_layers);
  EXPECT_EQ(log.starts[0].recompute, start.recompute);
  EXPECT_FALSE(log.starts[0].reshard_after_forward);
  EXPECT_EQ(log.starts[0].micro_batch_sequences, 4);
  EXPECT_EQ(log.starts[0].micro_batches, 3);
  EXPECT_EQ(log.starts[0].mesh, start.mesh);
  EXPECT_EQ(log.starts[0].parameters, start.parameters);
  EXPECT_EQ(log.starts[0].flops_per_token, start.flops_per_token);
  EXPECT_EQ(log.starts[0].plan, start.plan);
  EXPECT_EQ(log.starts[0].kernel_plans, 12);
  EXPECT_EQ(log.starts[0].kernel_plans_seconds, 7.25);
  EXPECT_GT(log.starts[0].time, 1.7e9);
  ASSERT_EQ(log.steps.size(), 1u);
  EXPECT_EQ(log.steps[0].loss, step.loss);
  EXPECT_EQ(log.steps[0].grad_norm, step.grad_norm);
  EXPECT_EQ(log.steps[0].step_seconds, step.step_seconds);
  EXPECT_EQ(log.steps[0].tokens_seen, step.tokens_seen);
  EXPECT_EQ(log.steps[0].model_flops_utilization, 0.412);
  EXPECT_FALSE(log.steps[0].model_flops_utilization_full_attention.has_value());
  EXPECT_EQ(log.steps[0].peak_memory_bytes, step.peak_memory_bytes);
  EXPECT_EQ(log.steps[0].communication_exposed_seconds.fsdp, 0.25);
  EXPECT_EQ(log.steps[0].data_wait_seconds, 5e-324);
  EXPECT_EQ(log.starts[0].startup, start.startup);
  EXPECT_EQ(log.steps[0].startup, step.startup);
  ASSERT_EQ(log.hosts.size(), 1u);
  EXPECT_EQ(log.hosts[0].steps, 5);
  EXPECT_EQ(log.hosts[0].hosts, hosts.hosts);
  EXPECT_EQ(log.hosts[0].compute_seconds, (std::vector<double>{0.5123, 123457})) << "four digits";
  EXPECT_EQ(log.hosts[0].wait_seconds, (std::vector<double>{0, 0.3333}));
  EXPECT_EQ(log.hosts[0].slow, hosts.slow);
  EXPECT_EQ(log.hosts[0].exclude, hosts.exclude);
  ASSERT_EQ(log.validations.size(), 1u);
  EXPECT_TRUE(log.validations[0].best);
  EXPECT_EQ(log.validations[0].rougeL, 0.75);
  EXPECT_FALSE(log.validations[0].rouge1.has_value());
  ASSERT_EQ(log.ends.size(), 1u);
  EXPECT_EQ(log.ends[0].reason, "stop_requested");
  ASSERT_EQ(log.checkpoints.size(), 1u);
  EXPECT_EQ(log.checkpoints[0].path, "checkpoints/step_00001200");
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_EQ(log.warnings[0].text, "loss spike");
  ASSERT_EQ(log.ends.size(), 1u);
  EXPECT_EQ(log.ends[0].exit_code, 75);
  EXPECT_EQ(log.ends[0].measured, end.measured);
  EXPECT_EQ(log.starts[0].account, start.account);
  EXPECT_EQ(log.starts[0].tokens_seen, 4915200);
  EXPECT_FALSE(log.steps[0].account);
  EXPECT_EQ(log.ends[0].account, end.account);
  EXPECT_TRUE(log.ended);
}

TEST_F(MetricsLines, NamesAreTheContracts) {
  {
    MetricsFile file(path_);
    file.write(StepMetrics{});
  }
  for (const char* key :
       {"\"event\":\"step\"", "\"step\":", "\"tokens\":", "\"loss\":", "\"grad_norm\":", "\"learning_rate\":",
        "\"step_seconds\":", "\"tokens_per_second\":", "\"model_flops_utilization\":null",
        "\"model_flops_utilization_full_attention\":null", "\"peak_memory_bytes\":",
        "\"communication_exposed_seconds\":{\"replicate\":0.0,\"pipeline\":0.0,", "\"data_wait_seconds\":"})
    EXPECT_HAS(text(), key);
}

TEST_F(MetricsLines, WhatIsNotFiniteIsNull) {
  {
    MetricsFile file(path_);
    StepMetrics step;
    step.loss = std::nan("");
    step.grad_norm = INFINITY;
    file.write(step);
  }
  EXPECT_HAS(text(), "\"loss\":null,\"grad_norm\":null");
  EXPECT_TRUE(std::isnan(read_metrics(path_).steps.at(0).loss));
}

TEST_F(MetricsLines, RunsBeforeThePipelineHadOneStage) {
  set_text(R"({"event":"start","step":0,"mesh":{"replicate":2,"fsdp":3,"tensor":4,"hosts":["a"]}}
{"event":"step","step":1,"communication_exposed_seconds":{"replicate":0.5,"fsdp":0.25,"tensor":0.125}}
)");
  const MetricsLog log = read_metrics(path_);
  EXPECT_EQ(log.starts.at(0).mesh, (MeshSizes{.replicate = 2, .fsdp = 3, .tensor = 4, .pipeline = 1}));
  EXPECT_EQ(log.steps.at(0).communication_exposed_seconds,
            (AxisSeconds{.replicate = 0.5, .fsdp = 0.25, .tensor = 0.125, .pipeline = 0}));
}

TEST_F(MetricsLines, UnknownEventsAndKeysAreSkipped) {
  set_text("{\"event\":\"later\",\"step\":1}\n{\"event\":\"step\",\"step\":2,\"new\":[1]}\n");
  const MetricsLog log = read_metrics(path_);
  ASSERT_EQ(log.steps.size(), 1u);
  EXPECT_EQ(log.steps[0].step, 2);
}

TEST_F(MetricsLines, IntegersBeyondTheirTypeAreRefused) {
  set_text("{\"event\":\"end\",\"step\":1,\"exit_code\":4294967296}\n");
  EXPECT_HAS(read_metrics(path_).damage, "'exit_code' must be a whole number from -2147483648 to 2147483647");
}

}  // namespace
}  // namespace ripstop
