// Models of Hugging Face, two published ones among them, on every mesh of this world: logits and ids must
// equal those of transformers (tests/golden/make_pretrained.py).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "tests/test_files.h"
#include "tests/train/exchange/load_pretrained.h"
#include "tests/train/generate/listed_prompts.h"
#include "tests/train/step/mesh_training.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/generate/inference_model.h"

namespace ripstop {
namespace {

using mesh_training::DealtSequences;
using mesh_training::MeshTraining;
using mesh_training::Sequence;
using mesh_training::sum_over_world;
using nlohmann::json;

json json_of(const std::filesystem::path& path) {
  return json::parse(std::ifstream(path));
}

/// The meshes of this world that can cut the model.
std::vector<MeshSizes> meshes_for(const ModelConfig& config) {
  return mesh_training::meshes_of(test_world().communicator().size(), tensor_axis_sizes(config));
}

/// One sequence with the texts as documents, filled up to a multiple of 8 positions.
Sequence packed(const std::vector<std::vector<int32_t>>& texts) {
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
std::vector<double> logits_on(const MeshSizes& sizes, const std::filesystem::path& directory,
                              const Sequence& sequence) {
  const ModelConfig config = read_pretrained_config(directory);
  const int64_t rows = std::ssize(sequence.token), slice = slice_extent(config.vocab_size, sizes.tensor);
  StepOptions options;
  options.sharding = {.compute = DType::kFloat32, .sequence_count = 1, .sequence_length = rows};
  MeshTraining run(config, options, sizes, 1);
  MemoryLedger ledger;
  Arena arena(test_device(), ledger, MemoryUse{{0, 0, 0, int64_t{16} << 20, 0, 0}});
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

void expect_near(std::span<const double> found, std::span<const double> expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(found[i] - expected[i]));
  EXPECT_LE(largest, tolerance);
}

/// -log of the probability that `logits` give to `id`.
double nll_of(std::span<const double> logits, int32_t id) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum) - logits[static_cast<size_t>(id)];
}

/// Compares the logits [ids, V] after `ids` with the expected likelihood of each next token.
void expect_nll(std::span<const double> logits, const std::vector<int32_t>& ids,
                const std::vector<double>& expected, double tolerance) {
  const size_t vocabulary = logits.size() / ids.size();
  std::vector<double> found;
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    found.push_back(nll_of(logits.subspan(i * vocabulary, vocabulary), ids[i + 1]));
  expect_near(found, expected, tolerance);
}

TEST(PretrainedRanks, LogitsOfTransformers) {
  const json golden = json_of(golden_file("pretrained/logits.json"));
  for (const auto& [name, model] : golden["models"].items()) {
    const std::filesystem::path directory = golden_file("pretrained/" + name);
    std::vector<std::vector<int32_t>> texts;
    for (const json& text : model["texts"]) texts.push_back(text["ids"]);
    std::vector<double> first;  // of the first mesh
    for (const MeshSizes& mesh : meshes_for(read_pretrained_config(directory))) {
      SCOPED_TRACE(name + " on " + mesh.to_text());
      const std::vector<double> found = logits_on(mesh, directory, packed(texts));
      if (first.empty()) first = found;
      expect_near(found, first, 1e-5);
      size_t begin = 0;
      for (const json& text : model["texts"]) {
        std::vector<double> expected;
        for (const json& row : text["logits"]) expected.insert(expected.end(), row.begin(), row.end());
        const std::span<const double> own = std::span(found).subspan(begin, expected.size());
        expect_near(own, expected, 2e-5);
        expect_nll(own, text["ids"], text["nll"], 2e-5);
        begin += expected.size();
      }
    }
  }
}

/// Runs `body` with directory and golden values of each published model. Prints a note for absent models.
template <class Body>
void each_published_model(const Body& body) {
  const auto golden = shared_file("golden/tiny_models.json");
  const auto models = shared_file("data/models");
  if (!golden || !models) GTEST_SKIP() << "no shared/golden and shared/data/models beside the checkout";
  const json values = json_of(*golden);
  body(*models / "stories260K/hf", values["stories260K"]["cases"]);
  body(*models / "TinyStories-656K", values["TinyStories-656K"]["cases"]);
}

TEST(PretrainedRanks, LogitsOfPublishedModels) {
  each_published_model([](const std::filesystem::path& directory, const json& cases) {
    const ModelConfig config = read_pretrained_config(directory);
    for (const MeshSizes& mesh : meshes_for(config))
      for (const json& text : cases) {
        const std::vector<int32_t> ids = text["prompt_ids"];
        SCOPED_TRACE(directory.string() + " on " + mesh.to_text() + " with ids " +
                     std::to_string(ids.size()));
        const std::vector<double> all = logits_on(mesh, directory, packed({ids}));
        const size_t vocabulary = static_cast<size_t>(config.vocab_size);
        const std::span<const double> used = std::span(all).first(ids.size() * vocabulary),
                                      last = used.last(vocabulary);
        expect_near(last.first(8), text["last_logits_first8"].get<std::vector<double>>(), 1e-4);
        EXPECT_EQ(std::ranges::max_element(last) - last.begin(), text["last_logits_argmax"].get<int64_t>());
        double squares = 0;
        for (const double logit : last) squares += logit * logit;
        EXPECT_NEAR(std::sqrt(squares), text["last_logits_l2"].get<double>(), 1e-4);
        if (text.contains("nll")) expect_nll(used, ids, text["nll"], 1e-5);
      }
  });
}

TEST(PretrainedRanks, GreedyIdsOfPublishedModels) {
  each_published_model([](const std::filesystem::path& directory, const json& cases) {
    const ModelConfig config = read_pretrained_config(directory);
    for (const int64_t tensor : {1, 2, 4}) {
      if (test_world().communicator().size() % tensor != 0) continue;
      DeviceMesh mesh(test_world(), {test_world().communicator().size() / tensor, 1, tensor}, false,
                      test_device());
      SCOPED_TRACE(directory.string() + " on " + mesh.sizes().to_text());
      const Stream stream(test_device());
      MemoryLedger ledger;
      const InferenceOptions options{
          .compute = DType::kFloat32, .context = 128, .slots = 2, .prefill_tokens = 256};
      const InferencePlan plan =
          plan_inference(config, options, mesh.sizes(), mesh.coordinates(), test_device().kind);
      InferenceModel model(config, options, mesh, stream, ledger, plan.arena);
      load_pretrained(directory, model.model(), model.arena());
      std::vector<std::vector<int32_t>> found;
      std::vector<std::vector<int32_t>> prompts;
      for (const auto& text : cases) prompts.push_back(text["prompt_ids"].get<std::vector<int32_t>>());
      const GenerateOptions of_texts{.slots = 2,
                                     .context = 128,
                                     .prefill_tokens = 256,
                                     .ids = config.vocab_size,
                                     .end_tokens = {2},
                                     .settings = {.max_new_tokens = 40}};
      generate(
          of_texts, ListedPrompts(std::move(prompts)),
          {.best = [&](std::span<const SlotTokens> items) { return model.best(items, config.vocab_size); },
           .logits = [&](std::span<const SlotTokens> items) { return model.logits(items); }},
          [&](Continuation continuation) { found.push_back(std::move(continuation.tokens)); });
      ASSERT_EQ(found.size(), cases.size());
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], cases[i]["greedy_40"].get<std::vector<int32_t>>());
    }
  });
}

}  // namespace
}  // namespace ripstop
