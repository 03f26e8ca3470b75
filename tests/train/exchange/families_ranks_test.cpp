// Tiny models of each family on every mesh of this world, beside transformers: frequencies, logits, loss,
// gradients and texts (shared/golden/families).
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/expect_error.h"
#include "tests/test_files.h"
#include "tests/train/exchange/models_on_meshes.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {
namespace {

using mesh_training::MeshTraining;
using mesh_training::Sequence;
using models_on_meshes::expect_near;
using models_on_meshes::greedy_on;
using models_on_meshes::logits_on;
using models_on_meshes::meshes_for;
using models_on_meshes::packed;
using nlohmann::json;

constexpr const char* kShortWindow = "mistral_window_short";

/// One model of golden.json.
struct Family {
  std::filesystem::path directory;
  ModelConfig config;
  const json& all;     ///< the whole file
  const json& golden;  ///< the values of this model
};

/// Runs `body` with each model whose window is long enough.
template <class Body>
void each_family(const Body& body) {
  const auto models = shared_file("golden/families/models");
  if (!models) GTEST_SKIP() << "no shared/golden/families beside the checkout";
  const json all = json::parse(std::ifstream(*models / "golden.json"));
  ASSERT_EQ(all["models"].size(), 15);
  for (const auto& [name, golden] : all["models"].items()) {
    if (name == kShortWindow) continue;
    SCOPED_TRACE(name);
    const std::filesystem::path directory = *models / name;
    body(Family{directory, read_pretrained_config(directory), all, golden});
  }
}

/// The ids as one document in which each predicts the next.
Sequence sequence_of(const std::vector<int32_t>& ids) {
  Sequence sequence = packed({ids});
  for (size_t i = 0; i + 1 < ids.size(); ++i) sequence.target[i] = ids[i + 1];
  return sequence;
}

TEST(FamiliesRanks, SpellingsAndFrequenciesOfTransformers) {
  each_family([](const Family& family) {
    const std::string newer = read_text(family.directory / "config.transformers5.json");
    EXPECT_EQ(parse_pretrained_config(newer, "transformers 5"), family.config);
    const std::vector<double> expected = family.golden["inverse_frequencies"];
    ASSERT_EQ(std::ssize(expected), family.config.head_size() / 2);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(inverse_frequency(family.config, static_cast<int64_t>(i)), expected[i], 1e-6 * expected[i]);
  });
}

TEST(FamiliesRanks, Logits) {
  each_family([](const Family& family) {
    const std::vector<int32_t> ids = family.all["ids"];
    for (const MeshSizes& mesh : meshes_for(family.config)) {
      SCOPED_TRACE(mesh.to_text());
      const std::vector<double> found = logits_on(mesh, family.directory, packed({ids}));
      std::vector<double> chosen, expected;
      for (size_t p = 0; p < family.all["positions"].size(); ++p)
        for (size_t c = 0; c < family.all["columns"].size(); ++c) {
          const int64_t position = family.all["positions"][p], column = family.all["columns"][c];
          chosen.push_back(found[static_cast<size_t>(position * family.config.vocab_size + column)]);
          expected.push_back(family.golden["logits"][p][c]);
        }
      expect_near(chosen, expected, 1e-4);
    }
  });
}

/// Compares a gradient, in ripstop's order of rows, with norm and probe of Hugging Face's.
void expect_gradient(const std::string& name, const std::vector<double>& gradient, const ParameterSpec& spec,
                     int64_t head_size, const json& expected) {
  SCOPED_TRACE(name);
  double squares = 0, probe = 0, weights = 0;
  for (int64_t row = 0; row < spec.rows; ++row) {
    const int64_t there = has_turned_rows(name) ? pretrained_row(row, head_size) : row;
    for (int64_t column = 0; column < spec.columns; ++column) {
      const double element = gradient[static_cast<size_t>(row * spec.columns + column)];
      const double weight = std::cos(0.013 * static_cast<double>(there * spec.columns + column));
      squares += element * element;
      probe += element * weight;
      weights += weight * weight;
    }
  }
  const double norm = expected["norm"], tolerance = 5e-5 * norm;
  EXPECT_NEAR(std::sqrt(squares), norm, tolerance);
  // The largest change of the probe by an error of that size (Cauchy-Schwarz).
  EXPECT_NEAR(probe, expected["probe"].get<double>(), tolerance * std::sqrt(weights));
}

void expect_step(const Family& family, const MeshSizes& mesh, Recompute recompute) {
  const Sequence sequence = sequence_of(family.all["ids"]);
  StepOptions options;
  options.sharding = {.compute = DType::kFloat32,
                      .sequence_count = 0,
                      .sequence_length = std::ssize(sequence.token),
                      .recompute = recompute};
  options.max_grad_norm = 0;
  MeshTraining run(family.config, options, mesh, 1);
  load_pretrained(family.directory, run.step->model(), run.step->arena());
  const StepResult result = run.run({sequence}, 0.0, 1);
  EXPECT_NEAR(result.loss, family.golden["loss"].get<double>(), 1e-5);
  const double norm = family.golden["gradient_norm"];
  EXPECT_NEAR(result.gradient_norm, norm, 1e-5 * norm);
  const auto gradients = mesh_training::gather_gradients(run, static_cast<double>(result.sum.target_count));
  ASSERT_EQ(gradients.size(), family.golden["gradients"].size());
  for (const UnitSpec& unit : parameter_table(family.config))
    for (const ParameterSpec& spec : unit.parameters())
      expect_gradient(spec.name, gradients.at(spec.name), spec, family.config.head_size(),
                      family.golden["gradients"].at(pretrained_name(spec.name)));
  // A plan has a target in every row, so a real step may use less. Both are compared with an equal batch in
  // layout_ranks_test.cpp.
  EXPECT_LE(run.step->arena().peak().total(), run.plan.arena.total());
}

TEST(FamiliesRanks, LossAndGradients) {
  each_family([](const Family& family) {
    for (const MeshSizes& mesh : meshes_for(family.config)) {
      SCOPED_TRACE(mesh.to_text());
      expect_step(family, mesh, Recompute::kNone);
    }
    expect_step(family, meshes_for(family.config).back(), Recompute::kFull);
  });
}

TEST(FamiliesRanks, PlanEqualsWhatAStepUses) {
  each_family([](const Family& family) {
    Sequence sequence = sequence_of(family.all["ids"]);
    sequence.target = sequence.token;  // in every row, as the plan assumes
    for (const MeshSizes& mesh : meshes_for(family.config)) {
      SCOPED_TRACE(mesh.to_text());
      StepOptions options;
      options.sharding = {
          .compute = DType::kFloat32, .sequence_count = 1, .sequence_length = std::ssize(sequence.token)};
      MeshTraining run(family.config, options, mesh, mesh.replicate * mesh.fsdp);
      const std::vector<Sequence> sequences(static_cast<size_t>(mesh.replicate * mesh.fsdp), sequence);
      run.run(sequences, 1e-3, 1);
      run.evaluate(sequences);
      EXPECT_EQ(run.step->arena().peak().bytes, run.plan.arena.bytes);
      EXPECT_EQ(run.ledger.peak().bytes, run.plan.memory.bytes);
    }
  });
}

TEST(FamiliesRanks, GreedyIds) {
  each_family([](const Family& family) {
    std::vector<int32_t> prompt = family.all["ids"];
    prompt.resize(family.all["greedy_prompt"].get<size_t>());
    for (const MeshSizes& mesh : meshes_for(family.config)) {
      if (mesh.fsdp > 1) continue;
      SCOPED_TRACE(mesh.to_text());
      const std::vector<int32_t> expected = family.golden["greedy"], stops = family.golden["stop_ids"];
      EXPECT_EQ(greedy_on(mesh, family.directory, {prompt}, 128, std::ssize(expected), {}).at(0), expected);
      std::vector<int32_t> stopped = family.golden["greedy_with_stop_ids"];
      if (std::ranges::count(stops, stopped.back()) > 0) stopped.pop_back();
      EXPECT_EQ(greedy_on(mesh, family.directory, {prompt}, 128, std::ssize(expected), stops).at(0), stopped);
    }
  });
}

TEST(FamiliesRanks, AWindowThatIsTooShort) {
  const auto models = shared_file("golden/families/models");
  if (!models) GTEST_SKIP() << "no shared/golden/families beside the checkout";
  const ModelConfig config = read_pretrained_config(*models / kShortWindow);
  EXPECT_EQ(config.sliding_window, 32);
  expect_error([&] { InferenceOptions::of(config, 300, DType::kFloat32, 1, {.max_new_tokens = 24}); },
               ExitCode::kUsage, "", "1 to 32");
}

}  // namespace
}  // namespace ripstop
