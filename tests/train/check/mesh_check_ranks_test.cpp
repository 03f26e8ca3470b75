// The check on real meshes: correct meshes pass, and the verdict names what is changed in one rank's results.
#include "train/check/mesh_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "parallel/agreement.h"
#include "tests/expect_has.h"
#include "tests/parallel/rank_tests.h"
#include "tests/train/step/mesh_training.h"

namespace ripstop {
namespace {

// Sizes that do not divide by eight: 131 ids, 172 feed-forward columns.
ResolvedRun small_run(const MeshSizes& mesh, DType compute, bool tied, Recompute recompute = Recompute::kNone,
                      bool has_all_vectors = false) {
  ResolvedRun run;
  run.model = {.hidden_size = 64,
               .intermediate_size = 172,
               .num_hidden_layers = std::max<int64_t>(2, mesh.pipeline),
               .num_attention_heads = 8,
               .num_key_value_heads = 4,
               .vocab_size = 131,
               .max_position_embeddings = 64,
               .tie_word_embeddings = tied,
               .head_dim = has_all_vectors ? 12 : 8,
               .attention_bias = has_all_vectors ? AttentionBias::kQkvo : AttentionBias::kNone,
               .qk_norm = has_all_vectors};
  run.mesh = mesh;
  run.step.sharding = {
      .compute = compute, .sequence_count = 2, .sequence_length = 64, .recompute = recompute};
  run.step.max_grad_norm = 1;
  return run;
}

CheckSettings settings_of(const ResolvedRun& run, uint64_t seed = 3) {
  return choose_check(run, test_device().kind, seed, {});
}

MeshVerdict checked(const ResolvedRun& run, uint64_t seed = 3) {
  DeviceMesh mesh(test_world(), run.mesh, /*allow_tensor_across_nodes=*/false, test_device(),
                  run.step.sharding.stages_per_rank);
  return check_mesh(mesh, settings_of(run, seed), test_device());
}

/// The meshes to test with all ranks of this world.
std::vector<MeshSizes> meshes() {
  switch (test_world().communicator().size()) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
    case 3:
      return {{1, 3, 1}};
    case 4:
      return {{1, 2, 2}, {2, 2, 1}, {1, 1, 4}, {2, 1, 2}};
    default:
      return {};
  }
}

std::vector<MeshSizes> pipelines() {
  return mesh_training::meshes_with_stages(test_world().communicator().size());
}

std::vector<MeshSizes> all_meshes() {
  std::vector<MeshSizes> all = meshes();
  for (const MeshSizes& mesh : pipelines()) all.push_back(mesh);
  return all;
}

// Expects that the verdict holds with room to spare: other machines round otherwise.
void expect_holds(const MeshVerdict& verdict) {
  EXPECT_TRUE(verdict.holds()) << verdict.complaint();
  EXPECT_EQ(verdict.notes, std::vector<std::string>{});
  for (const CheckedKind kind : kCheckedKinds) {
    const CheckedValue& value = verdict.worst(kind);
    EXPECT_LT(value.error, 0.7 * value.tolerance) << "little room for " << value.text();
  }
  EXPECT_GT(verdict.steps[0].loss, 1);
  EXPECT_NE(verdict.steps[0].loss, verdict.steps[1].loss);
}

TEST(CheckRanks, EveryMeshPasses) {
  for (const MeshSizes& mesh : all_meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16})
      for (const bool tied : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", mesh.to_text(), to_string(compute), tied ? "tied" : "untied"));
        expect_holds(checked(small_run(mesh, compute, tied, Recompute::kNone, /*has_all_vectors=*/tied)));
      }
}

TEST(CheckRanks, EverySettingPasses) {
  for (const MeshSizes& mesh : all_meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", mesh.to_text(), to_string(compute)));
      for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
        ResolvedRun run = small_run(mesh, compute, recompute == Recompute::kFull, recompute);
        run.step.sharding.overlap_tensor = recompute == Recompute::kFull;
        run.step.sharding.reshard_after_forward = recompute == Recompute::kFull;
        expect_holds(checked(run));
      }
      ResolvedRun run = small_run(mesh, compute, true);
      run.step.sharding.reduce = DType::kBFloat16;
      run.step.adamw.weight_decay = 0;
      run.step.max_grad_norm = 0;
      expect_holds(checked(run, 11));
      run.step.adamw = {.weight_decay = 0.1, .decay_norms = true};
      expect_holds(checked(run, 12));
    }
}

