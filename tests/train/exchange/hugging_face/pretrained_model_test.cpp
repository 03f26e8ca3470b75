#include "train/exchange/hugging_face/pretrained_model.h"

#include <gtest/gtest.h>

#include "model/parameter.h"
#include "tests/expect_error.h"
#include "tests/test_files.h"
#include "tests/train/exchange/torch_writer.h"

namespace ripstop {
namespace {

class PretrainedModelTest : public testing::Test {
 protected:
  PretrainedModel open() const { return open_pretrained_model(directory_.path()); }
  // The error of opening the directory.
  std::string refused() const {
    return what_and_hint_of([&] { open(); }, ExitCode::kInputData);
  }
  // Expects a tensor of the right shape for every parameter.
  static void expect_whole(const PretrainedModel& model) {
    size_t count = 0;
    for (const UnitSpec& unit : parameter_table(model.config))
      for (const ParameterSpec& parameter : unit.parameters()) {
        ++count;
        ASSERT_TRUE(model.tensors.contains(parameter.name)) << parameter.name;
        const StoredTensor& found = model.tensors.at(parameter.name);
        EXPECT_EQ(found.bytes, parameter.count() * dtype_bytes(found.dtype));
      }
    EXPECT_EQ(model.tensors.size(), count);
  }

  PretrainedDirectory directory_;
};

TEST_F(PretrainedModelTest, OneFileOrSeveral) {
  directory_.write();
  expect_whole(open());
  EXPECT_EQ(open().tensors.at("layers.1.attention.wk.weight").name, "model.layers.1.self_attn.k_proj.weight");
  std::filesystem::remove(directory_.path() / "model.safetensors");
  directory_.write_sharded();
  const PretrainedModel model = open();
  expect_whole(model);
  EXPECT_EQ(model.files.size(), 2u);
  EXPECT_EQ(model.tensors.at("tok_embeddings.weight").file, 0u);
  EXPECT_EQ(model.tensors.at("output.weight").file, 1u);
}

TEST_F(PretrainedModelTest, FilesOfTorchAreReadIfThereAreNoSafetensors) {
  directory_.write_config();
  const auto middle = directory_.tensors.begin() + 10;
  nlohmann::ordered_json index;
  const auto shard = [&](const std::string& name, auto begin, auto end) {
    write_bytes(directory_.path() / name, torch_bytes(std::vector<TensorToWrite>(begin, end)));
    for (auto tensor = begin; tensor != end; ++tensor) index["weight_map"][tensor->name] = name;
  };
  shard("pytorch_model-00001-of-00002.bin", directory_.tensors.begin(), middle);
  shard("pytorch_model-00002-of-00002.bin", middle, directory_.tensors.end());
  write_bytes(directory_.path() / "pytorch_model.bin.index.json", index.dump());
  PretrainedModel model = open();
  expect_whole(model);
  EXPECT_EQ(model.files.size(), 2U);
  EXPECT_EQ(model.storages.size(), directory_.tensors.size());
  EXPECT_EQ(model.storages.back().file, 1U);
  write_bytes(directory_.path() / "pytorch_model.bin", torch_bytes(directory_.tensors));
  model = open();
  expect_whole(model);
  EXPECT_EQ(model.files.at(0).path().filename(), "pytorch_model.bin");
  directory_.write();
  EXPECT_EQ(open().files.at(0).path().filename(), "model.safetensors");
  EXPECT_TRUE(open().storages.empty());
}

TEST_F(PretrainedModelTest, WordsOfWrappersAreTakenOff) {
  const PretrainedDirectory good;
  for (const std::string words : {"_orig_mod.", "module.", "base_model.model.", "module._orig_mod.", ""}) {
    directory_.tensors = good.tensors;
    for (TensorToWrite& tensor : directory_.tensors) tensor.name = words + tensor.name;
    directory_.write();
    expect_whole(open());
    EXPECT_EQ(open().wrappers, words);
    EXPECT_EQ(open().tensors.at("output.weight").name, words + "lm_head.weight");
  }
}

TEST_F(PretrainedModelTest, ATiedTableHasEitherNameOrBoth) {
  directory_.config["tie_word_embeddings"] = true;
  directory_.write();
  EXPECT_TRUE(open().tied_copy);
  directory_.erase("lm_head.weight");
  directory_.write();
  EXPECT_FALSE(open().tied_copy);
  expect_whole(open());
  directory_.tensor("model.embed_tokens.weight").name = "lm_head.weight";
  directory_.write();
  expect_whole(open());
  directory_.erase("lm_head.weight");
  directory_.write();
  EXPECT_HAS(refused(), "has no model.embed_tokens.weight");
}

TEST_F(PretrainedModelTest, RotaryAnglesOfOldFilesAreNotNeeded) {
  directory_.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}});
  directory_.write();
  EXPECT_EQ(open().ignored, (std::vector<std::string>{"model.layers.0.self_attn.rotary_emb.inv_freq"}));
  for (const char* name :
       {"model.layers.0.self_attn.rotary_emb.cos_cached", "model.rotary_emb.sin_cached",
        "model.embeddings.position_ids", "model.causal_mask", "model.layers.1.self_attn.bias"})
    directory_.tensors.push_back({name, {2}});
  directory_.write();
  EXPECT_EQ(open().ignored.size(), 6U);
}

TEST_F(PretrainedModelTest, DtypesOfWeightsAreRead) {
  for (const char* dtype : {"F16", "BF16", "F32"}) {
    for (TensorToWrite& tensor : directory_.tensors) tensor.dtype = dtype;
    directory_.write();
    expect_whole(open());
  }
  directory_.tensor("model.norm.weight").dtype = "F64";
  directory_.write();
  EXPECT_HAS(refused(), "model.norm.weight has the dtype F64; F32, F16 and BF16 are read");
}

