#include "train/exchange/peft/peft_adapter.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/expect_error.h"
#include "tests/train/exchange/peft_directory.h"
#include "tests/train/exchange/torch_writer.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

constexpr const char* kFirst = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";

class PeftAdapterFiles : public testing::Test {
 protected:
  PeftAdapter opened() const {
    given_.write();
    return open_peft_adapter(given_.path(), model_);
  }
  void expect_refused(const std::string& what, const std::string& hint = "") const {
    for (const std::string& part : {given_.path().string(), what})
      expect_error([&] { opened(); }, ExitCode::kInputData, part, hint);
  }

  // The stored value of an element, by definition: the rows of b of q_proj and k_proj are [2, pairs] in a
  // head of PEFT's tensors.
  float expected(const ParameterSpec& p, int64_t row, int64_t column) const {
    const bool turns = p.name.ends_with("wq.lora_B.weight") || p.name.ends_with("wk.lora_B.weight");
    const int64_t head = model_.head_size();
    if (turns) row = row / head * head + row % 2 * (head / 2) + row % head / 2;
    return stored_value(pretrained_name(p.name), row * p.columns + column);
  }

  ModelConfig model_ = pretrained_directory_model();
  PeftDirectory given_;
};

TEST(PeftName, IsThatOfTheModule) {
  EXPECT_EQ(pretrained_name("layers.3.attention.wq.lora_A.weight"),
            "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(pretrained_name("layers.13.feed_forward.w2.lora_B.weight"),
            "base_model.model.model.layers.13.mlp.down_proj.lora_B.weight");
}

TEST_F(PeftAdapterFiles, HaveEveryAdapterOfTheirTargets) {
  const PeftAdapter adapter = opened();
  EXPECT_EQ(adapter.lora.rank, 2);
  std::set<std::string> names;
  for (const auto& [name, tensor] : adapter.tensors) names.insert(name);
  EXPECT_EQ(names.size(), 12u);
  EXPECT_TRUE(names.contains("layers.1.attention.wq.lora_B.weight"));
  EXPECT_TRUE(names.contains("layers.0.feed_forward.w2.lora_A.weight"));
}

TEST_F(PeftAdapterFiles, EveryElementGetsToItsPlaceOnEveryMesh) {
  // 2 query and 2 key-value heads, which a tensor axis can cut.
  model_.num_key_value_heads = 2;
  given_.config["target_modules"] = {"q_proj", "k_proj", "v_proj", "down_proj"};
  for (const char* layer : {"0", "1"}) {
    const std::string at = std::string("base_model.model.model.layers.") + layer + ".self_attn.";
    given_.tensor(at + "v_proj.lora_B.weight").shape = {8, 2};
    given_.tensors.push_back({at + "k_proj.lora_A.weight", {2, 8}});
    given_.tensors.push_back({at + "k_proj.lora_B.weight", {8, 2}});
  }
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    given_.fill(dtype);
    const PeftAdapter adapter = opened();
    const std::vector<UnitSpec> table = adapter_table(model_, adapter.lora);
    std::map<std::string, int64_t> found;
    for (const UnitSpec& unit : table)
      for (const int64_t tensor : {1, 2})
        for (const int64_t fsdp : {1, 2, 3})
          for (int64_t t = 0; t < tensor; ++t)
            for (int64_t f = 0; f < fsdp; ++f) {
              const UnitLayout layout(unit, tensor, t, fsdp);
              const int64_t elements = layout.shard_elements(), begin = f * elements;
              std::vector<float> shard(static_cast<size_t>(elements), -7.0F), wanted(shard.size(), 0.0F);
              read_peft(adapter, layout, begin, begin + elements, shard.data());
              for (const Box& box : layout.boxes(begin, begin + elements))
                for (int64_t r = 0; r < box.rows; ++r)
                  for (int64_t c = 0; c < box.columns; ++c, ++found[box.parameter->name])
                    wanted[static_cast<size_t>(box.offset - begin + r * box.stride + c)] =
                        expected(*box.parameter, box.row + r, box.column + c);
              EXPECT_EQ(shard, wanted) << unit.name << " tensor " << t << " fsdp " << f;
            }
    // Over six meshes. Both ranks of the tensor axis have the parameters that it does not cut.
    EXPECT_EQ(found.at("layers.1.attention.wq.lora_B.weight"), 6 * 16);
    EXPECT_EQ(found.at("layers.1.attention.wq.lora_A.weight"), 3 * 16 + 3 * 2 * 16);
  }
}