TEST(CheckRanks, TwoStagesOnEachRankPass) {
  for (const MeshSizes& mesh : pipelines()) {
    SCOPED_TRACE(mesh.to_text());
    ResolvedRun run = small_run(mesh, DType::kFloat32, true);
    run.model.num_hidden_layers = 2 * mesh.pipeline;
    run.step.sharding.stages_per_rank = 2;
    expect_holds(checked(run));
  }
}

// With adapters the model is frozen, and only adapters are compared: on all matrices, and on the default
// ones.
TEST(CheckRanks, EveryMeshOfAdaptersPasses) {
  for (const MeshSizes& mesh : all_meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16})
      for (const bool reshards : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} reshards {}", mesh.to_text(), to_string(compute), reshards));
        ResolvedRun run = small_run(mesh, compute, reshards);
        run.step.sharding.reshard_after_forward = reshards;
        run.step.sharding.overlap_tensor = !reshards;
        run.step.sharding.lora = {.rank = 5, .alpha = 8, .dropout = 0.2};
        if (!reshards) run.step.sharding.lora.alpha = 320;  // the check sets the scale to 1
        if (reshards) run.step.sharding.lora.targets.fill(true);
        run.step.adamw.weight_decay = 0.1;
        const MeshVerdict verdict = checked(run);
        expect_holds(verdict);
        for (const CheckedValue& value : verdict.values)
          EXPECT_TRUE(value.parameter.empty() || value.parameter.find(".lora_") != std::string::npos);
        // The sent bytes are those of the plan.
        DeviceMesh planned(test_world(), mesh, /*allow_tensor_across_nodes=*/false, test_device());
        const auto plan = plan_rank(settings_of(run).request(mesh), planned.coordinates()).traffic_per_step;
        EXPECT_EQ(verdict.sent.fsdp, plan.fsdp);
        EXPECT_EQ(verdict.sent.tensor, plan.tensor);
        EXPECT_EQ(verdict.sent.replicate, plan.replicate);
        EXPECT_EQ(verdict.sent.pipeline, plan.pipeline);
      }
}

// With B at zero, as at the start of training, the gradient of A would be zero.
TEST(CheckRanks, TheFirstStepOfAdaptersHasAllGradients) {
  for (const MeshSizes& mesh : all_meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", mesh.to_text(), to_string(compute)));
      ResolvedRun run = small_run(mesh, compute, false);
      run.step.sharding.lora = {.rank = 4, .alpha = 8};
      const CheckSettings settings = settings_of(run);
      DeviceMesh made(test_world(), mesh, /*allow_tensor_across_nodes=*/false, test_device());
      const KeptSteps kept = run_steps(made, settings, test_device());
      const std::vector<UnitSpec> table = trained_table(settings.model, settings.step.sharding.lora);
      for (size_t u = 0; u < kept.places.size(); ++u) {
        const UnitLayout layout(table[kept.places[u]], mesh.tensor, made.coordinates().tensor, mesh.fsdp);
        const int64_t begin = layout.shard_elements() * made.coordinates().fsdp;
        for (const Box& box : layout.boxes(begin, begin + layout.shard_elements())) {
          const auto first = kept.shards[0][u].begin() + (box.offset - begin);
          EXPECT_TRUE(std::any_of(first, first + box.columns, [](float x) { return x != 0; }))
              << box.parameter->name;
        }
      }
    }
}

// On a mesh of one rank only micro-batches and empty sequences differ.
TEST(CheckRanks, OneRankNearlyEqualsItself) {
  if (test_world().communicator().size() != 1) return;
  const MeshVerdict verdict = checked(small_run({1, 1, 1}, DType::kFloat32, true));
  EXPECT_GT(verdict.worst(CheckedKind::kGradient).error, 0);
  EXPECT_LT(verdict.worst(CheckedKind::kLoss).error, 1e-6);
}

// The planned traffic is sent. An axis alone is checked as a mesh.
TEST(CheckRanks, AnAxisAlonePasses) {
  for (const MeshSizes& sizes : all_meshes()) {
    DeviceMesh mesh(test_world(), sizes, /*allow_tensor_across_nodes=*/false, test_device());
    const CheckSettings settings = settings_of(small_run(sizes, DType::kFloat32, false));
    for (const MeshAxis axis : kMeshAxes) {
      SCOPED_TRACE(fmt::format("{} along {}", sizes.to_text(), to_string(axis)));
      DeviceMesh alone = mesh.along(axis);
      EXPECT_EQ(alone.ranks(), sizes[axis]);
      EXPECT_EQ(alone.sizes()[axis], sizes[axis]);
      expect_holds(check_mesh(alone, settings, test_device()));
      EXPECT_EQ(std::ssize(alone.hosts()), alone.ranks());
    }
  }
}