TEST_F(PretrainedModelTest, TensorsThatDoNotFitAreRefused) {
  const PretrainedDirectory good;
  directory_.tensor("model.layers.0.self_attn.k_proj.weight").shape = {8, 8};
  directory_.write();
  EXPECT_HAS(refused(), "k_proj.weight is [8, 8], its config.json makes it [4, 8]");
  directory_.tensors = good.tensors;
  directory_.tensor("model.norm.weight").shape = {1, 8};
  directory_.write();
  EXPECT_HAS(refused(), "model.norm.weight is [1, 8], its config.json makes it [8]");
  directory_.tensors = good.tensors;
  directory_.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", {8}, "F32", {}});
  directory_.write();
  EXPECT_EQ(open().ignored.size(), 1U) << "a bias of zeros changes nothing";
  directory_.tensors.back().values = std::string(31, '\0') + "?";
  directory_.write();
  EXPECT_HAS(refused(), "that such a model does not have: model.layers.0.self_attn.q_proj.bias");
  directory_.tensors = good.tensors;
  directory_.config["num_hidden_layers"] = 1;
  directory_.write();
  EXPECT_HAS(refused(), "and 5 more");
  directory_.config["num_hidden_layers"] = 3;
  directory_.write();
  EXPECT_HAS(refused(), "has no model.layers.2.input_layernorm.weight");
  directory_.config["num_hidden_layers"] = int64_t{1} << 39;
  directory_.write();
  EXPECT_EQ(error_of([&] { open(); }).code(), ExitCode::kInputData);
}

TEST_F(PretrainedModelTest, AnIndexMustTellTheTruth) {
  const std::filesystem::path index = directory_.path() / "model.safetensors.index.json";
  directory_.write_sharded();
  const std::string good = read_bytes(index);
  const auto refused_with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_bytes(index, text);
    return refused();
  };
  EXPECT_HAS(refused_with("\"weight_map\"", "\"weights\""), "has no 'weight_map'");
  EXPECT_HAS(refused_with("\"model-00001-of-00002.safetensors\"", "7"), "has no file name");
  EXPECT_HAS(refused_with("model-00001-of-00002.safetensors", "../model.safetensors"), "names the file '../");
  EXPECT_HAS(refused_with("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
             "and it is not");
  EXPECT_HAS(refused_with("\"model.embed_tokens.weight\"", "\"model.embed\""), "says that model.embed is in");
  EXPECT_HAS(refused_with("model-00001-of-00002.safetensors", "absent.safetensors"), "absent.safetensors");
  write_bytes(index, "{}");
  EXPECT_HAS(refused(), "has no 'weight_map'");
  write_bytes(index, good);
  expect_whole(open());
  // Both files have the same tensor.
  write_bytes(directory_.path() / "model-00002-of-00002.safetensors", safetensors_bytes(directory_.tensors));
  EXPECT_HAS(refused(), "is in two files");
}

TEST_F(PretrainedModelTest, OtherDirectoriesSayWhatTheyLack) {
  EXPECT_FALSE(is_pretrained_model(directory_.path()));
  EXPECT_HAS(refused(), "config.json");
  directory_.write_config();
  EXPECT_TRUE(is_pretrained_model(directory_.path()));
  EXPECT_HAS(refused(), "has neither model.safetensors nor pytorch_model.bin");
  for (const auto& [name, way] :
       {std::pair{"model-00001-of-00002.safetensors", "take config.json and all other files"},
        {"ggml-model-q4.gguf", "take the safetensors"},
        {"pytorch_model-00001-of-00002.bin", "take config.json and all other files"},
        {"consolidated.00.pth", "convert_llama_weights_to_hf.py"},
        {"__0_0.distcp", "dcp_to_torch_save"},
        {"zero_to_fp32.py", "--safe_serialization"}}) {
    write_bytes(directory_.path() / name, "PK");
    EXPECT_HAS(refused(), std::string("has ") + name);
    EXPECT_HAS(refused(), way);
  }
  std::filesystem::create_symlink("../blobs/1", directory_.path() / "model.safetensors");
  EXPECT_HAS(refused(), "it is a link to ../blobs/1, which is not there");
  std::filesystem::remove(directory_.path() / "model.safetensors");
  write_bytes(directory_.path() / "manifest.json", "{}");
  EXPECT_FALSE(is_pretrained_model(directory_.path())) << "a checkpoint of ripstop";
}

TEST(PretrainedRow, NeighboursOfOursAreHalvesOfTheirs) {
  const std::vector<int64_t> expected = {0, 4, 1, 5, 2, 6, 3, 7};
  for (int64_t row = 0; row < 24; ++row)
    EXPECT_EQ(pretrained_row(row, 8), row / 8 * 8 + expected[static_cast<size_t>(row % 8)]);
}

TEST_F(PretrainedModelTest, PublishedModelsOpen) {
  const auto stories = shared_file("data/models/stories260K/hf");
  const auto tiny = shared_file("data/models/TinyStories-656K");
  if (!stories || !tiny) GTEST_SKIP() << "no shared/data/models beside the checkout";
  const PretrainedModel first = open_pretrained_model(*stories), second = open_pretrained_model(*tiny);
  expect_whole(first);
  expect_whole(second);
  EXPECT_EQ(first.config.num_key_value_heads, 4);
  EXPECT_EQ(second.tensors.at("tok_embeddings.weight").name, "lm_head.weight");
}

}  // namespace
}  // namespace ripstop
