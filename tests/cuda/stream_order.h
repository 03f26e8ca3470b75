// Whole training steps of the CUDA back end, as one rank of a mesh gives them to its streams.
#pragma once
#include <algorithm>
#include <numeric>
#include <set>

#include "model/device/cuda_device.h"
#include "tests/cuda/recorder.h"
#include "tests/train/step/mesh_training.h"
#include "train/config/run_config.h"
#include "train/generate/inference_model.h"

namespace ripstop {

using mesh_training::DealtSequences;
using mesh_training::MeshTraining;
using mesh_training::Sequence;
using recording::RecordedOperation;
using recording::Recorder;
using recording::Span;

inline constexpr int64_t kPositions = 32, kSequences = 8, kLayers = 3;

inline ModelConfig model(bool tied) {
  return {.hidden_size = 64,
          .intermediate_size = 172,
          .num_hidden_layers = kLayers,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .vocab_size = 131,
          .max_position_embeddings = kPositions,
          .tie_word_embeddings = tied};
}

inline std::vector<Sequence> sequences() {
  Sequence sequence;
  sequence.document = {0, 11};
  for (int32_t i = 0; i < kPositions; ++i) {
    sequence.token.push_back(i % 131);
    sequence.target.push_back((i + 1) % 131);
    sequence.position.push_back(i < 11 ? i : i - 11);
  }
  return std::vector<Sequence>(kSequences, sequence);
}

struct Variant {
  bool tied = false, overlap_tensor = false, reshard = true, adapters = false;
  DType reduce = DType::kFloat32;
  MeshSizes mesh{.replicate = 1, .fsdp = 2, .tensor = 2};
  int64_t stages_per_rank = 1;
};

// Kernels of a step of two micro-batches; stages of a pipeline have more.
inline StepOptions options_of(const Variant& variant) {
  StepOptions options;
  options.sharding = {.compute = DType::kBFloat16,
                      .reduce = variant.reduce,
                      .sequence_count = variant.mesh.pipeline > 1
                                            ? 1
                                            : kSequences / (2 * variant.mesh.replicate * variant.mesh.fsdp),
                      .sequence_length = kPositions,
                      .reshard_after_forward = variant.reshard,
                      .overlap_tensor = variant.overlap_tensor,
                      .stages_per_rank = variant.stages_per_rank};
  if (!variant.adapters) return options;
  options.sharding.lora = {.rank = 3, .alpha = 6, .dropout = 0.1};
  options.sharding.lora.targets.fill(true);
  return options;
}

class StreamOrder : public ::testing::Test {
 protected:
  StreamOrder() {
    Recorder& recorder = Recorder::instance();
    recorder.drop = Recorder::Drop::kNone;
    recorder.has_windows = recorder.nccl_gives_memory = true;
    recorder.free_bytes = int64_t{1} << 36;
    recorder.clear();
    recorder.refused.clear();
  }
  void TearDown() override { EXPECT_TRUE(recorder.refused.empty()) << recorder.refused.front(); }

  // Two steps of two micro-batches each, and a validation. The weights do not matter: nothing computes.
  void train(const Variant& variant) {
    const StepOptions options = options_of(variant);
    MeshTraining run(model(variant.tied), options, variant.mesh, kSequences, Device::cuda(0));
    ASSERT_EQ(run.micro_batches, variant.mesh.pipeline > 1 ? kSequences / variant.mesh.fsdp : 2);
    recorder.compute_stream = number_of_stream(run.stream);
    run.step->model().initialize(7);
    recorder.drop = drop;
    for (int64_t step = 1; step <= 2; ++step) run.run(sequences(), 1e-3, step);
    std::vector<int64_t> chosen(static_cast<size_t>(options.sharding.sequence_count));
    std::iota(chosen.begin(), chosen.end(), 0);
    DealtSequences dealt(sequences(), chosen, kPositions);
    run.step->evaluate(
        1, [&](int64_t) { return dealt.view(); }, [] { return false; });
    run.stream.synchronize();
    recorder.drop = Recorder::Drop::kNone;
    for (const FsdpUnit& unit : run.step->model().units())
      whole_bytes.insert(unit.layout().elements() * element_bytes(DType::kBFloat16));
    log = recorder.log();
    races = recorder.races();
  }

  static int number_of_stream(const Stream& stream) {
    return static_cast<int>(reinterpret_cast<intptr_t>(native_stream(stream))) - 1;
  }

  bool computes(const RecordedOperation& operation) const {
    return operation.stream == recorder.compute_stream;
  }
  // Whether the operation gathers a unit, and not activations.
  bool gathers_unit(const RecordedOperation& operation) const {
    return operation.name == "all_gather" && whole_bytes.count(operation.writes[0].bytes) > 0;
  }
  static bool reads(const RecordedOperation& operation, const Span& span) {
    return std::any_of(operation.reads.begin(), operation.reads.end(),
                       [&](const Span& read) { return read.overlaps(span); });
  }

  // Numbers of operations that are `chosen`, and of those beside which a later product of backward may
  // run.
  std::pair<size_t, size_t> beside_products(FunctionRef<bool(const RecordedOperation&)> chosen) const {
    size_t count = 0, beside = 0;
    for (auto each = log.begin(); each != log.end(); ++each) {
      if (!chosen(*each)) continue;
      ++count;
      if (std::any_of(each, log.end(), [&](const RecordedOperation& later) {
            return computes(later) && later.name == "linear_backward_weight" && !each->happens_before(later);
          }))
        ++beside;
    }
    return {count, beside};
  }

  Recorder& recorder = Recorder::instance();
  Recorder::Drop drop = Recorder::Drop::kNone;
  std::set<int64_t> whole_bytes;  // the sizes of whole units in the compute dtype
  std::vector<RecordedOperation> log;
  std::vector<std::string> races;
};

}  // namespace ripstop
