#include "train/exchange/read/stored_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/data/fault_io.h"
#include "tests/expect_error.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/checkpoint/verify.h"
#include "train/config/run_config.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"
#include "train/exchange/write/export_model.h"

namespace ripstop {
namespace {

class StoredModels : public testing::Test {
 protected:
  StoredModels() {
    model_.fill("BF16");
    model_.write();
  }
  StoredModel pretrained() { return open_stored_model(io_, find_stored_model(io_, model_.path(), "best")); }

  // The masters of all units on one rank.
  static std::vector<std::vector<float>> masters(Io& io, const StoredModel& model) {
    std::vector<std::vector<float>> all;
    const std::vector<UnitSpec> table = parameter_table(model.config());
    for (const UnitSpec& unit : table) {
      const UnitLayout layout(unit, 1, 0, 1);
      all.emplace_back(static_cast<size_t>(layout.elements()), -7.0F);
      WeightsReader(io, model).read(0, {.layout = &layout, .master = all.back().data()});
    }
    return all;
  }

  QuickIo io_;
  PretrainedDirectory model_;
  ScratchDirectory scratch_;
};

TEST_F(StoredModels, APretrainedModelHasAConfigThatEvaluatesIt) {
  const StoredModel model = pretrained();
  EXPECT_TRUE(model.is_pretrained());
  EXPECT_EQ(model.directory(), model_.path());
  EXPECT_EQ(model.state().step, 0);
  EXPECT_EQ(model.state().data_content_hash, "");
  EXPECT_EQ(model.state().tokenizer_sha256, "");
  const RunConfig config = parse_run_config(model.state().config, "test");
  EXPECT_EQ(config.data.sequence_length, 32) << "as long as the model allows";
  EXPECT_EQ(config.precision.compute, FloatChoice::kBfloat16);
  model_.config["max_position_embeddings"] = 131072;
  model_.fill("F32");
  model_.write();
  const RunConfig wide = parse_run_config(pretrained().state().config, "test");
  EXPECT_EQ(wide.data.sequence_length, 2048);
  EXPECT_EQ(wide.precision.compute, FloatChoice::kFloat32);
}

TEST_F(StoredModels, TheHashOfTheWeightsTellsFineTunesApart) {
  const std::string hash = pretrained().samples_hash();
  EXPECT_EQ(pretrained().samples_hash(), hash);
  std::string& values = model_.tensor("model.layers.0.mlp.up_proj.weight").values;
  values[values.size() / 2] ^= 1;
  model_.write();
  EXPECT_NE(pretrained().samples_hash(), hash);
}

TEST_F(StoredModels, AnImportHoldsTheSameWeightsAndZeroMoments) {
  const StoredModel model = pretrained();
  int64_t done = 0;
  EXPECT_GT(import_model(io_, model, scratch_ / "out", {}, [&](int64_t elements) { done = elements; }), 0);
  EXPECT_GE(done, parameter_count(model.config()));
  const StoredModel imported = open_stored_model(io_, find_stored_model(io_, scratch_ / "out", "latest"));
  EXPECT_FALSE(imported.is_pretrained());
  EXPECT_EQ(imported.config(), model.config());
  EXPECT_EQ(masters(io_, imported), masters(io_, model));
  EXPECT_EQ(parse_run_config(imported.state().config, "test").run.directory, (scratch_ / "out").string());
  // Another mesh reads the whole model, moments included.
  SmallRun ranks(model.config(), {.replicate = 1, .fsdp = 3, .tensor = 1});
  ranks.read(io_, imported.directory());
  for (RankMemory& rank : ranks.ranks())
    for (size_t i = 0; i < rank.arrays().size(); ++i)
      if (i % 3 != 0) {
        EXPECT_EQ(rank.arrays()[i], std::vector<float>(rank.arrays()[i].size(), 0.0F));
      }
}

TEST_F(StoredModels, AnImportReplacesNothingAndLeavesNothing) {
  std::filesystem::create_directories(scratch_ / "out" / "mine");
  EXPECT_EQ(error_of([&] { import_model(io_, pretrained(), scratch_ / "out"); }).code(), ExitCode::kUsage);
  const uint16_t infinity = 0x7f80;
  model_.tensor("lm_head.weight").values.replace(6, 2, reinterpret_cast<const char*>(&infinity), 2);
  model_.write();
  expect_error([&] { import_model(io_, pretrained(), scratch_ / "bad"); }, ExitCode::kInputData,
               "lm_head.weight has a value that is not finite");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.path()), {}), 1) << "out alone";
}

