// Hashes of a model of Hugging Face on all ranks of this world. Each rank has its own copy of the model.
#include "train/exchange/hugging_face/pretrained_model.h"

#include <string>

#include "data/files/hash.h"
#include "tests/expect_error.h"
#include "tests/parallel/rank_tests.h"
#include "tests/train/exchange/torch_writer.h"

namespace ripstop {
namespace {

constexpr size_t kBlock = size_t{16} << 20;

class PretrainedHash : public ::testing::Test {
 protected:
  // Makes the embedding and the head one and a half blocks long.
  void SetUp() override {
    constexpr int64_t kPieces = (int64_t{24} << 20) / 16;
    model_.config["vocab_size"] = kPieces;
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
      model_.tensor(name).shape[0] = kPieces;
    char next = 1;
    for (TensorToWrite& tensor : model_.tensors) {
      tensor.dtype = "BF16";
      tensor.values.resize(static_cast<size_t>(tensor.bytes()));
      for (size_t i = 0; i < tensor.values.size(); i += 977)
        tensor.values[i] = next = static_cast<char>(next + 3);
    }
    model_.write();
  }

  Communicator& world() { return test_world().communicator(); }
  std::string contents() { return contents_hash(open_pretrained_model(model_.path()), world()); }
  std::string samples() { return samples_hash(open_pretrained_model(model_.path())); }

  PretrainedDirectory model_;
};

TEST_F(PretrainedHash, IsThatOfTheBlocksWhateverTheRanks) {
  const PretrainedModel model = open_pretrained_model(model_.path());
  StreamHash expected;
  for (const auto& [name, tensor] : model.tensors)
    expected.update(name + " BF16 " + tensor.shape_text() + ";");
  for (const auto& [name, tensor] : model.tensors) {
    const std::string& bytes = model_.tensor(pretrained_name(name)).values;
    for (size_t at = 0; at < bytes.size(); at += kBlock) {
      StreamHash block;
      block.update(std::string_view(bytes).substr(at, kBlock));
      expected.update(block.hex());
    }
  }
  EXPECT_EQ(contents(), expected.hex());
}

TEST_F(PretrainedHash, OfTheContentsChangesWithAnyByte) {
  const std::string contents_before = contents(), samples_before = samples();
  const auto change = [&](const char* name, size_t at) {
    char& byte = model_.tensor(name).values[at];
    byte = static_cast<char>(byte ^ 1);
    model_.write();
  };
  // A byte between the samples, in the second block.
  change("lm_head.weight", kBlock + 5000);
  EXPECT_NE(contents(), contents_before);
  EXPECT_EQ(samples(), samples_before);
  change("lm_head.weight", kBlock + 5000);
  EXPECT_EQ(contents(), contents_before);
  change("model.norm.weight", 3);
  EXPECT_NE(contents(), contents_before);
  EXPECT_NE(samples(), samples_before);
}

// A file that became shorter after it was opened, on one rank alone.
TEST_F(PretrainedHash, AReadThatFailsOnOneRankFailsOnAll) {
  const PretrainedModel model = open_pretrained_model(model_.path());
  if (world().rank() == world().size() - 1)
    std::filesystem::resize_file(model_.path() / "model.safetensors", 4096);
  world().barrier();
  EXPECT_EQ(error_of([&] { contents_hash(model, world()); }).code(), ExitCode::kInputData);
}

// The ranks share the checksums of .bin files. Damage that one rank meets ends all.
TEST_F(PretrainedHash, ChecksumsOfStoragesAreCompared) {
  std::filesystem::remove(model_.path() / "model.safetensors");
  const std::filesystem::path file = model_.path() / "pytorch_model.bin";
  const std::string good = torch_bytes(model_.tensors);
  write_bytes(file, good);
  const PretrainedModel model = open_pretrained_model(model_.path());
  EXPECT_NO_THROW(check_storages(model, world()));
  EXPECT_NO_THROW(contents());
  for (const size_t i : {0, 9, 20}) {
    const ZipMember& storage = model.storages.at(i);
    world().barrier();
    OutputFile damaged(file, OutputFile::Mode::kExisting);
    const auto at = static_cast<size_t>(storage.begin + storage.bytes - 1);
    const char byte = static_cast<char>(good[at] ^ 1);
    damaged.write_at(storage.begin + storage.bytes - 1, &byte, 1);
    SCOPED_TRACE(storage.name);
    expect_error([&] { check_storages(model, world()); }, ExitCode::kInputData);
    damaged.write_at(storage.begin + storage.bytes - 1, &good[at], 1);
  }
}

// A run hashes its base and reads it afterwards: both must be the same bytes, whatever others do meanwhile.
TEST_F(PretrainedHash, BytesThatChangeAfterTheyWereHashedAreNotRead) {
  const PretrainedModel model = open_pretrained_model(model_.path());
  contents_hash(model, world());
  const std::vector<UnitSpec> table = parameter_table(model.config);
  const auto read_all = [&] {
    for (const UnitSpec& unit : table) {
      const UnitLayout layout(unit, 1, 0, 1);
      std::vector<float> values(static_cast<size_t>(layout.elements()));
      read_pretrained(model, layout, 0, layout.elements(), values.data());
    }
  };
  EXPECT_NO_THROW(read_all());
  const StoredTensor& head = model.tensors.at("output.weight");
  const InputFile& file = model.files[head.file];
  char byte = 0;
  file.read_at(head.begin + head.bytes - 1, &byte, 1);
  byte ^= 1;
  OutputFile(file.path(), OutputFile::Mode::kExisting).write_at(head.begin + head.bytes - 1, &byte, 1);
  expect_error([&] { read_all(); }, ExitCode::kInputData, "lm_head.weight has changed since it was hashed");
}

}  // namespace
}  // namespace ripstop
