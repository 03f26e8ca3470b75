// Two training steps on emulated GPUs, on every mesh of the ranks at hand, under many orders of work. Every
// order gives the same bits, and the losses are those of the CPU. Then weights on their way to a model for
// writing, and the plans of attention.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "model/device/cuda_device.h"
#include "model/kernels/cuda/attention_plans.h"
#include "parallel/pipeline_schedule.h"
#include "tests/emulated_device/scheduler.h"
#include "tests/train/step/mesh_training.h"
#include "train/generate/inference_model.h"
#include "train/run/kernel_plans.h"

namespace ripstop {
namespace {

using mesh_training::DealtSequences;
using mesh_training::MeshTraining;
using mesh_training::Sequence;

constexpr int64_t kPositions = 32, kSequences = 4, kSteps = 2;
const auto kSeeds = static_cast<uint64_t>(emulated::from_environment("RIPSTOP_EMULATED_SEEDS", 2));

struct Variant {
  const char* name;
  DType compute, reduce;
  bool tied = false, overlap_tensor = false, reshard = true, adapters = false;
  int64_t stages_per_rank = 1;  // of a pipeline
};
std::ostream& operator<<(std::ostream& out, const Variant& variant) {
  return out << variant.name;
}

ModelConfig model(const Variant& variant, int64_t layers = 2) {
  return {.hidden_size = 64,
          .intermediate_size = 88,
          .num_hidden_layers = layers,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .vocab_size = 131,
          .max_position_embeddings = kPositions,
          .tie_word_embeddings = variant.tied};
}

std::vector<Sequence> sequences_of_step(int64_t step) {
  return mesh_training::chained_sequences(step, kSequences, kPositions);
}

StepOptions options_of(const Variant& variant, const MeshSizes& mesh) {
  StepOptions options;
  options.sharding = {.compute = variant.compute,
                      .reduce = variant.reduce,
                      .sequence_count = 1,
                      .sequence_length = kPositions,
                      .reshard_after_forward = variant.reshard,
                      .overlap_tensor = variant.overlap_tensor,
                      .stages_per_rank = mesh.pipeline > 1 ? variant.stages_per_rank : 1};
  if (variant.adapters) {
    options.sharding.lora = {.rank = 6, .alpha = 12, .dropout = 0.2, .targets = {}};
    options.sharding.lora.targets.fill(true);
  }
  return options;
}

// The loss of so many micro-batches that the boundaries of a stage serve again: while earlier ones are sent,
// and while the last stage computes on them.
double loss_of_many(MeshTraining& run) {
  std::unique_ptr<DealtSequences> dealt;
  const auto next = [&](int64_t micro) {
    dealt = std::make_unique<DealtSequences>(sequences_of_step(micro),
                                             std::vector<int64_t>{run.mesh.data_rank()}, kPositions);
    return dealt->view();
  };
  return run.step->evaluate(2 * kBoundaryBuffers, next, [] { return false; }).mean();
}

// Losses and gradient norms of the steps, then the loss of a validation.
std::vector<double> train(const Variant& variant, const MeshSizes& mesh, const Device& device) {
  const StepOptions options = options_of(variant, mesh);
  MeshTraining run(model(variant, std::max<int64_t>(2, mesh.pipeline * options.sharding.stages_per_rank)),
                   options, mesh, kSequences, device);
  if (variant.adapters)
    mesh_training::initialize_with_adapters(run);
  else
    run.step->model().initialize(7);
  std::vector<double> values;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const StepResult result = run.run(sequences_of_step(step), 1e-3, step);
    values.push_back(result.loss);
    values.push_back(result.gradient_norm);
  }
  values.push_back(run.evaluate(sequences_of_step(0)).mean());
  if (mesh.pipeline > 1) values.push_back(loss_of_many(run));
  return values;
}

// Ranks go on together, or end a test together.
bool has_failed_somewhere() {
  return mesh_training::sum_over_world({testing::Test::HasFailure() ? 1.0 : 0.0})[0] > 0;
}

class EmulatedSteps : public testing::TestWithParam<Variant> {};

TEST_P(EmulatedSteps, AreTheSameInEveryOrderAndThoseOfTheCpu) {
  const Variant& variant = GetParam();
  for (const MeshSizes& mesh : meshes_of(test_world().communicator().size())) {
    SCOPED_TRACE(mesh.to_text());
    const char* only = std::getenv("RIPSTOP_EMULATED_MESH");
    if (only != nullptr && mesh.to_text() != only) continue;
    const std::vector<double> expected = train(variant, mesh, Device::cpu());
    const double allowed = variant.compute == DType::kBFloat16  ? 2e-2
                           : variant.reduce == DType::kBFloat16 ? 1e-2
                                                                : 1e-5;
    std::vector<double> first;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      emulated::Scheduler::instance().set_seed(seed);
      const std::vector<double> found = train(variant, mesh, test_device());
      if (seed == 1) first = found;
      EXPECT_EQ(found, first) << "seed " << seed;
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], allowed * expected[i]) << i << ", seed " << seed;
      if (has_failed_somewhere()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EmulatedSteps,
    testing::Values(Variant{"Float32", DType::kFloat32, DType::kFloat32},
                    Variant{"TiedAndOverlapping", DType::kFloat32, DType::kBFloat16, true, true},
                    Variant{"Bfloat16", DType::kBFloat16, DType::kFloat32},
                    Variant{"NotResharded", DType::kBFloat16, DType::kBFloat16, false, true, false, false, 2},
                    Variant{"Adapters", DType::kBFloat16, DType::kFloat32, true, true, true, true}),
    [](const auto& info) { return std::string(info.param.name); });

// NCCL's own streams among them, which wait for events as well.
TEST(EmulatedQueues, NoStreamOfAStepWaitsBehindAnother) {
  const int64_t ranks = test_world().communicator().size();
  train({"Float32", DType::kFloat32, DType::kFloat32}, {1, ranks, 1}, test_device());
  for (const MeshSizes& mesh : meshes_of(ranks))
    if (mesh.pipeline > 1) train({"Float32", DType::kFloat32, DType::kFloat32}, mesh, test_device());
  EXPECT_EQ(emulated::Scheduler::instance().most_streams_of_a_queue(), 1);
}

// Runs without EmulatedSteps: NCCL keeps the settings of a process's first group.
TEST(DeterministicSteps, RepeatTheirBitsOnNvlinkSwitches) {
  const int64_t ranks = test_world().communicator().size();
  Device device = test_device();
  device.deterministic = true;
  const Variant variant{"Float32", DType::kFloat32, DType::kFloat32};
  for (const MeshSizes& mesh : {MeshSizes{1, ranks, 1}, MeshSizes{ranks, 1, 1}, MeshSizes{1, 1, ranks}}) {
    SCOPED_TRACE(mesh.to_text());
    emulated::Scheduler::instance().set_seed(1);
    const std::vector<double> first = train(variant, mesh, device);
    emulated::Scheduler::instance().set_seed(2);
    EXPECT_EQ(train(variant, mesh, device), first);
    if (has_failed_somewhere()) return;
  }
}

/// One buffer for each unit of a model, of the bytes of a tensor of it.
template <class TensorOf>
std::vector<Buffer> buffers_of(ShardedTransformer& model, MemoryLedger& ledger, TensorOf tensor_of) {
  std::vector<Buffer> buffers;
  for (const FsdpUnit& unit : model.units())
    buffers.emplace_back(test_device(), ledger, MemoryCategory::kWorkspace, tensor_of(unit).bytes());
  return buffers;
}

/// A model for writing on a stream of its own, and the weights that a kernel of that stream reads.
class WritingModel {
 public:
  WritingModel(const ModelConfig& config, size_t takes)
      : options_(InferenceOptions::of(config, kPositions, DType::kBFloat16, 2, {.max_new_tokens = 8})),
        mesh_(test_world(), {.replicate = test_world().communicator().size(), .fsdp = 1, .tensor = 1},
              /*allow_tensor_across_nodes=*/false, test_device()),
        plan_(plan_inference(config, options_, mesh_.sizes(), mesh_.coordinates(), DeviceKind::kCuda)),
        model_(config, options_, mesh_, stream_, ledger_, plan_.arena) {
    for (size_t i = 0; i < takes; ++i)
      read_.push_back(
          buffers_of(model_.model(), ledger_, [](const FsdpUnit& unit) { return unit.compute_copy(); }));
  }

