// Adapters on every mesh of this world: fifty steps compared with peft (tests/golden/make_lora.py), and steps
// with dropout compared with one rank.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "parallel/agreement.h"
#include "tests/data/scratch_directory.h"
#include "tests/test_files.h"
#include "tests/train/checkpoint/memory_writer.h"
#include "tests/train/exchange/golden_pairs.h"
#include "tests/train/exchange/load_pretrained.h"
#include "tests/train/step/layout_model.h"
#include "tests/train/step/mesh_training.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

using golden_pairs::IdPair;
using mesh_training::MeshTraining;
using mesh_training::Sequence;
using nlohmann::json;

/// Copies the adapters of `adapter`, which may have more targets, into the run.
void set_adapters(MeshTraining& run, const PeftAdapter& adapter) {
  for (FsdpUnit& unit : run.step->model().trained_units()) {
    std::vector<float> shard(static_cast<size_t>(unit.layout().shard_elements()), 7.0F);
    read_peft(adapter, unit.layout(), unit.shard_begin(), unit.shard_begin() + std::ssize(shard),
              shard.data());
    unit.set_shard(0, shard);
  }
  run.step->model().weights_changed(run.step->arena());
}

/// The norms of a and b over all layers, by target: "q_proj.lora_A".
std::map<std::string, double> norms_of(MeshTraining& run, const LoraConfig& lora) {
  std::map<std::string, std::string> key_of;
  std::map<std::string, double> squares;
  for (const AdapterSpec& adapter : adapter_specs(run.request.model, lora))
    for (const char letter : {'A', 'B'}) {
      const std::string key =
          std::string(kLoraTargets[static_cast<size_t>(adapter.target)]) + ".lora_" + letter;
      key_of[adapter_name(adapter.matrix.name, letter)] = key;
      squares[key] = 0;
    }
  const MeshCoordinates at = run.mesh.coordinates();
  for (FsdpUnit& unit : run.step->model().trained_units())
    run.each_element(unit, unit.master(), [&](const ParameterSpec& p, int64_t, float& value) {
      if (at.replicate == 0 && (p.cut != Cut::kNone || at.tensor == 0))
        squares[key_of.at(p.name)] += static_cast<double>(value) * static_cast<double>(value);
    });
  std::vector<double> values;
  for (const auto& [key, square] : squares) values.push_back(square);
  values = mesh_training::sum_over_world(values);
  size_t i = 0;
  for (auto& [key, square] : squares) square = std::sqrt(values[i++]);
  return squares;
}

LoraConfig lora_of(const json& one, const json& run) {
  LoraConfig lora{.rank = one["rank"], .alpha = one["alpha"], .rslora = run["rslora"], .targets = {}};
  for (size_t t = 0; t < kLoraTargets.size(); ++t)
    for (const json& target : run["target_modules"])
      if (target.get<std::string>() == kLoraTargets[t]) lora.targets[t] = true;
  return lora;
}