// Changes one rank's results after the steps: the verdict of every rank names the change.
class ChangedResults : public testing::Test {
 protected:
  /// The verdict if `change` changes the kept steps of the last rank.
  static MeshVerdict verdict_of(const MeshSizes& sizes, DType compute,
                                const std::function<void(KeptSteps&, const DeviceMesh&)>& change,
                                bool tied = false) {
    DeviceMesh mesh(test_world(), sizes, /*allow_tensor_across_nodes=*/false, test_device());
    const CheckSettings settings = settings_of(small_run(sizes, compute, tied));
    KeptSteps kept = run_steps(mesh, settings, test_device());
    if (mesh.position() == mesh.ranks() - 1) change(kept, mesh);
    const RankFindings own = compare_with_one_rank(kept, mesh, settings, test_device());
    return judge(findings_of_all_ranks(mesh.world(), own), mesh.sizes(), mesh.hosts(), settings);
  }
  static void expect_complaint(const MeshVerdict& verdict, const std::string& text) {
    EXPECT_FALSE(verdict.holds());
    EXPECT_HAS(verdict.complaint(), text);
    Communicator& world = test_world().communicator();
    EXPECT_EQ(text_of_rank_0(world, verdict.complaint()), verdict.complaint()) << "all ranks say the same";
  }
};

TEST_F(ChangedResults, AGradientIsNamed) {
  const std::vector<UnitSpec> table = parameter_table(small_run({1, 1, 1}, DType::kFloat32, false).model);
  for (const MeshSizes& sizes : meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", sizes.to_text(), to_string(compute)));
      std::string name;
      const MeshVerdict verdict = verdict_of(sizes, compute, [&](KeptSteps& kept, const DeviceMesh& mesh) {
        const UnitLayout layout(table[2], sizes.tensor, mesh.coordinates().tensor, sizes.fsdp);
        const int64_t n = layout.shard_elements(), begin = n * mesh.coordinates().fsdp;
        // Shifts the largest piece of a parameter in the shard by one element, as a wrong offset would.
        Box largest;
        for (const Box& box : layout.boxes(begin, begin + n))
          if (box.rows * box.columns > largest.rows * largest.columns) largest = box;
        name = largest.parameter->name;
        std::vector<float>& shard = kept.shards[1][2];
        const auto first = shard.begin() + (largest.offset - begin);
        std::rotate(first, first + 1, first + largest.rows * largest.stride);
      });
      const std::vector<std::string> names = test_world().communicator().all_gather_text(name);
      expect_complaint(verdict,
                       "the gradient of " + *std::max_element(names.begin(), names.end()) + " in step 2");
    }
}

// Shifts the gradient of each vector of a layer by one element on every rank.
TEST_F(ChangedResults, AVectorIsNamed) {
  for (const MeshSizes& sizes : meshes()) {
    const ResolvedRun run = small_run(sizes, DType::kFloat32, false, Recompute::kNone, true);
    const CheckSettings settings = settings_of(run);
    DeviceMesh mesh(test_world(), sizes, /*allow_tensor_across_nodes=*/false, test_device());
    const KeptSteps right = run_steps(mesh, settings, test_device());
    const UnitSpec unit = parameter_table(run.model)[2];
    const UnitLayout layout(unit, sizes.tensor, mesh.coordinates().tensor, sizes.fsdp);
    const int64_t n = layout.shard_elements(), begin = n * mesh.coordinates().fsdp;
    for (size_t t = 2; t < unit.vectors(); ++t)
      for (const ParameterSpec& vector : unit.tensors[t].parts) {
        SCOPED_TRACE(vector.name + " on " + sizes.to_text());
        KeptSteps kept = right;
        for (const Box& box : layout.boxes(begin, begin + n)) {
          if (box.parameter->name != vector.name) continue;
          const auto first = kept.shards[1][2].begin() + (box.offset - begin);
          std::rotate(first, first + 1, first + box.rows);
        }
        const RankFindings own = compare_with_one_rank(kept, mesh, settings, test_device());
        expect_complaint(
            judge(findings_of_all_ranks(mesh.world(), own), mesh.sizes(), mesh.hosts(), settings),
            "the gradient of " + vector.name + " in step 2");
      }
  }
}

