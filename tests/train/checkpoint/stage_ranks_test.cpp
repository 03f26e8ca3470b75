// Checkpoints of a pipeline on real ranks: any mesh loads what any other saved, bit for bit.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "parallel/agreement.h"
#include "tests/data/scratch_directory.h"
#include "tests/train/step/layout_model.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_writer.h"

namespace ripstop {
namespace {

using layouts::sequences_of_step;
using mesh_training::MeshTraining;

std::vector<MeshSizes> meshes() {
  if (layouts::ranks() == 2) return {{1, 1, 1, 2}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
  return {{1, 1, 1, 4}, {1, 2, 1, 2}, {1, 1, 2, 2}, {2, 1, 1, 2}, {1, 4, 1}, {1, 2, 2}, {2, 1, 2}};
}

std::vector<UnitSpec> trained_table(const ShardedTransformer& model) {
  std::vector<UnitSpec> table = model.whole_table();
  std::erase_if(table, [](const UnitSpec& unit) { return unit.frozen; });
  return table;
}

/// Each state of each whole parameter. `stored`: from the stages that store it; else from the other holder
/// of a tied table, and zeros elsewhere.
std::map<std::string, std::vector<double>> whole_states(MeshTraining& run, bool stored = true) {
  ShardedTransformer& model = run.step->model();
  const AdamW& optimizer = run.step->optimizer();
  std::map<std::string, std::vector<double>> whole;
  for (const UnitSpec& unit : trained_table(model))
    for (const ParameterSpec& p : unit.parameters())
      for (const UnitState state : kUnitStates)
        whole[fmt::format("{} {}", p.name, to_string(state))].resize(static_cast<size_t>(p.count()));
  for (size_t u = 0; u < model.trained_units().size(); ++u) {
    FsdpUnit& unit = model.trained_units()[u];
    const bool is_stored = unit.layout().unit().stage == run.mesh.coordinates().pipeline;
    if (run.mesh.coordinates().replicate != 0 || is_stored != stored) continue;
    const Tensor states[] = {unit.master(), optimizer.first(u), optimizer.second(u)};
    for (const UnitState state : kUnitStates)
      run.each_element(
          unit, states[static_cast<size_t>(state)], [&](const ParameterSpec& p, int64_t i, float& value) {
            if (p.cut == Cut::kNone && run.mesh.coordinates().tensor != 0) return;
            whole[fmt::format("{} {}", p.name, to_string(state))][static_cast<size_t>(i)] = value;
          });
  }
  for (auto& [name, values] : whole) values = mesh_training::sum_over_world(values);
  return whole;
}

void save(Io& io, const std::filesystem::path& directory, MeshTraining& run, const CheckpointState& state) {
  MemoryLedger copies;
  Snapshot snapshot(run.stream, copies, live_states(run.step->model(), run.step->optimizer()),
                    run.mesh.sizes(), run.mesh.position(), /*most_bytes=*/1 << 16);
  CheckpointWriter(io, directory, run.mesh.world(), run.mesh.sizes(), trained_table(run.step->model()),
                   snapshot)
      .save(state, {});
}

/// `layers`: of the stages of each number of ranks of a pipeline.
void expect_loads_everywhere(const ModelConfig& model, const StepOptions& step,
                             const std::map<int64_t, std::vector<int64_t>>& layers) {
  Io io;
  CheckpointState state;
  state.step = 2;
  state.model = model;
  if (step.sharding.lora.any())
    state.adapted = {
        .lora = step.sharding.lora, .directory = "base", .hash = "0", .samples = "2", .dtype = "float32"};
  const auto make = [&](const MeshSizes& mesh) {
    StepOptions options = step;
    if (mesh.pipeline > 1) {
      options.sharding.stage_layers = layers.at(mesh.pipeline);
      options.sharding.stages_per_rank = std::ssize(options.sharding.stage_layers) / mesh.pipeline;
    }
    auto run = std::make_unique<MeshTraining>(model, options, mesh, layouts::kSequences);
    mesh_training::initialize_with_adapters(*run);
    return run;
  };
  for (const MeshSizes& from : meshes()) {
    const ScratchDirectory scratch;
    const auto saved = make(from);
    const std::filesystem::path directory = text_of_rank_0(saved->mesh.world(), scratch.path().string());
    for (int64_t s = 1; s <= state.step; ++s) saved->run(sequences_of_step(s), 1e-3, s);
    save(io, directory, *saved, state);
    const auto expected = whole_states(*saved);
    const double next = saved->run(sequences_of_step(3), 1e-3, 3).loss;
    const Checkpoint checkpoint{directory / step_directory_name(2),
                                read_manifest(io, directory / step_directory_name(2))};
    check_same_parameters(checkpoint.manifest.units, stored_table(state));
    for (const MeshSizes& to : meshes()) {
      if (from.pipeline == 1 && to.pipeline == 1) continue;
      SCOPED_TRACE(from.to_text() + " to " + to.to_text());
      const auto run = make(to);
      CheckpointReader reader(io, checkpoint);
      load_states(
          live_states(run->step->model(), run->step->optimizer()), run->stream,
          [&](const std::vector<UnitStates>& units) { reader.read(run->mesh.coordinates().fsdp, units); });
      EXPECT_EQ(whole_states(*run), expected);
      if (to.pipeline > 1)
        for (const auto& [name, values] : whole_states(*run, /*stored=*/false)) {
          const bool is_tied = model.tie_word_embeddings && !step.sharding.lora.any() &&
                               (name.starts_with("tok_embeddings") || name.starts_with("norm"));
          EXPECT_EQ(values, is_tied ? expected.at(name) : std::vector<double>(values.size())) << name;
        }
      run->step->model().weights_changed(run->step->arena());
      const double found = run->run(sequences_of_step(3), 1e-3, 3).loss;
      EXPECT_NEAR(found, next, to == from ? 0 : 1e-5 * next);
    }
    saved->mesh.world().barrier();  // rank 0 removes the directory
  }
}

ModelConfig four_layers(bool tied) {
  ModelConfig model = layouts::model(tied);
  model.hidden_size = 32;
  model.intermediate_size = 86;
  model.num_hidden_layers = 4;
  return model;
}

TEST(StageRanks, EveryMeshLoadsEveryOther) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    const std::vector<int64_t> one_each{3, 1}, two_each{1, 1, 1, 1};
    expect_loads_everywhere(four_layers(tied), layouts::options(DType::kFloat32, 2),
                            {{2, tied ? two_each : one_each}, {4, {1, 1, 1, 1}}});
  }
}

// The last stage has the head alone, which has no adapters.
TEST(StageRanks, EveryMeshLoadsTheAdaptersOfEveryOther) {
  StepOptions step = layouts::options(DType::kFloat32, 2);
  step.sharding.lora = {.rank = 2, .alpha = 4};
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    expect_loads_everywhere(four_layers(tied), step, {{2, {4, 0}}, {4, {2, 1, 1, 0}}});
  }
}

}  // namespace
}  // namespace ripstop