/// Takes the first `most` steps of one case of steps.json: all runs on one rank, and one run on each mesh of
/// several ranks. Other tests below compare every mesh with one rank.
void expect_steps_of_peft(const json& golden, const json& one, const std::filesystem::path& base,
                          const std::vector<IdPair>& pairs, int64_t most) {
  ASSERT_EQ(golden_pairs::checksum(pairs), one["checksum"].get<uint32_t>()) << "other ids than peft had";
  const int64_t count = one["sequences"], steps = golden["steps"], positions = one["sequence_length"];
  const std::vector<Sequence> sequences = golden_pairs::packed(pairs, positions);
  const ScheduleSection schedule{.kind = ScheduleKind::kCosine,
                                 .warmup_steps = golden["warmup_steps"],
                                 .minimum_ratio = golden["minimum_ratio"]};
  const ModelConfig config = read_pretrained_config(base);
  const PeftAdapter start = open_peft_adapter(golden_file(one["start"].get<std::string>().c_str()), config);
  const std::vector<int64_t> axes = tensor_axis_sizes(config);
  auto next = static_cast<size_t>(layouts::ranks());
  for (const MeshSizes& mesh : layouts::meshes()) {
    if (std::find(axes.begin(), axes.end(), mesh.tensor) == axes.end()) continue;
    const json& runs = one["runs"];
    const json chosen = mesh.ranks() == 1 ? runs : json::array({runs[next++ % runs.size()]});
    for (const json& expected : chosen) {
      StepOptions options;
      options.sharding = {.compute = DType::kFloat32, .sequence_count = 0, .sequence_length = positions};
      options.sharding.lora = lora_of(one, expected);
      options.adamw.weight_decay = golden["weight_decay"];
      SCOPED_TRACE(fmt::format("{} on {}, {} targets, rslora {}", base.string(), mesh.to_text(),
                               expected["target_modules"].size(), options.sharding.lora.rslora));
      MeshTraining run(config, options, mesh, count);
      load_pretrained(base, run.step->model(), run.step->arena());
      set_adapters(run, start);
      for (int64_t s = 1; s <= std::min(steps, most); ++s) {
        const auto at = static_cast<size_t>(s - 1);
        std::vector<Sequence> batch;
        for (int64_t i = 0; i < count; ++i)
          batch.push_back(sequences[static_cast<size_t>((s - 1) * count + i) % sequences.size()]);
        const double rate = one["learning_rate"].get<double>() * learning_rate_factor(schedule, s, steps);
        const StepResult result = run.run(batch, rate, s);
        const double loss = expected["losses"][at], norm = expected["gradient_norms"][at];
        ASSERT_EQ(result.sum.target_count, one["targets"][at].get<int64_t>()) << "step " << s;
        ASSERT_NEAR(result.loss, loss, 1e-4 * loss) << "step " << s;
        ASSERT_NEAR(result.gradient_norm, norm, 2e-3 * norm) << "step " << s;
      }
      if (most < steps) continue;
      for (const auto& [key, norm] : norms_of(run, options.sharding.lora)) {
        const double value = expected["norms"][key];
        EXPECT_NEAR(norm, value, 1e-3 * value) << key;
      }
    }
  }
}

TEST(LoraRanks, FiftyStepsOfPeft) {
  const json finetuning = json::parse(std::ifstream(golden_file("finetuning.json")));
  const json golden = json::parse(std::ifstream(golden_file("lora/steps.json")));
  expect_steps_of_peft(golden, golden["synthetic"], golden_file("pretrained/untied_bf16"),
                       golden_pairs::synthetic_pairs(finetuning), golden["steps"]);
}

// A mesh that differs does so in its first steps: all fifty are compared above on every mesh.
TEST(LoraRanks, FiftyStepsOfPeftOnAPublishedModel) {
  const json golden = json::parse(std::ifstream(golden_file("lora/steps.json")));
  const json& one = golden["stories"];
  const auto model = shared_file("data/models/stories260K");
  const auto articles = shared_file(one["file"]);
  if (!model || !articles) GTEST_SKIP() << "no shared/data/models and shared/data/xsum beside the checkout";
  expect_steps_of_peft(golden, one, *model / "hf",
                       golden_pairs::article_pairs(*model / "tok512.model", *articles, one),
                       layouts::ranks() == 1 ? 50 : 10);
}

// ---- layouts, with dropout

using layouts::kFewSteps;
using layouts::kMoreSteps;
using layouts::kSequences;
using layouts::kSteps;

/// Three documents a sequence, all targets, and a LoRA rank that no axis divides.
StepOptions with_adapters(DType compute, int64_t micro = 0) {
  StepOptions step = layouts::options(compute, micro);
  step.sharding.lora = {.rank = 5, .alpha = 8, .dropout = 0.2, .targets = {}};
  step.sharding.lora.targets.fill(true);
  step.adamw.seed = 11;
  return step;
}

