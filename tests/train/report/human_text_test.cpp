#include "train/report/human_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/expect_has.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

TEST(HumanText, DurationsAndSizes) {
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(750), "12m30s");
  EXPECT_EQ(duration_text(3600 * 3 + 720), "3h12m");
  EXPECT_EQ(duration_text(86400 * 2 + 4 * 3600), "2d04h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::nan("")), "?");
  EXPECT_EQ(clock_text(1e300), "?");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(int64_t{64} << 30), "64.0 GiB");
  EXPECT_EQ(bytes_text(10737418), "10.2 MiB");
}

TEST(HumanText, CountsHaveThePlural) {
  EXPECT_EQ(counted(1, "document"), "1 document");
  EXPECT_EQ(counted(0, "document"), "0 documents");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(counted(2, "summary"), "2 summaries");
  EXPECT_EQ(counted(2, "day"), "2 days");
}

TEST(HumanText, AnAccountTellsWhatIsKnown) {
  RunAccount account{.node_hours = 1.5, .tokens = 744'000, .kwh = {}, .gpu_kwh = {}};
  EXPECT_EQ(account_text({}), "");
  EXPECT_EQ(account_text(account), "1.5 node-hours, energy not readable");
  account.gpu_kwh = 0.5;
  EXPECT_EQ(account_text(account), "1.5 node-hours, 0.5 kWh of GPUs");
  account.kwh = 0.62;
  EXPECT_EQ(account_text(account), "1.5 node-hours, 0.62 kWh (413.3 W a node, 1.2M tokens a kWh)");
}

TEST(HumanText, LittleHasNoExponents) {
  EXPECT_EQ(amount_text(0), "0");
  EXPECT_EQ(amount_text(5.18e-8), "<0.001");
  EXPECT_EQ(amount_text(0.0012), "0.0012");
  EXPECT_EQ(seconds_text(1.86e-5), "18.6 us");
  EXPECT_EQ(seconds_text(0.001), "0.001 s");
  EXPECT_EQ(seconds_text(12.345), "12.3 s");
  RunAccount account{.node_hours = 5.18e-8, .tokens = 100, .kwh = 1e-8, .gpu_kwh = {}};
  EXPECT_EQ(account_text(account), "<0.001 node-hours, <0.001 kWh (193.1 W a node, 10G tokens a kWh)");
}

TEST(HumanText, PerplexityIsShortHoweverLarge) {
  EXPECT_EQ(perplexity_text(0), "1.000");
  EXPECT_EQ(perplexity_text(std::log(23.1074)), "23.107");
  EXPECT_EQ(perplexity_text(std::log(999999.0)), "999999.000");
  EXPECT_EQ(perplexity_text(std::log(2.5e6)), "2.5e+06");
  EXPECT_EQ(perplexity_text(97.84), "3.1e+42");
  EXPECT_EQ(perplexity_text(300), "1.9e+130");
  EXPECT_EQ(perplexity_text(1000), "inf");
  EXPECT_EQ(perplexity_text(std::nan("")), "nan");
  EXPECT_EQ(perplexity_text(std::copysign(std::nan(""), -1)), "nan");
}

TEST(HumanText, PathsLoseTheFoldersThatAllShare) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(short_paths({"/data/sets/xsum/", "/data/sets/./chats"}), (Paths{"xsum", "chats"}));
  EXPECT_EQ(short_paths({"sets/xsum/made", "sets/chats/made"}), (Paths{"xsum/made", "chats/made"}));
  EXPECT_EQ(short_paths({"sets/a", "sets/a/b"}), (Paths{"a", "a/b"}));
  EXPECT_EQ(short_paths({"a/b/c"}), Paths{"c"});
  EXPECT_EQ(short_paths({"a/b/c"}, 2), Paths{"b/c"});
  EXPECT_EQ(short_paths({}), Paths{});
}

TEST(ModelText, NamesThePartsBesideThoseOfLlama2) {
  const auto text_of = [](std::string_view preset) {
    ModelConfig model = find_model_preset(preset)->config;
    model.vocab_size = 50;
    return model_text(model) + ";";
  };
  EXPECT_EQ(text_of("llama2-7b"),
            "32 layers, hidden 4096, feed-forward 11008, 32 heads (32 key-value), 50 pieces;");
  EXPECT_HAS(text_of("qwen2.5-0.5b"), "14 heads (2 key-value), 50 pieces, tied, attention_bias qkv;");
  EXPECT_HAS(text_of("qwen3-0.6b"), " pieces, tied, head_dim 128, qk_norm true;");
  EXPECT_HAS(text_of("llama3.1-8b"),
             " pieces, rope_type llama3, rope_factor 8.0, rope_original_max_position_embeddings 8192;");
}

StepMetrics step_1200() {
  StepMetrics step;
  step.step = 1200;
  step.loss = 2.31874;
  step.grad_norm = 0.41;
  step.learning_rate = 1.98e-5;
  step.tokens_per_second = 118400.2;
  step.model_flops_utilization = 0.412;
  step.peak_memory_bytes = static_cast<int64_t>(61.3 * (int64_t{1} << 30));
  return step;
}

TEST(StepLine, IsTheContracts) {
  StepMetrics step = step_1200();
  EXPECT_EQ(
      step_line(step, 20000, int64_t{64} << 30, 11520),
      "step 1200/20000  loss 2.3187  grad_norm 0.41  lr 1.98e-05  118400 tok/s  mfu 41.2%  61.3/64.0 GiB  "
      "eta 3h12m");
  step.model_flops_utilization.reset();
  step.grad_norm = 0.00321;
  EXPECT_EQ(step_line(step, 20000, std::nullopt, 59.6),
            "step 1200/20000  loss 2.3187  grad_norm 0.0032  lr 1.98e-05  118400 tok/s  61.3 GiB  eta 1m00s");
}

// The sign of a NaN is arbitrary.
TEST(StepLine, NanHasNoSign) {
  StepMetrics step;
  step.loss = step.grad_norm = std::copysign(std::nan(""), -1);
  EXPECT_HAS(step_line(step, 1, std::nullopt, 0), "  loss nan  grad_norm nan  ");
  EXPECT_HAS(live_step_line(step, 1, 0), "  loss nan  ");
}

TEST(StepLine, TheLiveLineHasWhatPeopleWaitFor) {
  EXPECT_EQ(live_step_line(step_1200(), 20000, 11520),
            "step 1200/20000  loss 2.3187  118400 tok/s  eta 3h12m");
}

TEST(StepLine, MemoryChoosesItsUnit) {
  StepMetrics step;
  step.peak_memory_bytes = int64_t{2600} << 10;
  EXPECT_HAS(step_line(step, 1, std::nullopt, 0), "  2.5 MiB  eta");
  EXPECT_HAS(step_line(step, 1, int64_t{64} << 30, 0), "  2.5 MiB/64.0 GiB  eta");
  EXPECT_HAS(step_line(step, 1, int64_t{5} << 20, 0), "  2.5/5.0 MiB  eta");
}

}  // namespace
}  // namespace ripstop