  /// Takes the weights of `model` and reads them. The host does not wait.
  void take(ShardedTransformer& model, size_t number) {
    model.copy_weights_to(model_.model());
    for (size_t u = 0; u < read_[number].size(); ++u) {
      const Tensor& weights = model_.model().units()[u].compute_copy();
      copy_bytes(stream_, read_[number][u].data(), weights.data, weights.bytes());
    }
  }
  const Stream& stream() const { return stream_; }
  std::vector<std::vector<std::byte>> taken() const {
    std::vector<std::vector<std::byte>> bytes;
    for (const std::vector<Buffer>& of_units : read_)
      for (const Buffer& buffer : of_units) {
        bytes.emplace_back(static_cast<size_t>(buffer.bytes()));
        copy_bytes(stream_, bytes.back().data(), buffer.data(), buffer.bytes());
      }
    stream_.synchronize();
    return bytes;
  }

 private:
  InferenceOptions options_;
  DeviceMesh mesh_;
  Stream stream_{test_device()};
  MemoryLedger ledger_;
  InferencePlan plan_;
  InferenceModel model_;
  std::vector<std::vector<Buffer>> read_;
};

// The case of a validation, but the host waits for nothing.
TEST(EmulatedWriting, AModelOnAnotherStreamHasTheWeightsOfItsTime) {
  constexpr size_t kTakes = 4;
  const ModelConfig config = model({"", DType::kBFloat16, DType::kFloat32});
  StepOptions options;
  options.sharding = {.compute = DType::kBFloat16, .sequence_count = 1, .sequence_length = kPositions};
  const MeshSizes mesh{.replicate = 1, .fsdp = test_world().communicator().size(), .tensor = 1};
  const auto weights = [&](bool waits) {
    MeshTraining run(config, options, mesh, kSequences, test_device());
    ShardedTransformer& trained = run.step->model();
    WritingModel writing(config, kTakes);
    std::vector<std::vector<Buffer>> later;  // what steps would make of the weights
    for (uint64_t seed = 1; seed <= kTakes; ++seed) {
      trained.initialize(seed);
      later.push_back(buffers_of(trained, run.ledger, [](const FsdpUnit& unit) { return unit.master(); }));
      for (size_t u = 0; u < later.back().size(); ++u)
        copy_bytes(run.stream, later.back()[u].data(), trained.units()[u].master().data,
                   later.back()[u].bytes());
    }
    run.stream.synchronize();
    for (size_t i = 0; i < kTakes; ++i) {
      for (size_t u = 0; u < later[i].size(); ++u)
        copy_bytes(run.stream, trained.units()[u].master().data, later[i][u].data(), later[i][u].bytes());
      trained.weights_changed(run.step->arena());
      writing.take(trained, i);
      if (waits) writing.stream().synchronize();
    }
    return writing.taken();
  };
  const auto expected = weights(true);
  EXPECT_NE(expected.front(), expected.back());
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated::Scheduler::instance().set_seed(seed);
    EXPECT_TRUE(weights(false) == expected) << "seed " << seed;
    if (has_failed_somewhere()) return;
  }
}