std::vector<double> adapter_losses(MeshTraining& run, int64_t first = 1, int64_t last = kSteps) {
  const ScheduleSection schedule{.kind = ScheduleKind::kCosine, .warmup_steps = 5, .minimum_ratio = 0.1};
  std::vector<double> values;
  for (int64_t s = first; s <= last; ++s)
    values.push_back(
        run.run(layouts::sequences_of_step(s), 1e-2 * learning_rate_factor(schedule, s, kSteps), s).loss);
  return values;
}

std::vector<double> adapter_losses_on(const MeshSizes& mesh, bool tied, const StepOptions& step,
                                      int64_t steps = kSteps) {
  MeshTraining run(layouts::model(tied), step, mesh, kSequences);
  mesh_training::initialize_with_adapters(run);
  return adapter_losses(run, 1, steps);
}

// Targets with some of the adapters of a fused matrix, with none of them, and with none in the lowest
// sub-layer.
const std::vector<std::vector<LoraTarget>> kSomeTargets = {
    {LoraTarget::kQuery, LoraTarget::kValue},
    {LoraTarget::kKey},
    {LoraTarget::kOutput},
    {LoraTarget::kGate},
    {LoraTarget::kUp},
    {LoraTarget::kDown},
    {LoraTarget::kValue, LoraTarget::kUp, LoraTarget::kDown}};

StepOptions with_targets(const std::vector<LoraTarget>& targets) {
  StepOptions step = with_adapters(DType::kFloat32);
  step.sharding.lora.targets.fill(false);
  for (const LoraTarget target : targets) step.sharding.lora.targets[static_cast<size_t>(target)] = true;
  return step;
}

std::string name_of(const std::vector<LoraTarget>& targets) {
  std::string name;
  for (const LoraTarget target : targets)
    name += std::string(name.empty() ? "" : " ") + std::string(kLoraTargets[static_cast<size_t>(target)]);
  return name;
}

StepOptions with_short_moments() {
  StepOptions step = with_adapters(DType::kFloat32);
  step.adamw.moments = DType::kBFloat16;
  return step;
}

TEST(LoraRanks, OneRankWritesTheReference) {
  if (layouts::ranks() != 1) return;
  json out;
  for (const std::vector<LoraTarget>& targets : kSomeTargets)
    out[name_of(targets)] = adapter_losses_on({1, 1, 1}, false, with_targets(targets), kFewSteps);
  out["short moments"] = adapter_losses_on({1, 1, 1}, true, with_short_moments(), kMoreSteps);
  for (const bool tied : {false, true}) {
    const std::vector<double> values = adapter_losses_on({1, 1, 1}, tied, with_adapters(DType::kFloat32));
    EXPECT_LT(values.back(), 0.97 * values.front()) << "it learns";
    out[tied ? "tied" : "untied"] = values;
    StepOptions without = with_adapters(DType::kFloat32);
    without.sharding.lora.dropout = 0;
    EXPECT_NE(adapter_losses_on({1, 1, 1}, tied, without, 2),
              adapter_losses_on({1, 1, 1}, tied, with_adapters(DType::kFloat32), 2));
  }
  std::ofstream(layouts::reference_file()) << out.dump();
}

TEST(LoraRanks, EveryMeshAgreesWithOneRank) {
  for (const MeshSizes& mesh : layouts::meshes())
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(mesh.to_text() + (tied ? ", tied" : ""));
      layouts::expect_equal_losses(
          adapter_losses_on(mesh, tied, with_adapters(DType::kFloat32), tied ? kSteps : kFewSteps),
          layouts::reference(tied ? "tied" : "untied"), 1e-5);
    }
}

