#include "train/exchange/write/export_layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "data/files/file.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {
namespace {

// Writes the headers and as many zeros as the layout says.
void write_empty(const ExportLayout& layout, const std::filesystem::path& directory) {
  for (const ExportedFile& file : layout.files()) {
    std::string bytes = file.header;
    bytes.resize(static_cast<size_t>(file.bytes), '\0');
    write_bytes(directory / file.name, bytes);
  }
}

// Our own reader finds each tensor at the place that the layout names.
void expect_readable(const ExportLayout& layout) {
  const ScratchDirectory scratch;
  write_empty(layout, scratch.path());
  std::map<std::string, std::pair<std::string, StoredTensor>> stored;
  for (const ExportedFile& file : layout.files())
    for (const StoredTensor& tensor : read_safetensors_header(InputFile(scratch / file.name)))
      EXPECT_TRUE(stored.emplace(tensor.name, std::pair(file.name, tensor)).second) << tensor.name;
  EXPECT_EQ(stored.size(), layout.tensors().size());
  for (const auto& [name, tensor] : layout.tensors()) {
    ASSERT_TRUE(stored.contains(tensor.name)) << tensor.name;
    const auto& [file, found] = stored.at(tensor.name);
    EXPECT_EQ(file, layout.files()[tensor.file].name);
    EXPECT_EQ(found.begin, tensor.begin) << tensor.name;
    EXPECT_EQ(found.bytes, tensor.bytes) << tensor.name;
    EXPECT_EQ(found.shape, tensor.shape) << tensor.name;
    EXPECT_EQ(found.dtype, safetensors_dtype(layout.dtype()));
    EXPECT_EQ(tensor.name, is_adapter(name) ? pretrained_name(name) : pretrained_name(name));
  }
}

int64_t tensor_bytes(const ExportLayout& layout) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : layout.tensors()) sum += tensor.bytes;
  return sum;
}

TEST(ExportLayout, OneFileHoldsAllTensorsInTheOrderOfTheTable) {
  const ExportLayout layout(small_sizes(), ExportDType::kBFloat16);
  ASSERT_EQ(layout.files().size(), 1u);
  EXPECT_EQ(layout.files()[0].name, "model.safetensors");
  EXPECT_EQ(layout.files()[0].header.size() % 8, 0u);
  EXPECT_EQ(layout.index_json(), "");
  EXPECT_EQ(tensor_bytes(layout), parameter_count(small_sizes()) * 2);
  EXPECT_EQ(layout.tensors().at("tok_embeddings.weight").begin, std::ssize(layout.files()[0].header));
  const auto header = nlohmann::ordered_json::parse(layout.files()[0].header.substr(8));
  EXPECT_EQ(header.begin().key(), "__metadata__");
  EXPECT_EQ(header["__metadata__"], nlohmann::json({{"format", "pt"}}));
  expect_readable(layout);
}

TEST(ExportLayout, AdaptersAreOneFile) {
  const LoraConfig lora{.rank = 3, .alpha = 6};
  ModelConfig model = small_sizes();
  model.num_attention_heads = 4;  // heads of four elements
  const ExportLayout layout(model, lora, ExportDType::kFloat32);
  ASSERT_EQ(layout.files().size(), 1u);
  EXPECT_EQ(layout.files()[0].name, "adapter_model.safetensors");
  EXPECT_EQ(layout.index_json(), "");
  EXPECT_EQ(layout.tensors().size(), 16u);  // two of four matrices of two layers
  const ExportedTensor& b = layout.tensors().at("layers.1.attention.wk.lora_B.weight");
  EXPECT_EQ(b.name, "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight");
  EXPECT_EQ(b.stored_row(1), 2);
  EXPECT_EQ(layout.tensors().at("layers.1.attention.wk.lora_A.weight").stored_row(1), 1);
  EXPECT_EQ(layout.tensors().at("layers.1.attention.wv.lora_B.weight").stored_row(1), 1);
  expect_readable(layout);
}

