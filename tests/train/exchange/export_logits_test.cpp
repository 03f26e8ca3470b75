// Compares ripstop's logits with those of transformers for exports of the same weights
// (tests/golden/export_logits.json, made by check_export.py). The golden file has hashes of the exports that
// transformers read; this program must make equal ones.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/data/scratch_directory.h"
#include "tests/test_files.h"
#include "tests/train/checkpoint/memory_writer.h"
#include "tests/train/exchange/one_rank_model.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/exchange/write/export_model.h"

namespace ripstop {
namespace {

struct LogitsCase {
  const char* name;
  ModelConfig model;
  ExportDType dtype;
};

ModelConfig logits_model() {
  return {.hidden_size = 32,
          .intermediate_size = 44,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 4,
          .vocab_size = 61,
          .max_position_embeddings = 64,
          .initializer_range = 0.25};
}

std::vector<LogitsCase> logits_cases() {
  ModelConfig grouped = logits_model(), tied = logits_model(), theta = logits_model();
  grouped.num_key_value_heads = 2;
  tied.tie_word_embeddings = true;
  theta.rope_theta = 500000.0;
  theta.rms_norm_eps = 1e-6;
  return {{"plain", logits_model(), ExportDType::kFloat32},
          {"grouped", grouped, ExportDType::kFloat32},
          {"tied", tied, ExportDType::kFloat32},
          {"theta", theta, ExportDType::kFloat32},
          {"bfloat16", grouped, ExportDType::kBFloat16}};
}

// A model on one rank with the weights of seed 1, rounded to the type of the export.
class LogitsModel {
 public:
  explicit LogitsModel(const LogitsCase& given) : given_(given) {
    on_one_rank_.model.initialize(1);
    for (FsdpUnit& unit : on_one_rank_.model.units()) {
      auto* const weights = unit.master().as<float>();
      if (given.dtype == ExportDType::kBFloat16)
        for (int64_t i = 0; i < unit.master().count(); ++i)
          weights[i] = static_cast<float>(BFloat16(weights[i]));
    }
    on_one_rank_.model.weights_changed(on_one_rank_.arena);
  }

  // Exports the model. Returns the hash of model.safetensors.
  std::string export_to(const std::filesystem::path& output) {
    const ScratchDirectory run;
    std::vector<UnitStates> units;
    std::vector<std::vector<float>> moments;
    for (const FsdpUnit& unit : on_one_rank_.model.units())
      moments.emplace_back(static_cast<size_t>(unit.master().count()));
    for (size_t u = 0; u < moments.size(); ++u) {
      const FsdpUnit& unit = on_one_rank_.model.units()[u];
      units.push_back({&unit.layout(), unit.master().as<float>(), moments[u].data(), moments[u].data()});
    }
    CheckpointState state;
    state.step = 1;
    state.model = given_.model;
    Io io;
    memory_writer(io, run / "checkpoints", on_one_rank_.mesh.world(), on_one_rank_.mesh.sizes(), units)
        .save(state, {});
    const std::filesystem::path directory = run / "checkpoints" / step_directory_name(1);
    const TrainedModel trained{StoredModel({directory, read_manifest(io, directory)}), run.path(), {}};
    const ExportReport report = export_model(io, on_one_rank_.mesh.world(), trained, output,
                                             {.dtype = given_.dtype}, [](const char*, int64_t, int64_t) {});
    return report.files.at(0).hash;
  }

  std::vector<float> logits(const std::vector<int32_t>& token) { return on_one_rank_.logits(token); }

  static constexpr int64_t kPositions = 24;

 private:
  LogitsCase given_;
  OneRankModel on_one_rank_{given_.model, kPositions};
};

// With RIPSTOP_EXPORT_LOGITS=DIR the exports are written to DIR, for check_export.py.
TEST(ExportLogits, TransformersComputesTheSame) {
  const char* const keep = std::getenv("RIPSTOP_EXPORT_LOGITS");
  const ScratchDirectory scratch;
  nlohmann::json golden;
  if (keep == nullptr) golden = nlohmann::json::parse(std::ifstream(golden_file("export_logits.json")));
  for (const LogitsCase& given : logits_cases()) {
    SCOPED_TRACE(given.name);
    LogitsModel model(given);
    const std::string hash =
        model.export_to(keep == nullptr ? scratch / given.name : std::filesystem::path(keep) / given.name);
    if (keep != nullptr) continue;
    const nlohmann::json& expected = golden.at(given.name);
    EXPECT_EQ(hash, expected.at("model.safetensors").get<std::string>());
    const std::vector<int32_t> token = expected.at("ids");
    const std::vector<float> logits = model.logits(token);
    const std::vector<double> theirs = expected.at("logits");
    ASSERT_EQ(logits.size(), theirs.size());
    double largest = 0, error = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(theirs[i]));
      error = std::max(error, std::abs(logits[i] - theirs[i]));
    }
    EXPECT_GT(largest, 0.5);
    EXPECT_LT(error, 1e-5 * largest);
  }
}

}  // namespace
}  // namespace ripstop