TEST_F(ChangedResults, AWeightIsNamed) {
  for (const MeshSizes& sizes : meshes()) {
    SCOPED_TRACE(sizes.to_text());
    const MeshVerdict verdict = verdict_of(sizes, DType::kFloat32, [&](KeptSteps& kept, const DeviceMesh&) {
      kept.shards[2][1].back() += 0.01F;  // the last unit of a block is w2, or its padding
      kept.shards[2][1][kept.shards[2][1].size() / 2] += 0.01F;
    });
    expect_complaint(verdict, sizes.ranks() == 1 ? "the update of layers.0." : "layers.0");
  }
}

TEST_F(ChangedResults, OneBitOfAReplicaIsNamed) {
  for (const MeshSizes& sizes : meshes()) {
    if (sizes.replicate == 1) continue;
    SCOPED_TRACE(sizes.to_text());
    const MeshVerdict verdict = verdict_of(sizes, DType::kFloat32, [&](KeptSteps& kept, const DeviceMesh&) {
      for (float& value : kept.shards[0][1])
        if (value != 0) {
          value = std::nextafter(value, 1.0F);
          return;
        }
    });
    expect_complaint(verdict, "the gradient of layers.0 (replicas) in step 1 has other bits on rank ");
  }
}

// The first and the last stage update a tied table alike.
TEST_F(ChangedResults, OneBitOfATiedTableIsNamed) {
  for (const MeshSizes& sizes : pipelines()) {
    SCOPED_TRACE(sizes.to_text());
    const MeshVerdict verdict = verdict_of(
        sizes, DType::kFloat32,
        [&](KeptSteps& kept, const DeviceMesh&) {
          ASSERT_EQ(kept.places.front(), 0U);
          float& value = kept.shards[kCheckSteps].front().front();
          value = std::nextafter(value, 1.0F);
        },
        /*tied=*/true);
    const char* copies = sizes.replicate > 1 ? "replicas" : "stages";
    expect_complaint(verdict,
                     fmt::format("the weights of vocabulary ({}) after the last step have other bits on "
                                 "rank {} ",
                                 copies, sizes.ranks() - 1));
  }
}

TEST_F(ChangedResults, AStageOfAPipelineIsNamed) {
  for (const MeshSizes& sizes : pipelines()) {
    SCOPED_TRACE(sizes.to_text());
    const std::string last = fmt::format("layers.{}.", sizes.pipeline - 1);
    const MeshVerdict verdict = verdict_of(sizes, DType::kFloat32, [&](KeptSteps& kept, const DeviceMesh&) {
      for (float& value : kept.shards[1].front()) value *= 1.01F;
    });
    expect_complaint(verdict, "the gradient of " + last);
  }
}

// Every rank forgets that it had the model's last layer.
TEST_F(ChangedResults, AUnitWithoutAStageIsNamed) {
  for (const MeshSizes& sizes : pipelines()) {
    SCOPED_TRACE(sizes.to_text());
    DeviceMesh mesh(test_world(), sizes, /*allow_tensor_across_nodes=*/false, test_device());
    const CheckSettings settings = settings_of(small_run(sizes, DType::kFloat32, false));
    KeptSteps kept = run_steps(mesh, settings, test_device());
    const auto layer = static_cast<size_t>(sizes.pipeline);
    if (const auto held = std::ranges::find(kept.places, layer); held != kept.places.end()) {
      for (auto& shards : kept.shards) shards.erase(shards.begin() + (held - kept.places.begin()));
      kept.places.erase(held);
    }
    const RankFindings own = compare_with_one_rank(kept, mesh, settings, test_device());
    expect_complaint(judge(findings_of_all_ranks(mesh.world(), own), mesh.sizes(), mesh.hosts(), settings),
                     fmt::format("no stage has layers.{}", layer - 1));
  }
}

TEST_F(ChangedResults, ANaNIsNamed) {
  for (const MeshSizes& sizes : meshes()) {
    SCOPED_TRACE(sizes.to_text());
    const MeshVerdict verdict = verdict_of(sizes, DType::kBFloat16, [&](KeptSteps& kept, const DeviceMesh&) {
      for (float& value : kept.shards[0][3]) value = std::nanf("");
    });
    EXPECT_FALSE(verdict.holds());
    EXPECT_EQ(verdict.worst_parameter().step, 1);
    EXPECT_TRUE(std::isinf(verdict.worst_parameter().error));
  }
}

}  // namespace
}  // namespace ripstop