TEST_F(StoredModels, AManifestWithOtherParametersThanItsModelIsRefused) {
  SmallRun run(tiny_model(), {.replicate = 1, .fsdp = 1, .tensor = 1});
  run.fill(3);
  ModelConfig other = tiny_model();
  other.hidden_size = 8;
  for (const std::optional<Error>& error : run.save(io_, scratch_ / "checkpoints", state_at(3, other)))
    ASSERT_FALSE(error) << error->what();
  expect_error([&] { open_stored_model(io_, find_stored_model(io_, scratch_.path(), "latest")); },
               ExitCode::kStorage, "in the checkpoint");
}

// Expects nothing or the whole checkpoint in `scratch` after an import on a failing file system.
void expect_whole_or_nothing(const std::filesystem::path& scratch) {
  Io io;
  if (!std::filesystem::exists(scratch / "out")) return;
  EXPECT_TRUE(verify_checkpoint(io, find_stored_model(io, scratch / "out", "latest")).empty());
}

TEST_F(StoredModels, OneErrorAtAnyCallOfAnImportLeavesNothing) {
  FaultIo counting;
  import_model(counting, pretrained(), scratch_ / "out");
  int64_t failed = 0;
  for (int64_t at = 0; at < counting.calls; ++at) {
    SCOPED_TRACE(at);
    const ScratchDirectory scratch;
    FaultIo io(FaultIo::Kind::kError, at, ENOSPC);
    const Error refused = error_of([&] { import_model(io, pretrained(), scratch / "out"); });
    expect_whole_or_nothing(scratch.path());
    EXPECT_EQ(refused.code() == ExitCode::kOk, std::filesystem::exists(scratch / "out")) << refused.what();
    if (refused.code() == ExitCode::kOk) continue;
    ++failed;
    EXPECT_EQ(refused.code(), ExitCode::kStorage) << refused.what();
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path())) << refused.what();
  }
  EXPECT_GT(failed, counting.calls / 2);
}

TEST_F(StoredModels, AnImportThatIsKilledAtAnyCallIsWholeOrAbsent) {
  FaultIo counting;
  import_model(counting, pretrained(), scratch_ / "out");
  int64_t committed = 0;
  for (int64_t at = 0; at < counting.calls; ++at) {
    SCOPED_TRACE(at);
    const ScratchDirectory scratch;
    FaultIo io(FaultIo::Kind::kKill, at);
    ASSERT_FALSE(survives([&] { import_model(io, pretrained(), scratch / "out"); }));
    expect_whole_or_nothing(scratch.path());
    committed += std::filesystem::exists(scratch / "out") ? 1 : 0;
  }
  EXPECT_GT(committed, 0);
}

TEST_F(StoredModels, AnImportThatIsStoppedLeavesNothing) {
  struct Stopped {};
  EXPECT_THROW(import_model(io_, pretrained(), scratch_ / "out", {}, [](int64_t) { throw Stopped(); }),
               Stopped);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
}

TEST_F(StoredModels, AnImportLooksForRoomFirst) {
  class SmallDisk : public QuickIo {
   public:
    int free_bytes(const std::filesystem::path&, int64_t& bytes) override {
      bytes = 100;
      return 0;
    }
  } io;
  for (TensorToWrite& tensor : model_.tensors) tensor.name = "module." + tensor.name;
  model_.write();  // there is a note, and nobody to hear it
  expect_error(
      [&] { import_model(io, pretrained(), scratch_ / "out"); }, ExitCode::kStorage,
      scratch_.path().string() + ": 100 B free, weights in float32 and what lies beside them need up to");
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
}

// A moment of zeros takes no room on the disk.
TEST_F(StoredModels, ZerosAreHolesOfTheFile) {
  model_.config["vocab_size"] = 70'000;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    model_.tensor(name).shape[0] = 70'000;
  model_.fill("F16");
  model_.write();
  import_model(io_, pretrained(), scratch_ / "out");
  // Several stretches of blocks, which threads share.
  EXPECT_TRUE(masters(io_, open_stored_model(io_, find_stored_model(io_, scratch_ / "out", "latest"))) ==
              masters(io_, pretrained()));
  const std::filesystem::path file = find_stored_model(io_, scratch_ / "out", "latest") / rank_file_name(0);
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_GT(status.st_size, 3 * 4 * 2 * 70'000 * 8);
  EXPECT_LT(status.st_blocks * 512, status.st_size / 3 * 2);
}

}  // namespace
}  // namespace ripstop
