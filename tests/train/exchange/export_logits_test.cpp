// Logits of transformers for exported directories (tests/golden/export_logits.json, made by check_export.py)
// against ripstop's for the same weights. The golden file has the hash of each exported file, so that the
// export that transformers read is the one that this program makes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/batch.h"
#include "parallel/mpi_world.h"
#include "parallel/sharded_transformer.h"
#include "tests/data/scratch_directory.h"
#include "tests/test_files.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/exchange/export_model.h"

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

// A model on one rank whose weights are those of seed 1, rounded to the type of the export.
class LogitsModel {
 public:
  explicit LogitsModel(const LogitsCase& given) : given_(given) {
    model_.initialize(1);
    for (FsdpUnit& unit : model_.units()) {
      auto* const weights = unit.master().as<float>();
      if (given.dtype == ExportDType::kBFloat16)
        for (int64_t i = 0; i < unit.master().count(); ++i)
          weights[i] = static_cast<float>(BFloat16(weights[i]));
    }
    model_.weights_changed(arena_);
  }

  // The hash of model.safetensors.
  std::string export_to(const std::filesystem::path& output) {
    const ScratchDirectory run;
    std::vector<UnitStates> units;
    std::vector<std::vector<float>> moments;
    for (const FsdpUnit& unit : model_.units())
      moments.emplace_back(static_cast<size_t>(unit.master().count()));
    for (size_t u = 0; u < moments.size(); ++u) {
      const FsdpUnit& unit = model_.units()[u];
      units.push_back({&unit.layout(), unit.master().as<float>(), moments[u].data(), moments[u].data()});
    }
    CheckpointState state;
    state.step = 1;
    state.model = given_.model;
    PosixIo io;
    CheckpointWriter(io, run / "checkpoints", mesh_.world(), mesh_.sizes(), units).save(state, {});
    const std::filesystem::path directory = run / "checkpoints" / step_directory_name(1);
    const Checkpoint checkpoint{directory, check_checkpoint(io, directory)};
    const RunConfig config;
    const ExportReport report =
        export_model(io, mesh_.world(), {.checkpoint = checkpoint, .run = run.path(), .config = config},
                     output, {.dtype = given_.dtype}, [](const char*, int64_t, int64_t) {});
    return report.files.at(0).hash;
  }

  std::vector<float> logits(const std::vector<int32_t>& token) {
    const auto rows = std::ssize(token);
    std::vector<int32_t> position, target(token.size(), -1);
    for (int32_t i = 0; i < rows; ++i) position.push_back(i);
    const std::vector<int32_t> documents = {0, static_cast<int32_t>(rows)};
    BatchMemory memory(Device::cpu(), ledger_, 1, rows);
    const Batch batch = memory.load(stream_, 1, {token, position, target, documents});
    // In memory the vocabulary is padded.
    const int64_t pieces = given_.model.vocab_size, width = slice_extent(pieces, 1);
    std::vector<float> padded(static_cast<size_t>(rows * width)), values;
    model_.logits(arena_, batch, {padded.data(), DType::kFloat32, {rows, width}, Device::cpu()});
    for (int64_t row = 0; row < rows; ++row)
      values.insert(values.end(), padded.begin() + row * width, padded.begin() + row * width + pieces);
    return values;
  }

  static constexpr int64_t kPositions = 24;

 private:
  LogitsCase given_;
  MpiWorld world_;
  DeviceMesh mesh_{world_, {.replicate = 1, .fsdp = 1, .tensor = 1}};
  Stream stream_{Device::cpu()};
  MemoryLedger ledger_;
  Arena arena_{Device::cpu(), ledger_, MemoryUse{{0, 0, 0, int64_t{16} << 20, 0, 0}}};
  ShardedTransformer model_{
      given_.model,
      mesh_,
      stream_,
      ledger_,
      {.compute = DType::kFloat32, .sequence_count = 1, .sequence_length = kPositions, .training = false}};
};

// With RIPSTOP_EXPORT_LOGITS=DIR it exports the cases there, for check_export.py.
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
