// Logits and texts of models of Hugging Face on meshes of this world.
#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "tests/train/exchange/load_pretrained.h"
#include "tests/train/generate/listed_prompts.h"
#include "tests/train/step/mesh_training.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/generate/inference_model.h"

namespace ripstop::models_on_meshes {

using mesh_training::DealtSequences;
using mesh_training::MeshTraining;
using mesh_training::Sequence;
using mesh_training::sum_over_world;

/// The meshes of this world that can cut the model.
inline std::vector<MeshSizes> meshes_for(const ModelConfig& config) {
  return mesh_training::meshes_of(test_world().communicator().size(), tensor_axis_sizes(config));
}

/// One sequence with the texts as documents, filled up to a multiple of 8 positions.
inline Sequence packed(const std::vector<std::vector<int32_t>>& texts) {
  Sequence sequence;
  const auto add = [&](int32_t token, size_t position) {
    if (position == 0) sequence.document.push_back(static_cast<int32_t>(sequence.token.size()));
    sequence.token.push_back(token);
    sequence.target.push_back(-1);
    sequence.position.push_back(static_cast<int32_t>(position));
  };
  for (const std::vector<int32_t>& ids : texts)
    for (size_t i = 0; i < ids.size(); ++i) add(ids[i], i);
  for (size_t i = 0; sequence.token.size() % 8 != 0; ++i) add(0, i);
  return sequence;
}

/// The logits [rows, V] of the model in `directory` on one mesh, whole on every rank.
inline std::vector<double> logits_on(const MeshSizes& sizes, const std::filesystem::path& directory,
                                     const Sequence& sequence) {
  const ModelConfig config = read_pretrained_config(directory);
  const int64_t rows = std::ssize(sequence.token), slice = slice_extent(config.vocab_size, sizes.tensor);
  StepOptions options;
  options.sharding = {.compute = DType::kFloat32, .sequence_count = 1, .sequence_length = rows};
  MeshTraining run(config, options, sizes, 1);
  MemoryLedger ledger;
  Arena arena(test_device(), ledger, MemoryUse{{0, 0, 0, int64_t{64} << 20, 0, 0}});
  load_pretrained(directory, run.step->model(), arena);
  BatchMemory memory(test_device(), ledger, 1, rows);
  const Batch batch = memory.load(run.stream, 1, DealtSequences({sequence}, {0}, rows).view());
  std::vector<float> own(static_cast<size_t>(rows * slice));
  const Buffer buffer(test_device(), ledger, MemoryCategory::kActivations, 4 * rows * slice);
  run.step->model().logits(arena, batch, tensor_in(buffer, 0, DType::kFloat32, {rows, slice}));
  copy_bytes(run.stream, own.data(), buffer.data(), buffer.bytes());
  run.stream.synchronize();

  const MeshCoordinates at = run.mesh.coordinates();
  std::vector<double> whole(static_cast<size_t>(rows * config.vocab_size));
  if (at.replicate == 0 && at.fsdp == 0)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t c = 0, id = at.tensor * slice; c < slice && id < config.vocab_size; ++c, ++id)
        whole[static_cast<size_t>(row * config.vocab_size + id)] = own[static_cast<size_t>(row * slice + c)];
  return sum_over_world(std::move(whole));
}

inline void expect_near(std::span<const double> found, std::span<const double> expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(found[i] - expected[i]));
  EXPECT_LE(largest, tolerance);
}

/// The ids that each prompt goes on with, without the end token: at most `most`, the likeliest ones. The fsdp
/// axis of `sizes` is 1.
inline std::vector<std::vector<int32_t>> greedy_on(const MeshSizes& sizes,
                                                   const std::filesystem::path& directory,
                                                   std::vector<std::vector<int32_t>> prompts, int64_t context,
                                                   int64_t most, std::vector<int32_t> end_tokens) {
  const ModelConfig config = read_pretrained_config(directory);
  DeviceMesh mesh(test_world(), sizes, false, test_device());
  const Stream stream(test_device());
  MemoryLedger ledger;
  const InferenceOptions options{
      .compute = DType::kFloat32, .context = context, .slots = 2, .prefill_tokens = 2 * context};
  const InferencePlan plan =
      plan_inference(config, options, mesh.sizes(), mesh.coordinates(), test_device().kind);
  InferenceModel model(config, options, mesh, stream, ledger, plan.arena);
  load_pretrained(directory, model.model(), model.arena());
  const GenerateOptions of_texts{.slots = options.slots,
                                 .context = context,
                                 .prefill_tokens = options.prefill_tokens,
                                 .ids = config.vocab_size,
                                 .end_tokens = std::move(end_tokens),
                                 .settings = {.max_new_tokens = most}};
  std::vector<std::vector<int32_t>> found;
  generate(of_texts, ListedPrompts(std::move(prompts)),
           {.best = [&](std::span<const SlotTokens> items) { return model.best(items, config.vocab_size); },
            .logits = [&](std::span<const SlotTokens> items) { return model.logits(items); }},
           [&](Continuation continuation) { found.push_back(std::move(continuation.tokens)); });
  return found;
}

}  // namespace ripstop::models_on_meshes
