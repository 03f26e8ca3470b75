// The choice of a check: the config's model if it fits, else one of the same shape.
#include "train/check/check_settings.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"

namespace ripstop {
namespace {

ResolvedRun run_of(const char* preset, const MeshSizes& mesh, int64_t positions = 256) {
  ResolvedRun run;
  run.model = find_model_preset(preset)->config;
  if (run.model.vocab_size == 0) run.model.vocab_size = 400;
  run.mesh = mesh;
  run.step.sharding.compute = DType::kBFloat16;
  run.step.sharding.sequence_count = 8;
  run.step.sharding.sequence_length = positions;
  run.step.sharding.recompute = Recompute::kFull;
  return run;
}

constexpr MeshSizes kFourRanks{.replicate = 1, .fsdp = 2, .tensor = 2};

TEST(CheckSettings, TheConfigsModelIfItFits) {
  const ResolvedRun run = run_of("15m", kFourRanks);
  const CheckSettings settings = choose_check(run, DeviceKind::kCpu, 1, {});
  EXPECT_EQ(settings.kind, CheckedModel::kWhole);
  EXPECT_EQ(settings.reason, "");
  EXPECT_EQ(settings.model, run.model);
  EXPECT_EQ(settings.step.sharding.sequence_length, 256);
  EXPECT_EQ(settings.step.sharding.sequence_count, 2);
  EXPECT_EQ(settings.step.sharding.recompute, Recompute::kFull) << "on the mesh as in the run";
  EXPECT_EQ(settings.reference_recompute, Recompute::kNone);
  EXPECT_EQ(settings.request(kFourRanks).micro_batches, 2);
  EXPECT_EQ(settings.reference_request(kFourRanks).micro_batches, 8)
      << "those of both data ranks, one by one";
  EXPECT_EQ(settings.reference_request(kFourRanks).mesh, (MeshSizes{1, 1, 1}));
}

TEST(CheckSettings, MemoryDecides) {
  ResolvedRun run = run_of("110m", kFourRanks);
  run.step.sharding.compute = DType::kFloat32;
  CheckSettings settings = choose_check(run, DeviceKind::kCpu, 1, {});
  ASSERT_EQ(settings.kind, CheckedModel::kWhole);
  const int64_t whole = check_bytes(settings, kFourRanks);
  // Prefers recomputation on the rank alone to a smaller model.
  settings = choose_check(run, DeviceKind::kCpu, 1, {.memory_bytes = whole - 1, .flops_text = {}});
  EXPECT_EQ(settings.kind, CheckedModel::kWhole);
  EXPECT_NE(settings.reference_recompute, Recompute::kNone);
  settings.reference_recompute = Recompute::kFull;
  const int64_t least = check_bytes(settings, kFourRanks);
  settings = choose_check(run, DeviceKind::kCpu, 1, {.memory_bytes = least - 1, .flops_text = {}});
  EXPECT_EQ(settings.kind, CheckedModel::kFewerLayers);
  EXPECT_HAS(settings.reason, "one rank would need ");
  EXPECT_EQ(settings.model.num_hidden_layers, 3);
  EXPECT_EQ(settings.model.hidden_size, 768);
  EXPECT_LE(check_bytes(settings, kFourRanks), least - 1);
  settings = choose_check(run, DeviceKind::kCpu, 1, {.memory_bytes = int64_t{64} << 20, .flops_text = {}});
  EXPECT_EQ(settings.kind, CheckedModel::kSmall);
  EXPECT_LE(check_bytes(settings, kFourRanks), int64_t{64} << 20);
  expect_error([&] { choose_check(run, DeviceKind::kCpu, 1, {.memory_bytes = 1000, .flops_text = {}}); },
               ExitCode::kResources, "the small model of a check does not fit: one rank would need ");
}

TEST(CheckSettings, InBfloat16AtMostSixLayers) {
  ResolvedRun run = run_of("110m", kFourRanks);
  CheckSettings settings = choose_check(run, DeviceKind::kCpu, 1, {});
  EXPECT_EQ(settings.kind, CheckedModel::kFewerLayers);
  EXPECT_EQ(settings.model.num_hidden_layers, 6);
  EXPECT_HAS(settings.reason, "bfloat16");
  run.model.num_hidden_layers = 6;
  EXPECT_EQ(choose_check(run, DeviceKind::kCpu, 1, {}).kind, CheckedModel::kWhole);
}

TEST(CheckSettings, TimeDecides) {
  ResolvedRun run = run_of("110m", kFourRanks);
  run.step.sharding.compute = DType::kFloat32;
  CheckSettings settings = choose_check(run, DeviceKind::kCpu, 1, {.flops = 1e11, .flops_text = "5 minutes"});
  EXPECT_EQ(settings.kind, CheckedModel::kSmall);
  EXPECT_EQ(settings.reason, "one rank would compute longer than 5 minutes");
  EXPECT_EQ(choose_check(run, DeviceKind::kCpu, 1, {.flops = 1e16, .flops_text = {}}).kind,
            CheckedModel::kWhole);
  EXPECT_EQ(choose_check(run, DeviceKind::kCpu, 1, {.flops_text = {}, .small = true}).kind,
            CheckedModel::kSmall);
  run.model = small_model(run.model, run.mesh.tensor, /*stages=*/1);
  settings = choose_check(run, DeviceKind::kCpu, 1, {.flops_text = {}, .small = true});
  EXPECT_EQ(settings.kind, CheckedModel::kWhole);
  EXPECT_EQ(settings.reason, "");
}

TEST(CheckSettings, TheSmallModelIsCutAsTheLargeOne) {
  for (const ModelPreset& preset : model_presets())
    for (const int64_t tensor : tensor_axis_sizes(preset.config)) {
      ModelConfig model = preset.config;
      if (model.vocab_size == 0) model.vocab_size = 32003;
      const ModelConfig small = small_model(model, tensor, /*stages=*/1);
      SCOPED_TRACE(fmt::format("{} tensor {}", preset.name, tensor));
      validate(small);
      check_tensor_axis(small, tensor);
      EXPECT_LE(parameter_count(small), parameter_count(model));
      EXPECT_EQ(small.num_attention_heads * model.num_key_value_heads,
                model.num_attention_heads * small.num_key_value_heads);
      EXPECT_EQ(small.tie_word_embeddings, model.tie_word_embeddings);
      EXPECT_NEAR(static_cast<double>(small.query_size()) / static_cast<double>(small.hidden_size),
                  static_cast<double>(model.query_size()) / static_cast<double>(model.hidden_size), 0.1);
      EXPECT_EQ(small.num_key_value_heads > tensor, model.num_key_value_heads > tensor);
      for (const auto size : {&ModelConfig::vocab_size, &ModelConfig::intermediate_size}) {
        const auto padding = [&](int64_t whole) { return slice_extent(whole, tensor) * tensor - whole; };
        EXPECT_EQ(padding(small.*size), padding(model.*size));
      }
      if (preset.name == "llama2-7b") {
        EXPECT_LT(parameter_count(small), 20'000'000);
      }
    }
}

TEST(CheckSettings, AdaptersAreThoseOfTheRunAsFarAsTheModelHasRoom) {
  ResolvedRun run = run_of("110m", kFourRanks);
  const CheckSettings without = choose_check(run, DeviceKind::kCpu, 1, {});
  LoraConfig& lora = run.step.sharding.lora;
  lora = {.rank = 300, .alpha = 16, .dropout = 0.1, .rslora = true};
  const CheckSettings settings = choose_check(run, DeviceKind::kCpu, 1, {});
  LoraConfig expected = lora;
  expected.dropout = 0;
  expected.alpha = settings.step.sharding.lora.alpha;
  EXPECT_DOUBLE_EQ(settings.step.sharding.lora.scale(), 1);
  EXPECT_EQ(settings.step.sharding.lora, expected);
  EXPECT_LT(check_bytes(settings, kFourRanks), check_bytes(without, kFourRanks));
  EXPECT_EQ(settings.request(kFourRanks).step.sharding.lora, expected);
  EXPECT_EQ(settings.reference_request(kFourRanks).step.sharding.lora, expected);
  // On so few elements, gradients of norm 0.01 are larger, and so is epsilon.
  EXPECT_GT(settings.step.adamw.epsilon, without.step.adamw.epsilon);
  const CheckSettings small = choose_check(run, DeviceKind::kCpu, 1, {.flops_text = {}, .small = true});
  EXPECT_LT(small.step.sharding.lora.rank, 300);
  EXPECT_DOUBLE_EQ(small.step.sharding.lora.scale(), 1);
  validate(small.step.sharding.lora, small.model);
  EXPECT_EQ(without.step.sharding.lora, LoraConfig{});
}

TEST(CheckSettings, RowsDivideByTheTensorAxis) {
  ResolvedRun run = run_of("15m", {.replicate = 1, .fsdp = 1, .tensor = 6}, 100);
  EXPECT_EQ(choose_check(run, DeviceKind::kCpu, 1, {}).step.sharding.sequence_count, 3);
  run.step.sharding.sequence_length = 96;
  EXPECT_EQ(choose_check(run, DeviceKind::kCpu, 1, {}).step.sharding.sequence_count, 2);
  run.step.sharding.sequence_count = 1;
  EXPECT_EQ(choose_check(run, DeviceKind::kCpu, 1, {}).step.sharding.sequence_count, 1);
  const CheckSettings small =
      choose_check(run_of("110m", {1, 1, 12}, 1024), DeviceKind::kCpu, 1, {.flops_text = {}, .small = true});
  EXPECT_EQ(small.step.sharding.sequence_length % 12, 0);
  EXPECT_LT(small.step.sharding.sequence_length, 200);
}

TEST(CheckSettings, APipelineHasALayerForEachStageAndTwoMicroBatches) {
  const MeshSizes mesh{.fsdp = 1, .tensor = 2, .pipeline = 8};
  ResolvedRun run = run_of("110m", mesh);
  run.step.sharding.stage_layers = {2, 2, 2, 2, 2, 1, 1, 0};
  const CheckSettings whole = choose_check(run, DeviceKind::kCpu, 1, {}),
                      small = choose_check(run, DeviceKind::kCpu, 1, {.flops_text = {}, .small = true});
  EXPECT_EQ(whole.model.num_hidden_layers, 8) << "the most in bfloat16, but for one of each stage";
  EXPECT_EQ(small.model.num_hidden_layers, 8);
  EXPECT_TRUE(whole.step.sharding.stage_layers.empty()) << "these stages have more layers";
  EXPECT_EQ(whole.request(mesh).micro_batches, 16);
  EXPECT_EQ(whole.tokens(mesh).slots(), 32);
  EXPECT_EQ(whole.request({.fsdp = 1, .tensor = 2}).micro_batches, 2);
  run.model.num_hidden_layers = 7;
  run.step.sharding.stage_layers = {1, 1, 1, 1, 1, 1, 1, 0};
  const CheckSettings as_given = choose_check(run, DeviceKind::kCpu, 1, {.flops_text = {}, .small = true});
  EXPECT_EQ(as_given.model.num_hidden_layers, 7);
  EXPECT_EQ(as_given.request(mesh).step.sharding.stage_layers, run.step.sharding.stage_layers);
  EXPECT_TRUE(as_given.request({.fsdp = 1, .tensor = 2}).step.sharding.stage_layers.empty());
}

// With equal micro-batches, a step that skips one would skip the same one on both sides.
TEST(CheckSettings, TheOneRankTakesOtherMicroBatches) {
  ResolvedRun run = run_of("15m", kFourRanks);
  for (const MeshSizes& mesh : {MeshSizes{1, 1, 1}, MeshSizes{1, 1, 2}, MeshSizes{1, 3, 1}})
    for (const int64_t sequences : {1, 2}) {
      run.mesh = mesh;
      run.step.sharding.sequence_count = sequences;
      const CheckSettings settings = choose_check(run, DeviceKind::kCpu, 1, {});
      const PlanRequest on_mesh = settings.request(mesh), alone = settings.reference_request(mesh);
      EXPECT_EQ(on_mesh.step.sharding.sequence_count, sequences);
      EXPECT_NE(alone.micro_batches, on_mesh.micro_batches);
      EXPECT_EQ(alone.micro_batches * alone.step.sharding.sequence_count, settings.tokens(mesh).slots());
    }
}

// The check clips and decays if and only if the run does, and enough to show.
TEST(CheckSettings, ClippingAndDecayAreAsInTheRun) {
  ResolvedRun run = run_of("debug", kFourRanks);
  CheckSettings settings = choose_check(run, DeviceKind::kCpu, 1, {});
  EXPECT_NEAR(settings.step.adamw.weight_decay * settings.learning_rate, 0.1, 1e-12);
  EXPECT_GT(settings.step.max_grad_norm, 0);
  EXPECT_LT(settings.step.max_grad_norm, 0.1);
  run.step.adamw.weight_decay = 0;
  run.step.max_grad_norm = 0;
  settings = choose_check(run, DeviceKind::kCpu, 1, {});
  EXPECT_EQ(settings.step.adamw.weight_decay, 0);
  EXPECT_EQ(settings.step.max_grad_norm, 0);
}

}  // namespace
}  // namespace ripstop
