// Runs of a pretrained model with new tokens and several end tokens, on the meshes of this world: they begin
// with the weights of one rank bit for bit, go on, and are exported.
#include <cmath>

#include "data/dataset/token_dataset_writer.h"
#include "tests/data/small_tokenizer.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "tests/train/shared_directory.h"
#include "tests/train/step/mesh_training.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"
#include "train/exchange/write/export_model.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

constexpr int64_t kResizedPositions = 32, kNew = 5;

constexpr const char* kConfig = R"(
[run]
device = "cpu"
[data]
sequence_length = 32
[train]
steps = 1
global_batch_sequences = 4
[optimizer]
learning_rate = 1e-30
weight_decay = 0
[schedule]
kind = "constant"
[precision]
compute = "float32"
)";

class PretrainedMeshes : public SharedDirectory {
 protected:
  void fill(const std::filesystem::path& directory) override {
    PretrainedDirectory source;
    source.config["num_key_value_heads"] = 2;
    for (TensorToWrite& tensor : source.tensors)
      if (tensor.name.ends_with("k_proj.weight") || tensor.name.ends_with("v_proj.weight"))
        tensor.shape = {8, 8};
    source.resize(pieces_ - kNew, kResizedPositions);
    source.fill("F32");
    source.write();
    write_bytes(source.path() / "tokenizer.model", small_model());
    write_bytes(source.path() / "generation_config.json", R"({"eos_token_id": [9, 7]})");
    std::filesystem::copy(source.path(), directory / "model");
    write_bytes(directory / "tokenizer.model", tokenizer_);
    TokenDatasetHeader header;
    header.vocabulary_size = pieces_;
    header.tokenizer_sha256 = Tokenizer(tokenizer_, "small").sha256();
    TokenDatasetWriter writer(directory / "train.h5", header);
    for (int64_t i = 0; i < 16; ++i) {
      const auto fresh = static_cast<int32_t>(pieces_ - 1 - i % kNew);
      writer.add({.tokens = {1, 5, 6, static_cast<int32_t>(7 + i), 8, 9, fresh, 2}, .spans = {{5, 8, 1, 4}}});
    }
    writer.finish();
  }

  ExitCode train(const std::string& run, const MeshSizes& mesh, std::vector<std::string> overrides) const {
    overrides.insert(
        overrides.end(),
        {"run.directory=" + (directory_ / run).string(),
         "model.pretrained=" + (directory_ / "model").string(), "data.directory=" + directory_.string(),
         fmt::format("mesh.replicate={}", mesh.replicate), fmt::format("mesh.fsdp={}", mesh.fsdp),
         fmt::format("mesh.tensor={}", mesh.tensor)});
    return Trainer::make({.config = parse_run_config(kConfig, "test", overrides),
                          .argv = {},
                          .say = {},
                          .stop_requested = {}},
                         test_world())
        ->run();
  }
  /// All weights of a model of pieces_ ids.
  std::vector<float> weights(const StoredModel& model) const {
    ModelConfig config = model.config();
    config.vocab_size = pieces_;
    std::vector<float> all;
    Io io;
    for (const std::vector<UnitSpec> table = parameter_table(config); const UnitSpec& unit : table) {
      const UnitLayout layout(unit, 1, 0, 1);
      std::vector<float> of_unit(static_cast<size_t>(layout.elements()));
      WeightsReader(io, model).read(0, {.layout = &layout, .master = of_unit.data()});
      all.insert(all.end(), of_unit.begin(), of_unit.end());
    }
    return all;
  }

  const std::string tokenizer_ = small_model_with({"<a>", "<b>", "<c>", "<d>", "<e>"});
  const int64_t pieces_ = Tokenizer(tokenizer_, "small").vocabulary_size();
};

TEST_F(PretrainedMeshes, NewRowsAreThoseOfOneRankAndStay) {
  Io io;
  StoredModel source = open_stored_model(io, directory_ / "model");
  source.set_growth({ResizeVocabulary::kNormal, 1});
  const std::vector<float> expected = weights(source);
  for (const MeshSizes& mesh : mesh_training::meshes_of(test_world().communicator().size(), {1, 2})) {
    if (mesh.replicate > 1) continue;
    SCOPED_TRACE(mesh.to_text());
    const std::string run = fmt::format("run-{}-{}", mesh.fsdp, mesh.tensor);
    const std::string normal = "model.resize_vocabulary=normal";
    ASSERT_EQ(train(run, mesh, {normal}), ExitCode::kOk);
    const std::vector<float> begun =
        weights(open_stored_model(io, directory_ / run / "checkpoints" / step_directory_name(1)));
    ASSERT_EQ(begun.size(), expected.size());
    for (size_t i = 0; i < begun.size(); ++i)  // the step has moved only zeros
      ASSERT_TRUE(begun[i] == expected[i] || std::abs(begun[i] - expected[i]) < 1e-20F) << i;
    ASSERT_EQ(train(run, mesh, {normal, "train.steps=2"}), ExitCode::kOk);

    const TrainedModel trained =
        find_trained_model(io, test_world().communicator(), (directory_ / run).string(), "2");
    EXPECT_EQ(trained.config.generation.eos_token_id, (std::vector<int32_t>{7, 9}));
    const std::filesystem::path out = directory_ / (run + "-out");
    (void)export_model(io, test_world().communicator(), trained, out, {},
                       [](const char*, int64_t, int64_t) {});
    test_world().communicator().barrier();
    EXPECT_EQ(read_pretrained_config(out).vocab_size, pieces_);
    EXPECT_EQ(read_end_tokens(out, pieces_).ids, (std::vector<int32_t>{2, 7, 9}));
    const std::vector<float> exported = weights(open_stored_model(io, out));
    EXPECT_EQ(exported, weights(trained.stored));
  }
}

// With a real learning rate the new rows are trained: the mean, which all begin with, is left.
TEST_F(PretrainedMeshes, NewRowsAreTrained) {
  Io io;
  std::vector<double> losses;
  for (const MeshSizes& mesh : mesh_training::meshes_of(test_world().communicator().size(), {1, 2})) {
    if (mesh.replicate > 1) continue;
    SCOPED_TRACE(mesh.to_text());
    const std::string run = fmt::format("trained-{}-{}", mesh.fsdp, mesh.tensor);
    ASSERT_EQ(
        train(run, mesh, {"model.resize_vocabulary=mean", "train.steps=6", "optimizer.learning_rate=1e-2"}),
        ExitCode::kOk);
    const MetricsLog log = read_metrics(directory_ / run / "metrics.jsonl");
    ASSERT_EQ(log.steps.size(), 6U);
    EXPECT_LT(log.steps.back().loss, log.steps.front().loss);
    losses.push_back(log.steps.back().loss);
    EXPECT_NEAR(losses.back(), losses.front(), 1e-4 * losses.front());
  }
}

}  // namespace
}  // namespace ripstop
