// MeshTraining: training on a mesh of real ranks with sequences from the test.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/device_mesh.h"
#include "tests/parallel/rank_tests.h"
#include "train/plan/rank_plan.h"
#include "train/step/training_step.h"

namespace ripstop::mesh_training {

/// One sequence of a step.
struct Sequence {
  std::vector<int32_t> token, target, position;
  std::vector<int32_t> document;  ///< the first row of each of its documents; document[0] is 0
};

/// Sequences of a vocabulary of 131 ids, each token a function of the one before. Two documents in most of
/// them, targets for most tokens.
inline std::vector<Sequence> chained_sequences(int64_t step, int64_t count, int64_t positions) {
  std::vector<Sequence> sequences(static_cast<size_t>(count));
  for (int64_t p = 0; p < count; ++p) {
    Sequence& sequence = sequences[static_cast<size_t>(p)];
    const auto cut = static_cast<int32_t>((5 * p + 3 * step) % positions);
    sequence.document = cut == 0 ? std::vector<int32_t>{0} : std::vector<int32_t>{0, cut};
    auto token = static_cast<int32_t>((13 * p + 29 * step) % 131);
    for (int32_t i = 0; i < positions; ++i) {
      const int32_t next = (token * 3 + 7) % 131;
      sequence.token.push_back(token);
      sequence.target.push_back(i % 5 == 0 ? -1 : next);
      sequence.position.push_back(i < cut ? i : i - cut);
      token = next;
    }
  }
  return sequences;
}

/// A micro-batch of one rank: the chosen sequences end to end. A number beyond the sequences gives an empty
/// one: token 0, no target.
struct DealtSequences {
  std::vector<int32_t> token, position, target, document_offset;

  DealtSequences(const std::vector<Sequence>& sequences, std::vector<int64_t> chosen, int64_t positions) {
    document_offset.push_back(0);
    for (const int64_t number : chosen) {
      const auto begin = static_cast<int32_t>(token.size());
      if (number >= static_cast<int64_t>(sequences.size())) {
        for (int64_t i = 0; i < positions; ++i) {
          token.push_back(0);
          target.push_back(-1);
          position.push_back(static_cast<int32_t>(i));
        }
      } else {
        const Sequence& sequence = sequences[static_cast<size_t>(number)];
        token.insert(token.end(), sequence.token.begin(), sequence.token.end());
        target.insert(target.end(), sequence.target.begin(), sequence.target.end());
        position.insert(position.end(), sequence.position.begin(), sequence.position.end());
        for (size_t d = 1; d < sequence.document.size(); ++d)
          document_offset.push_back(begin + sequence.document[d]);
      }
      document_offset.push_back(static_cast<int32_t>(token.size()));
    }
  }
  HostTokens view() const { return {token, position, target, document_offset}; }
};

/// A run of training steps on one mesh.
class MeshTraining {
 public:
  MeshTraining(const ModelConfig& model, StepOptions options, const MeshSizes& sizes,
               int64_t global_sequences, const Device& device = test_device())
      : MeshTraining(model, options,
                     DeviceMesh(test_world(), sizes, /*allow_tensor_across_nodes=*/false, device,
                                options.sharding.stages_per_rank),
                     global_sequences, device) {}
  MeshTraining(const ModelConfig& model, StepOptions options, DeviceMesh on, int64_t global_sequences,
               const Device& device = test_device())
      : mesh(std::move(on)), stream(device), global_sequences_(global_sequences) {
    const int64_t share = (global_sequences + mesh.data_ranks() - 1) / mesh.data_ranks();
    if (options.sharding.sequence_count == 0) options.sharding.sequence_count = share;
    micro_batches = (share + options.sharding.sequence_count - 1) / options.sharding.sequence_count;
    request = {.model = model,
               .step = options,
               .mesh = mesh.sizes(),
               .device = device.kind,
               .micro_batches = micro_batches,
               .deterministic = device.deterministic};
    plan = plan_rank(request, mesh.coordinates());
    step = std::make_unique<TrainingStep>(model, options, mesh, stream, ledger, plan.arena);
  }