TEST_F(PeftAdapterFiles, FilesOfTorchAreReadIfThereAreNoSafetensors) {
  const auto all_of = [&](const PeftAdapter& adapter) {
    std::vector<std::vector<float>> all;
    for (const UnitSpec& unit : adapter_table(model_, adapter.lora)) {
      const UnitLayout layout(unit, 1, 0, 1);
      std::vector<float>& values = all.emplace_back(static_cast<size_t>(layout.elements()));
      read_peft(adapter, layout, 0, layout.elements(), values.data());
    }
    return all;
  };
  const std::vector<std::vector<float>> expected = all_of(opened());
  std::string bytes = torch_bytes(given_.tensors, /*turned=*/true);
  write_bytes(given_.path() / "adapter_model.bin", bytes);
  EXPECT_EQ(open_peft_adapter(given_.path(), model_).file.path().extension(), ".safetensors");
  std::filesystem::remove(given_.path() / "adapter_model.safetensors");
  const PeftAdapter adapter = open_peft_adapter(given_.path(), model_);
  EXPECT_EQ(all_of(adapter), expected);
  EXPECT_EQ(adapter.wrappers, "");
  adapter.weights_hash();
  bytes[static_cast<size_t>(adapter.storages.at(0).begin)] ^= 1;
  write_bytes(given_.path() / "adapter_model.bin", bytes);
  EXPECT_HAS(error_of([&] { open_peft_adapter(given_.path(), model_).weights_hash(); }).what(), "is damaged");
  for (TensorToWrite& tensor : given_.tensors) tensor.name = "module." + tensor.name;
  EXPECT_EQ(all_of(opened()), expected);
  EXPECT_EQ(opened().wrappers, "module.");
}