TEST(LoraRanks, EveryChoiceOfTargetsAgreesWithOneRank) {
  for (const MeshSizes& mesh : layouts::meshes())
    for (const std::vector<LoraTarget>& targets : kSomeTargets) {
      SCOPED_TRACE(mesh.to_text() + ", " + name_of(targets));
      layouts::expect_equal_losses(adapter_losses_on(mesh, false, with_targets(targets), kFewSteps),
                                   layouts::reference(name_of(targets).c_str()), 1e-5);
    }
}

// Rounding of equal gradients is equal on every mesh, but the last digits of gradients differ.
TEST(LoraRanks, ShortMomentsAndShortSumsAgree) {
  for (const MeshSizes& mesh : layouts::meshes()) {
    SCOPED_TRACE(mesh.to_text());
    StepOptions step = with_short_moments();
    const std::vector<double> losses = adapter_losses_on(mesh, true, step, kMoreSteps);
    layouts::expect_equal_losses(losses, layouts::reference("short moments"), 1e-3);
    EXPECT_EQ(adapter_losses_on(mesh, true, step, kMoreSteps), losses);
    step.sharding.reduce = DType::kBFloat16;
    layouts::expect_equal_losses(adapter_losses_on(mesh, true, step, kMoreSteps),
                                 layouts::reference("short moments"), 1e-2);
  }
}

TEST(LoraRanks, AccumulationResidentWeightsAndOverlapChangeNothing) {
  for (const MeshSizes& mesh : layouts::meshes()) {
    SCOPED_TRACE(mesh.to_text());
    StepOptions step = with_adapters(DType::kFloat32, 1);
    step.sharding.reshard_after_forward = false;
    step.sharding.overlap_tensor = true;
    layouts::expect_equal_losses(adapter_losses_on(mesh, true, step, kFewSteps), layouts::reference("tied"),
                                 1e-5);
  }
}

TEST(LoraRanks, TheSameMeshTwiceAndRecomputingAreBitEqual) {
  for (const MeshSizes& mesh : layouts::meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
      StepOptions step = with_adapters(compute, 2);
      const std::vector<double> expected = adapter_losses_on(mesh, true, step, 3);
      for (const Recompute recompute : kRecomputes) {
        SCOPED_TRACE(fmt::format("{} {} {}", mesh.to_text(), to_string(compute), to_string(recompute)));
        step.sharding.recompute = recompute;
        EXPECT_EQ(adapter_losses_on(mesh, true, step, 3), expected);
      }
    }
}

TEST(LoraRanks, Bfloat16AgreesWithFloat32) {
  for (const MeshSizes& mesh : layouts::meshes()) {
    SCOPED_TRACE(mesh.to_text());
    layouts::expect_equal_losses(adapter_losses_on(mesh, true, with_adapters(DType::kBFloat16), kMoreSteps),
                                 layouts::reference("tied"), 2e-2);
  }
}

TEST(LoraRanks, PlanEqualsWhatAStepUses) {
  std::vector<Sequence> sequences = layouts::sequences_of_step(1);
  for (Sequence& sequence : sequences)  // a target in every row, as the plan assumes
    for (size_t i = 0; i < sequence.target.size(); ++i) sequence.target[i] = sequence.token[i];
  for (const MeshSizes& mesh : layouts::meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16})
      for (const Recompute recompute : kRecomputes)
        for (const bool reshards : {true, false}) {
          SCOPED_TRACE(
              fmt::format("{} {} {} {}", mesh.to_text(), to_string(compute), to_string(recompute), reshards));
          StepOptions step = with_adapters(compute, 2);
          step.sharding.recompute = recompute;
          step.sharding.reshard_after_forward = reshards;
          if (reshards) step.sharding.lora.targets = LoraConfig{}.targets;
          MeshTraining run(layouts::model(true), step, mesh, kSequences);
          // Resident frozen weights are gathered in the first step alone.
          run.run(sequences, 1e-3, 1);
          const AxisBytes before = run.mesh.bytes_sent();
          run.run(sequences, 1e-3, 2);
          const AxisBytes after = run.mesh.bytes_sent();
          run.evaluate(sequences);
          EXPECT_EQ(after.replicate - before.replicate, run.plan.traffic_per_step.replicate);
          EXPECT_EQ(after.fsdp - before.fsdp, run.plan.traffic_per_step.fsdp);
          EXPECT_EQ(after.tensor - before.tensor, run.plan.traffic_per_step.tensor);
          EXPECT_EQ(run.step->arena().peak().bytes, run.plan.arena.bytes);
          EXPECT_EQ(run.ledger.peak().bytes, run.plan.memory.bytes);
        }
}