  /// One optimizer step on global_sequences sequences. Data rank j mod data_ranks gets sequence j.
  StepResult run(const std::vector<Sequence>& sequences, double learning_rate, int64_t number) {
    return run(sequences, learning_rate, StepNumbers{number});
  }
  StepResult run(const std::vector<Sequence>& sequences, double learning_rate, const StepNumbers& numbers,
                 const StepHooks& hooks = {}) {
    const int64_t b = request.step.sharding.sequence_count;
    begun = 0;
    std::unique_ptr<DealtSequences> dealt;
    return step->run(
        micro_batches,
        [&](int64_t micro) {
          ++begun;
          std::vector<int64_t> chosen;
          for (int64_t s = 0; s < b; ++s) {
            const int64_t slot = (micro * b + s) * mesh.data_ranks() + mesh.data_rank();
            chosen.push_back(slot < global_sequences_ ? slot : static_cast<int64_t>(sequences.size()));
          }
          dealt = std::make_unique<DealtSequences>(sequences, chosen, request.step.sharding.sequence_length);
          return dealt->view();
        },
        learning_rate, numbers, [] { return false; }, hooks);
  }

  /// The loss over the first micro-batch of every data rank, as a validation measures it.
  LossSum evaluate(const std::vector<Sequence>& sequences) {
    std::vector<int64_t> chosen;
    for (int64_t s = 0; s < request.step.sharding.sequence_count; ++s)
      chosen.push_back(s * mesh.data_ranks() + mesh.data_rank());
    const DealtSequences dealt(sequences, chosen, request.step.sharding.sequence_length);
    return step->evaluate(
        1, [&](int64_t) { return dealt.view(); }, [] { return false; });
  }

  /// Calls body(parameter, logical element index, element) for every logical element of this rank's shard of
  /// a unit. The body may write the element.
  void each_element(const FsdpUnit& unit, const Tensor& range,
                    const std::function<void(const ParameterSpec&, int64_t, float&)>& body) {
    const int64_t begin = unit.shard_begin();
    std::vector<float> elements(static_cast<size_t>(range.count()));
    copy_bytes(stream, elements.data(), range.data, range.bytes());
    stream.synchronize();
    for (const Box& box : unit.layout().boxes(begin, begin + range.count()))
      for (int64_t r = 0; r < box.rows; ++r)
        for (int64_t c = 0; c < box.columns; ++c)
          body(*box.parameter, (box.row + r) * box.parameter->columns + box.column + c,
               elements[static_cast<size_t>(box.offset - begin + r * box.stride + c)]);
    copy_bytes(stream, range.data, elements.data(), range.bytes());
    stream.synchronize();
  }

  DeviceMesh mesh;
  Stream stream;
  MemoryLedger ledger;
  PlanRequest request;
  RankPlan plan;
  std::unique_ptr<TrainingStep> step;
  int64_t micro_batches = 1;
  int64_t begun = 0;  ///< micro-batches of the last step whose forward has begun