TEST_F(PeftAdapterFiles, AnyIntervalIsThatPartOfTheWhole) {
  const PeftAdapter adapter = opened();
  const std::vector<UnitSpec> table = adapter_table(model_, adapter.lora);
  const UnitLayout layout(table[1], 1, 0, 1);
  std::vector<float> whole(static_cast<size_t>(layout.elements()));
  read_peft(adapter, layout, 0, layout.elements(), whole.data());
  for (int64_t begin = 0; begin < layout.elements(); begin += 37) {
    const int64_t end = std::min(begin + 53, layout.elements());
    std::vector<float> part(static_cast<size_t>(end - begin), -7.0F);
    read_peft(adapter, layout, begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
}

TEST_F(PeftAdapterFiles, OfAnotherModelAreRefused) {
  model_.hidden_size = 16;
  expect_refused("is [2, 8], with this model and rank it is [2, 16]");
  model_ = pretrained_directory_model();
  model_.num_hidden_layers = 3;
  expect_refused("has no base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight");
  model_.num_hidden_layers = 1;
  expect_refused("has tensors that its targets do not have: base_model.model.model.layers.1.");
  model_ = pretrained_directory_model();
  // v_proj has four rows.
  given_.config["r"] = 5;
  expect_refused("is not for this model, or has too high a rank: lora.rank is 5, v_proj is [4, 8]");
}

TEST_F(PeftAdapterFiles, OtherTensorsThanTheConfigSaysAreRefused) {
  given_.config["r"] = 3;
  expect_refused("is [2, 8], with this model and rank it is [3, 8]");
  given_.config["r"] = 2;
  given_.config["target_modules"] = {"q_proj", "v_proj", "down_proj", "k_proj"};
  expect_refused("has no base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight");
  given_.config["target_modules"] = {"q_proj", "v_proj"};
  expect_refused("has tensors that its targets do not have: base_model.model.model.layers.0.mlp.down_proj");
  given_.config["target_modules"] = {"q_proj", "v_proj", "down_proj"};
  given_.tensors.push_back({"base_model.model.lm_head.weight", {16, 8}});
  expect_refused("has tensors that its targets do not have: base_model.model.lm_head.weight");
  given_.tensors.back() = {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", {8}};
  expect_refused("q_proj.lora_magnitude_vector");
  given_.tensors.pop_back();
  given_.tensor(kFirst).shape = {8, 2};
  expect_refused("is [8, 2], with this model and rank it is [2, 8]");
  given_.tensor(kFirst).shape = {2, 8};
  given_.tensor(kFirst).dtype = "F64";
  given_.tensor(kFirst).values.clear();
  expect_refused("has the dtype F64; F32, F16 and BF16 are read");
}

// The tensors decide: a target that some layers lack is missed.
TEST_F(PeftAdapterFiles, ALayerThatIsLeftOutIsMissed) {
  given_.config["layers_to_transform"] = {0, 1};
  EXPECT_EQ(opened().tensors.size(), 12u);
  given_.config["layers_to_transform"] = {0};
  EXPECT_EQ(opened().tensors.size(), 12u);
  std::erase_if(given_.tensors, [](const TensorToWrite& tensor) {
    return tensor.name.find("layers.1.self_attn.q_proj") != std::string::npos;
  });
  expect_refused("has no base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight");
}

TEST_F(PeftAdapterFiles, NamesThatWrappersMadeLongerAreShown) {
  const auto renamed = [&](const std::string& from, const std::string& to) {
    for (TensorToWrite& tensor : given_.tensors)
      if (const size_t at = tensor.name.find(from); at != std::string::npos)
        tensor.name.replace(at, from.size(), to);
  };
  renamed("lora_A.weight", "lora_A.default.weight");
  expect_refused("and 2 more; it has base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight",
                 "its names have one word more, 'default.'");
  renamed("lora_A.default.weight", "lora_A.weight");
  renamed("base_model.model.", "");
  expect_refused("; it has model.layers.0.self_attn.q_proj.lora_A.weight",
                 "its names lack 'base_model.model.'");
  renamed("layers.", "_a.layers._b.");
  expect_refused("; it has model._a.layers._b.0.mlp");
}

TEST_F(PeftAdapterFiles, AValueThatIsNotFiniteIsRefusedWithItsPlace) {
  TensorToWrite& tensor = given_.tensor(kFirst);
  const float infinite = std::numeric_limits<float>::infinity();
  tensor.values.replace(4 * 3, 4, reinterpret_cast<const char*>(&infinite), 4);
  const PeftAdapter adapter = opened();
  const std::vector<UnitSpec> table = adapter_table(model_, adapter.lora);
  const UnitLayout layout(table[0], 1, 0, 1);
  std::vector<float> all(static_cast<size_t>(layout.elements()));
  expect_error([&] { read_peft(adapter, layout, 0, layout.elements(), all.data()); }, ExitCode::kInputData,
               std::string(kFirst) + " has a value that is not finite");
}

TEST_F(PeftAdapterFiles, WhatElseMayLieThereIsNamed) {
  given_.write();
  std::filesystem::rename(given_.path() / "adapter_model.safetensors", given_.path() / "adapter_model.bin");
  EXPECT_HAS(error_of([&] { open_peft_adapter(given_.path(), model_); }).what(), "no ZIP archive");
  std::filesystem::remove(given_.path() / "adapter_model.bin");
  EXPECT_HAS(error_of([&] { open_peft_adapter(given_.path(), model_); }).what(),
             "has no adapter_model.safetensors");
  const ScratchDirectory trainer;
  const std::filesystem::path config = trainer / "checkpoint-5/adapter_config.json";
  write_bytes(config, "{}");
  EXPECT_EQ(error_of([&] { open_peft_adapter(trainer.path(), model_); }).hint(),
            "adapters are deeper: give lora.adapter=" + config.parent_path().string());
  const PretrainedDirectory whole;
  whole.write();
  expect_error([&] { open_peft_adapter(whole.path(), model_); }, ExitCode::kInputData,
               "has no adapter_config.json", "give it as model.pretrained");
}

TEST_F(PeftAdapterFiles, AConfigMustComputeTheSame) {
  LoraConfig lora = opened().lora;
  lora.dropout = 0.5;
  const auto open_with = [&](const LoraConfig& config) {
    return open_first_adapters({config, given_.path().string()}, model_);
  };
  EXPECT_TRUE(open_with(lora));
  const auto refused = [&](const LoraConfig& other) {
    const std::string what = what_of([&] { open_with(other); }, ExitCode::kUsage);
    EXPECT_HAS(what,
               "has rank = 2, alpha = 8, targets = [\"q_proj\", \"v_proj\", \"down_proj\"], rslora = "
               "false, [lora] "
               "says ");
    return what;
  };
  LoraConfig other = lora;
  other.rank = 4;
  EXPECT_HAS(refused(other), "says rank = 4, alpha = 8");
  other = lora;
  other.alpha = 16;
  EXPECT_HAS(refused(other), "says rank = 2, alpha = 16");
  other = lora;
  other.rslora = true;
  EXPECT_HAS(refused(other), "rslora = true");
  other = lora;
  other.targets[1] = true;
  EXPECT_HAS(refused(other), "\"k_proj\"");
}

TEST_F(PeftAdapterFiles, AnyOtherBitIsAnotherHash) {
  const std::string hash = opened().weights_hash();
  EXPECT_EQ(opened().weights_hash(), hash);
  given_.tensor(kFirst).values[0] ^= 1;
  EXPECT_NE(opened().weights_hash(), hash);
  given_.tensor(kFirst).values[0] ^= 1;
  given_.config["lora_alpha"] = 4;
  EXPECT_NE(opened().weights_hash(), hash);
}

}  // namespace
}  // namespace ripstop