// Checkpoints have no base: a resumed run has it already.
void expect_continues_on_every_mesh(const ModelConfig& model) {
  constexpr int64_t kSaved = 10, kLast = 20;
  const MeshSizes first = layouts::ranks() == 4 ? MeshSizes{1, 2, 2} : layouts::meshes().front();
  const StepOptions step = with_adapters(DType::kFloat32);
  Io io;
  const ScratchDirectory scratch;
  MeshTraining saved(model, step, first, kSequences);
  const std::filesystem::path directory = text_of_rank_0(saved.mesh.world(), scratch.path().string());
  mesh_training::initialize_with_adapters(saved);
  adapter_losses(saved, 1, kSaved);
  CheckpointState state;
  state.step = kSaved;
  state.model = model;
  state.adapted = {
      .lora = step.sharding.lora, .directory = "base", .hash = "0", .samples = "2", .dtype = "float32"};
  memory_writer(io, directory, saved.mesh.world(), first,
                live_states(saved.step->model(), saved.step->optimizer()))
      .save(state, {});
  const Checkpoint checkpoint{directory / step_directory_name(kSaved),
                              read_manifest(io, directory / step_directory_name(kSaved))};
  EXPECT_EQ(checkpoint.manifest.state, state);
  check_same_parameters(checkpoint.manifest.units, stored_table(state));
  const std::vector<double> unbroken = adapter_losses(saved, kSaved + 1, kLast);
  for (const MeshSizes& mesh : layouts::meshes()) {
    SCOPED_TRACE(first.to_text() + " to " + mesh.to_text());
    MeshTraining run(model, step, mesh, kSequences);
    run.step->model().initialize(7, run.step->model().frozen_units());
    CheckpointReader(io, checkpoint)
        .read(run.mesh.coordinates().fsdp, live_states(run.step->model(), run.step->optimizer()));
    run.step->model().weights_changed(run.step->arena());
    const std::vector<double> found = adapter_losses(run, kSaved + 1, kLast);
    if (mesh == first) {
      EXPECT_EQ(found, unbroken);
    }
    layouts::expect_equal_losses(found, unbroken, 1e-5);
  }
  saved.mesh.world().barrier();  // rank 0 removes the directory
}

TEST(LoraRanks, SavedOnOneMeshContinuesOnOthers) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    expect_continues_on_every_mesh(layouts::model(tied));
  }
}

/// For a model that is much larger than its adapters.
TEST(LoraRanks, TheBaseTravelsHalfAsMuchAsInFullTraining) {
  ModelConfig config = layouts::model(false);
  config.hidden_size = 512;
  config.intermediate_size = 1376;
  for (const MeshSizes& mesh : layouts::meshes()) {
    if (mesh.fsdp == 1) continue;
    PlanRequest request{.model = config, .step = layouts::options(DType::kBFloat16, 1), .mesh = mesh};
    const auto sent = [&] { return plan_rank(request, {}).traffic_per_step.fsdp; };
    const int64_t full = sent();
    request.step.sharding.lora = {.rank = 1, .alpha = 1};
    const int64_t rank_1 = sent();
    request.step.sharding.lora.rank = 2;
    const int64_t adapters = sent() - rank_1;  // of each rank, but for padding
    EXPECT_LE(2 * (rank_1 - adapters), full) << mesh.to_text();
  }
}

}  // namespace
}  // namespace ripstop