 private:
  int64_t global_sequences_;
};

/// The weights of the reference scripts: element i of parameter number `number`.
inline float rule_weight(const std::string& name, int64_t number, int64_t i) {
  const double wave = std::sin(0.37 * static_cast<double>(i) + 1.7 * static_cast<double>(number));
  return static_cast<float>(name.find("norm") != std::string::npos ? 1 + 0.1 * wave : 0.05 * wave);
}

/// The number of each parameter in this rule.
inline std::map<std::string, int64_t> rule_numbers(int64_t layers) {
  std::map<std::string, int64_t> numbers;
  const auto add = [&](const std::string& name) {
    numbers.emplace(name + ".weight", static_cast<int64_t>(numbers.size()));
  };
  add("tok_embeddings");
  for (int64_t layer = 0; layer < layers; ++layer)
    for (const char* name :
         {"attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1",
          "feed_forward.w2", "feed_forward.w3", "attention_norm", "ffn_norm"})
      add(fmt::format("layers.{}.{}", layer, name));
  add("norm");
  add("output");
  return numbers;
}

/// Fills all weights of a model by this rule.
inline void fill_by_rule(MeshTraining& run) {
  ShardedTransformer& model = run.step->model();
  const auto numbers = rule_numbers(model.config().num_hidden_layers);
  for (FsdpUnit& unit : model.units())
    run.each_element(unit, unit.master(), [&](const ParameterSpec& p, int64_t i, float& value) {
      value = rule_weight(p.name, numbers.at(p.name), i);
    });
  model.weights_changed(run.step->arena());
}

/// New weights, and adapters with a nonzero b, as after some training: with b zero an adapter has no effect.
inline void initialize_with_adapters(MeshTraining& run) {
  ShardedTransformer& model = run.step->model();
  model.initialize(7);
  for (FsdpUnit& unit : model.trained_units())
    run.each_element(unit, unit.master(), [&](const ParameterSpec& p, int64_t i, float& value) {
      if (p.name.ends_with("lora_B.weight"))
        value = 0.02F * static_cast<float>(std::sin(0.7 * static_cast<double>(i + std::ssize(p.name))));
    });
  model.weights_changed(run.step->arena());
}

/// Every mesh of `ranks` ranks with a tensor axis in `tensor`.
inline std::vector<MeshSizes> meshes_of(int64_t ranks, const std::vector<int64_t>& tensor = {1, 2, 4}) {
  std::vector<MeshSizes> meshes;
  for (const int64_t t : tensor)
    for (int64_t fsdp = 1; fsdp <= ranks; ++fsdp)
      if (ranks % (t * fsdp) == 0)
        meshes.push_back({.replicate = ranks / (t * fsdp), .fsdp = fsdp, .tensor = t});
  return meshes;
}

/// The pipelines that tests make of `ranks` ranks, beside every other axis.
inline std::vector<MeshSizes> meshes_with_stages(int64_t ranks) {
  switch (ranks) {
    case 2:
      return {{.fsdp = 1, .pipeline = 2}};
    case 3:
      return {{.fsdp = 1, .pipeline = 3}};
    case 4:
      return {{.fsdp = 1, .pipeline = 4},
              {.fsdp = 2, .pipeline = 2},
              {.fsdp = 1, .tensor = 2, .pipeline = 2},
              {.replicate = 2, .fsdp = 1, .pipeline = 2}};
    case 8:
      return {{.fsdp = 1, .pipeline = 8},
              {.fsdp = 2, .pipeline = 4},
              {.fsdp = 2, .tensor = 2, .pipeline = 2},
              {.replicate = 2, .fsdp = 2, .pipeline = 2}};
    default:
      return {};
  }
}

/// Sums x over all ranks of the world.
inline std::vector<double> sum_over_world(std::vector<double> x) {
  Communicator& world = test_world().communicator();
  const Stream stream(Device::cpu());
  const Tensor t{x.data(), DType::kFloat64, {static_cast<int64_t>(x.size())}, Device::cpu()};
  std::vector<float> memory(
      static_cast<size_t>(world.all_reduce_scratch_bytes(t.count(), DType::kFloat64) / 4 + 1));
  world.all_reduce(stream, t,
                   {memory.data(), DType::kInt32, {static_cast<int64_t>(memory.size())}, Device::cpu()});
  return x;
}

/// The gradient of the mean loss for every whole parameter, from the shards of all ranks.
inline std::map<std::string, std::vector<double>> gather_gradients(MeshTraining& run, double targets) {
  std::map<std::string, std::vector<double>> gradients;
  for (FsdpUnit& unit : run.step->model().units()) {
    for (const Box& slice : unit.layout().slices())
      gradients[slice.parameter->name].resize(static_cast<size_t>(slice.parameter->count()));
    if (run.mesh.coordinates().replicate != 0) continue;
    run.each_element(unit, unit.gradient(), [&](const ParameterSpec& p, int64_t i, float& value) {
      if (p.cut == Cut::kNone && run.mesh.coordinates().tensor != 0) return;
      gradients[p.name][static_cast<size_t>(i)] = value / targets;
    });
  }
  for (auto& [name, gradient] : gradients) gradient = sum_over_world(gradient);
  return gradients;
}

}  // namespace ripstop::mesh_training