TEST(ExportLayout, VectorsHaveOneDimensionAndTurnWithTheirMatrices) {
  ModelConfig model = with_all_vectors();
  model.num_attention_heads = 4;  // heads of four elements
  const ExportLayout layout(model, ExportDType::kFloat32);
  const auto expect = [&](const std::string& name, const std::string& stored, int64_t count,
                          int64_t second_row) {
    const ExportedTensor& tensor = layout.tensors().at("layers.1.attention." + name);
    EXPECT_EQ(tensor.name, "model.layers.1.self_attn." + stored);
    EXPECT_EQ(tensor.shape, std::vector<int64_t>{count}) << name;
    EXPECT_EQ(tensor.stored_row(1), second_row) << name;
  };
  expect("wq.bias", "q_proj.bias", 16, 2);
  expect("wk.bias", "k_proj.bias", 16, 2);
  expect("wv.bias", "v_proj.bias", 16, 1);
  expect("wo.bias", "o_proj.bias", 16, 1);
  expect("q_norm.weight", "q_norm.weight", 4, 2);
  expect("k_norm.weight", "k_norm.weight", 4, 2);
  EXPECT_EQ(tensor_bytes(layout), parameter_count(model) * 4);
  expect_readable(layout);
}

TEST(ExportLayout, FilesStayBelowTheLimitAndTheIndexNamesThem) {
  constexpr int64_t kMost = 40000;
  const ExportLayout layout(small_sizes(), ExportDType::kFloat32, kMost);
  const size_t count = layout.files().size();
  ASSERT_GT(count, 2u);
  EXPECT_EQ(layout.files()[0].name, fmt::format("model-00001-of-{:05}.safetensors", count));
  std::vector<int64_t> bytes(count);
  for (const auto& [name, tensor] : layout.tensors()) bytes[tensor.file] += tensor.bytes;
  for (size_t i = 0; i < count; ++i) EXPECT_LE(bytes[i], kMost);
  // No file could have taken the first tensor of the next one: as few files as the order allows.
  for (const auto& [name, tensor] : layout.tensors())
    if (tensor.file > 0 && tensor.begin == std::ssize(layout.files()[tensor.file].header)) {
      EXPECT_GT(bytes[tensor.file - 1] + tensor.bytes, kMost) << name;
    }
  const auto index = nlohmann::json::parse(layout.index_json());
  EXPECT_EQ(index["metadata"]["total_size"], tensor_bytes(layout));
  EXPECT_EQ(index["metadata"]["total_parameters"], parameter_count(small_sizes()));
  EXPECT_EQ(index["weight_map"].size(), layout.tensors().size());
  for (const auto& [name, tensor] : layout.tensors())
    EXPECT_EQ(index["weight_map"][tensor.name], layout.files()[tensor.file].name);
  expect_readable(layout);
}

TEST(ExportLayout, ATensorAboveTheLimitHasAFileOfItsOwn) {
  const ExportLayout layout(tiny_model(), ExportDType::kFloat32, 1);
  EXPECT_EQ(layout.files().size(), layout.tensors().size());
  expect_readable(layout);
}

TEST(ExportLayout, ATiedHeadIsNotStored) {
  const ExportLayout layout(small_sizes(true), ExportDType::kFloat16);
  EXPECT_FALSE(layout.tensors().contains("output.weight"));
  EXPECT_EQ(tensor_bytes(layout), parameter_count(small_sizes(true)) * 2);
}

TEST(ExportLayout, OnlyQueryAndKeyRowsChangePlaces) {
  const ExportLayout layout(small_sizes(), ExportDType::kFloat32);
  for (const auto& [name, tensor] : layout.tensors()) {
    const bool turns = name.find(".wq.") != std::string::npos || name.find(".wk.") != std::string::npos;
    EXPECT_EQ(tensor.turned_head_size, turns ? 2 : 0) << name;
    std::set<int64_t> rows;
    for (int64_t row = 0; row < tensor.shape.front(); ++row) rows.insert(tensor.stored_row(row));
    EXPECT_EQ(std::ssize(rows), tensor.shape.front());
    EXPECT_EQ(*rows.rbegin(), tensor.shape.front() - 1);
  }
}

// Sizes of a 70B model: 64-bit offsets, files as save_pretrained makes them.
TEST(ExportLayout, LargeModels) {
  const ModelPreset* preset = find_model_preset("llama2-70b");
  ASSERT_NE(preset, nullptr);
  ModelConfig config = preset->config;
  config.vocab_size = 32000;
  const ExportLayout layout(config, ExportDType::kBFloat16);
  EXPECT_EQ(tensor_bytes(layout), parameter_count(config) * 2);
  EXPECT_GE(std::ssize(layout.files()), tensor_bytes(layout) / ExportLayout::kMostFileBytes);
  for (const ExportedFile& file : layout.files())
    EXPECT_LE(file.bytes, ExportLayout::kMostFileBytes + std::ssize(file.header));
}

}  // namespace
}  // namespace ripstop