// The documents of all steps are known before the first one, and so are the plans of attention.
TEST(EmulatedPlans, StepsMakeNoPlanOfAttentionThatIsPrepared) {
  const Variant variant{"Bfloat16", DType::kBFloat16, DType::kFloat32};
  const int64_t ranks = test_world().communicator().size();
  const MeshSizes mesh{1, ranks, 1};
  MeshTraining run(model(variant), options_of(variant, mesh), mesh, kSequences, test_device());
  run.step->model().initialize(7);
  DocumentCounts trained, evaluated;
  for (int64_t step = 0; step <= kSteps; ++step)
    for (const Sequence& sequence : sequences_of_step(step)) {
      DocumentSizes sizes{.count = std::ssize(sequence.document)};
      for (size_t d = 0; d < sequence.document.size(); ++d) {
        const int64_t end = d + 1 < sequence.document.size() ? sequence.document[d + 1] : kPositions;
        sizes.longest = std::max(sizes.longest, end - sequence.document[d]);
      }
      ++(step == 0 ? evaluated : trained)[sizes];
    }
  const auto plans = [&] { return cuda_stream(run.stream).state<cuda::AttentionPlans>().count(); };
  EXPECT_EQ(plans(), 0);
  const KernelPlans prepared = prepare_kernels(run.step->model(), trained, evaluated);
  EXPECT_GT(prepared.count, 2);
  EXPECT_EQ(prepared.left, 0);
  EXPECT_EQ(plans(), prepared.count);
  EXPECT_EQ(prepare_kernels(run.step->model(), trained, evaluated).count, 0);
  for (int64_t step = 1; step <= kSteps; ++step) run.run(sequences_of_step(step), 1e-3, step);
  run.evaluate(sequences_of_step(0));
  EXPECT_EQ(plans(), prepared.count);
}

}  // namespace
}  // namespace ripstop
