// The golden LLaMA-2 case (tests/golden/llama2_parity.json, float64) on every mesh of the ranks at hand.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "parallel/agreement.h"
#include "tests/data/scratch_directory.h"
#include "tests/test_files.h"
#include "tests/train/step/mesh_training.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/snapshot.h"

namespace ripstop {
namespace {

using mesh_training::DealtSequences;
using mesh_training::meshes_of;
using mesh_training::MeshTraining;
using mesh_training::Sequence;

const nlohmann::json& golden() {
  static const nlohmann::json values =
      nlohmann::json::parse(std::ifstream(golden_file("llama2_parity.json")));
  return values;
}

ModelConfig golden_model() {
  const nlohmann::json& c = golden()["config"];
  return {.hidden_size = c["dim"],
          .intermediate_size = c["ffn_hidden"],
          .num_hidden_layers = c["n_layers"],
          .num_attention_heads = c["n_heads"],
          .num_key_value_heads = c["n_kv_heads"],
          .vocab_size = c["vocab_size"],
          .max_position_embeddings = 8,
          .rms_norm_eps = c["norm_eps"],
          .rope_theta = c["rope_theta"]};
}

std::vector<Sequence> golden_sequences() {
  std::vector<Sequence> sequences;
  for (size_t s = 0; s < golden()["tokens"].size(); ++s)
    sequences.push_back({.token = golden()["tokens"][s],
                         .target = golden()["targets"][s],
                         .position = {0, 1, 2, 3, 4, 5, 6, 7},
                         .document = {0}});
  return sequences;
}

std::string mesh_name(const MeshSizes& mesh) {
  return mesh.to_text();
}

class ParityRanks : public ::testing::Test {
 protected:
  static std::unique_ptr<MeshTraining> make(const MeshSizes& mesh, DType moments = DType::kFloat32,
                                            const Device& device = test_device()) {
    StepOptions options;
    options.sharding = {.compute = DType::kFloat32, .sequence_count = 0, .sequence_length = 8};
    const nlohmann::json& adamw = golden()["adamw"];
    options.adamw = {.beta1 = adamw["beta1"],
                     .beta2 = adamw["beta2"],
                     .epsilon = adamw["eps"],
                     .weight_decay = adamw["weight_decay"],
                     .decay_norms = true,
                     .moments = moments,
                     .seed = 3};
    options.max_grad_norm = 0;
    auto run = std::make_unique<MeshTraining>(golden_model(), options, mesh, 3, device);
    mesh_training::fill_by_rule(*run);
    return run;
  }
};

TEST_F(ParityRanks, LossGradientsAndSixSteps) {
  for (const MeshSizes& mesh : meshes_of(test_world().communicator().size())) {
    SCOPED_TRACE(mesh_name(mesh));
    const auto run = make(mesh);
    const nlohmann::json &fp64 = golden()["fp64"], &adamw = golden()["adamw"];
    StepResult result = run->run(golden_sequences(), 0.0, 1);
    EXPECT_NEAR(result.loss, fp64["loss"].get<double>(), 1e-6);
    const double norm = fp64["grad_norm"];
    EXPECT_NEAR(result.gradient_norm, norm, 5e-6 * norm);

    for (const auto& [name, gradient] :
         gather_gradients(*run, static_cast<double>(result.sum.target_count))) {
      SCOPED_TRACE(name);
      const nlohmann::json& expected = fp64["grads"][name];
      double squares = 0, probe = 0, weights = 0;
      for (size_t i = 0; i < gradient.size(); ++i) {
        squares += gradient[i] * gradient[i];
        const double weight = std::cos(0.013 * static_cast<double>(i));
        probe += gradient[i] * weight;
        weights += weight * weight;
      }
      const double l2 = expected["l2"], tolerance = 5e-5 * l2;
      EXPECT_NEAR(std::sqrt(squares), l2, tolerance);
      // The largest change of the probe by an error of that size (Cauchy-Schwarz).
      EXPECT_NEAR(probe, expected["probe"].get<double>(), tolerance * std::sqrt(weights));
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(gradient[i], expected["first4"][i].get<double>(), tolerance);
        EXPECT_NEAR(gradient[gradient.size() - 4 + i], expected["last4"][i].get<double>(), tolerance);
      }
    }
    const auto fresh = make(mesh);
    for (size_t s = 0; s < 6; ++s) {
      result = fresh->run(golden_sequences(), adamw["lr"], static_cast<int64_t>(s) + 1);
      EXPECT_NEAR(result.loss, adamw["fp64_loss_before_step"][s].get<double>(), 5e-5) << "before step " << s;
      const double before = adamw["fp64_grad_norm_before_step"][s];
      EXPECT_NEAR(result.gradient_norm, before, 1e-3 * before) << "before step " << s;
    }
  }
}

std::vector<double> fifty_losses(MeshTraining& run) {
  std::vector<double> losses;
  for (int64_t s = 1; s <= 50; ++s)
    losses.push_back(run.run(golden_sequences(), golden()["adamw"]["lr"], s).loss);
  return losses;
}

// docs/parallelism.md shows these differences. Two ranks test every axis; more would take minutes.
TEST_F(ParityRanks, FiftyLossesWithBfloat16MomentsAreNear) {
  if (test_world().communicator().size() > 2) return;
  for (const MeshSizes& mesh : meshes_of(test_world().communicator().size())) {
    SCOPED_TRACE(mesh_name(mesh));
    const std::vector<double> exact = fifty_losses(*make(mesh)),
                              rounded = fifty_losses(*make(mesh, DType::kBFloat16));
    double largest = 0, last = 0;
    for (size_t s = 0; s < exact.size(); ++s) {
      ASSERT_TRUE(std::isfinite(rounded[s])) << "step " << s + 1;
      last = std::abs(rounded[s] - exact[s]) / exact[s];
      largest = std::max(largest, last);
    }
    EXPECT_LT(exact.back(), 0.5 * exact.front()) << "it learns";
    EXPECT_GT(largest, 0) << "the moments are not rounded";
    EXPECT_LT(largest, 2e-3);
    RecordProperty("first", std::to_string(exact.front()));
    RecordProperty("end", std::to_string(exact.back()));
    RecordProperty("largest", std::to_string(largest));
    RecordProperty("last", std::to_string(last));
  }
}

// The bytes of all shards of this rank: weights and moments.
std::vector<std::vector<std::byte>> shards_of(MeshTraining& run) {
  std::vector<std::vector<std::byte>> shards;
  for (size_t u = 0; u < run.step->model().units().size(); ++u)
    for (const Tensor& t : {run.step->model().units()[u].master(), run.step->optimizer().first(u),
                            run.step->optimizer().second(u)}) {
      shards.emplace_back(static_cast<size_t>(t.bytes()));
      copy_bytes(run.stream, shards.back().data(), t.data, t.bytes());
    }
  run.stream.synchronize();
  return shards;
}

void take_steps(MeshTraining& run, int64_t first, int64_t last) {
  for (int64_t s = first; s <= last; ++s) run.run(golden_sequences(), golden()["adamw"]["lr"], s);
}

// A run that is saved and resumed has the bits of an unbroken one.
TEST_F(ParityRanks, Bfloat16MomentsResumeToTheBit) {
  if (test_world().communicator().size() > 4) return;
  Device device = test_device();
  device.deterministic = device.kind == DeviceKind::kCuda;  // the CPU is always deterministic
  for (const MeshSizes& mesh : meshes_of(test_world().communicator().size())) {
    SCOPED_TRACE(mesh_name(mesh));
    const auto unbroken = make(mesh, DType::kBFloat16, device), before = make(mesh, DType::kBFloat16, device),
               after = make(mesh, DType::kBFloat16, device);
    take_steps(*unbroken, 1, 6);
    take_steps(*before, 1, 3);
    Io io;
    const ScratchDirectory scratch;
    const std::filesystem::path directory = text_of_rank_0(before->mesh.world(), scratch.path().string());
    CheckpointState state;
    state.step = 3;
    state.model = golden_model();
    const std::vector<UnitStates> saved = live_states(before->step->model(), before->step->optimizer()),
                                  loaded = live_states(after->step->model(), after->step->optimizer());
    MemoryLedger copies;
    Snapshot snapshot(before->stream, copies, saved, mesh, before->mesh.position(), INT64_MAX);
    CheckpointWriter(io, directory, before->mesh.world(), mesh, before->step->model().whole_table(), snapshot)
        .save(state, {});
    const std::filesystem::path stored = directory / step_directory_name(3);
    const Checkpoint checkpoint{stored, read_manifest(io, stored)};
    CheckpointReader reader(io, checkpoint);
    load_states(loaded, after->stream, [&](const std::vector<UnitStates>& units) {
      reader.read(after->mesh.coordinates().fsdp, units);
    });
    EXPECT_EQ(shards_of(*after), shards_of(*before));
    after->step->model().weights_changed(after->step->arena());
    take_steps(*after, 4, 6);
    EXPECT_EQ(shards_of(*after), shards_of(*unbroken));
    before->mesh.world().barrier();  // rank 0 removes the directory
  }
}

TEST_F(ParityRanks, ThePlanOfBfloat16MomentsIsWhatAStepUses) {
  for (const MeshSizes& mesh : meshes_of(test_world().communicator().size())) {
    SCOPED_TRACE(mesh_name(mesh));
    const auto exact = make(mesh), rounded = make(mesh, DType::kBFloat16);
    rounded->run(golden_sequences(), 0.01, 1);
    rounded->evaluate(golden_sequences());
    EXPECT_EQ(rounded->ledger.peak().bytes, rounded->plan.memory.bytes);
    EXPECT_EQ(rounded->plan.memory[MemoryCategory::kOptimizer],
              exact->plan.memory[MemoryCategory::kOptimizer] / 2);
  }
}

TEST_F(ParityRanks, Logits) {
  for (const MeshSizes& mesh : meshes_of(test_world().communicator().size())) {
    SCOPED_TRACE(mesh_name(mesh));
    const auto run = make(mesh);
    const int64_t vocabulary = 96, slice = vocabulary / mesh.tensor;
    MemoryLedger ledger;
    BatchMemory memory(test_device(), ledger, 3, 8);
    const Batch batch = memory.load(run->stream, 3, DealtSequences(golden_sequences(), {0, 1, 2}, 8).view());
    Arena arena(test_device(), ledger, MemoryUse{{0, 0, 0, int64_t{64} << 20, 0, 0}});  // cuBLASLt takes half
    std::vector<float> values(static_cast<size_t>(24 * slice));
    const Buffer logits(test_device(), ledger, MemoryCategory::kActivations, 4 * 24 * slice);
    run->step->model().logits(arena, batch, tensor_in(logits, 0, DType::kFloat32, {24, slice}));
    copy_bytes(run->stream, values.data(), logits.data(), logits.bytes());
    run->stream.synchronize();
    for (int64_t row = 0; row < 24; ++row)
      for (int64_t c = 0; c < slice; ++c) {
        const int64_t id = run->mesh.coordinates().tensor * slice + c;
        EXPECT_NEAR(values[static_cast<size_t>(row * slice + c)],
                    golden()["fp64"]["logits"][static_cast<size_t>(row * vocabulary + id)].get<double>(),
                    1e-5)
            << "row " << row << " id " << id;
      }
  }
}

}  // namespace
}  // namespace ripstop
