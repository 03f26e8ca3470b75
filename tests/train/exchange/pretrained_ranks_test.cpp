// Models of Hugging Face, two published ones among them, on every mesh of this world: logits and ids must
// equal those of transformers (tests/golden/make_pretrained.py).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/test_files.h"
#include "tests/train/exchange/models_on_meshes.h"
#include "tests/train/exchange/torch_writer.h"

namespace ripstop {
namespace {

using models_on_meshes::expect_near;
using models_on_meshes::greedy_on;
using models_on_meshes::logits_on;
using models_on_meshes::meshes_for;
using models_on_meshes::packed;
using nlohmann::json;

json json_of(const std::filesystem::path& path) {
  return json::parse(std::ifstream(path));
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

// The same weights in a file of torch.save, matrices in column-major order: no bit differs on any mesh.
TEST(PretrainedRanks, FilesOfTorchAreTheSameModel) {
  PretrainedDirectory plain, pickled;
  for (PretrainedDirectory* model : {&plain, &pickled}) {
    model->config["num_key_value_heads"] = 2;
    for (TensorToWrite& tensor : model->tensors)
      if (tensor.shape == std::vector<int64_t>{4, 8}) tensor.shape = {8, 8};
    model->fill("BF16");
  }
  plain.write();
  pickled.write_config();
  write_bytes(pickled.path() / "pytorch_model.bin", torch_bytes(pickled.tensors, /*turned=*/true));
  for (const MeshSizes& mesh : meshes_for(read_pretrained_config(plain.path()))) {
    SCOPED_TRACE(mesh.to_text());
    const std::vector<double> expected = logits_on(mesh, plain.path(), packed({{1, 5, 9}, {2, 3}}));
    EXPECT_EQ(logits_on(mesh, pickled.path(), packed({{1, 5, 9}, {2, 3}})), expected);
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
    for (const int64_t tensor : {1, 2, 4}) {
      if (test_world().communicator().size() % tensor != 0) continue;
      const MeshSizes mesh{test_world().communicator().size() / tensor, 1, tensor};
      SCOPED_TRACE(directory.string() + " on " + mesh.to_text());
      std::vector<std::vector<int32_t>> prompts;
      for (const auto& text : cases) prompts.push_back(text["prompt_ids"].get<std::vector<int32_t>>());
      const std::vector<std::vector<int32_t>> found = greedy_on(mesh, directory, prompts, 128, 40, {2});
      ASSERT_EQ(found.size(), cases.size());
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], cases[i]["greedy_40"].get<std::vector<int32_t>>());
    }
  });
}

}  // namespace
}  // namespace ripstop
