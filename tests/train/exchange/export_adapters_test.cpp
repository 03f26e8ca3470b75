// Exports of adapters to PEFT: from many meshes, by many ranks, and of imported adapters.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/expect_has.h"
#include "tests/test_files.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/exchange/write/export_model.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAdapterStep = 3;

// Heads have four elements, so rows of lora_B of q_proj and k_proj change places.
ModelConfig turned_model() {
  ModelConfig model = small_sizes();
  model.num_attention_heads = model.num_key_value_heads = 4;
  return model;
}

LoraConfig every_target() {
  return {.rank = 3,
          .alpha = 6,
          .dropout = 0.25,
          .rslora = true,
          .targets = {true, true, true, true, true, true, true}};
}

// A checkpoint of adapters on a mesh. The adapters have values by a rule, or are imported.
class SavedAdapters {
 public:
  SavedAdapters(const ModelConfig& model, const LoraConfig& lora, const MeshSizes& mesh,
                const PeftAdapter* imported = nullptr)
      : lora_(lora) {
    QuickIo io;
    SmallRun run(model, mesh, DType::kFloat32, lora);
    run.fill(kAdapterStep);
    if (imported != nullptr)
      for (RankMemory& rank : run.ranks())
        for (const UnitStates& unit : rank.units()) {
          const int64_t elements = unit.layout->shard_elements(), begin = rank.fsdp_index() * elements;
          read_peft(*imported, *unit.layout, begin, begin + elements, unit.master);
        }
    for (const auto& error : run.save(io, scratch_ / "checkpoints", state_at(kAdapterStep, model)))
      EXPECT_FALSE(error) << error->what();
    checkpoint_.directory = scratch_ / "checkpoints" / step_directory_name(kAdapterStep);
    checkpoint_.manifest = read_manifest(io, checkpoint_.directory);
  }

  // Exports on `ranks` ranks and returns the error of each.
  std::vector<std::optional<Error>> try_export(const fs::path& output, const std::string& base,
                                               ExportOptions options = {}, int64_t ranks = 1,
                                               ExportReport* report = nullptr) const {
    QuickIo io;
    const TrainedModel trained{StoredModel(checkpoint_), scratch_.path(), {}};
    options.adapters = ExportedAdapters{.lora = lora_, .base = base};
    return SimulatedRanks(ranks).run([&](Communicator& world) {
      const ExportReport done =
          export_model(io, world, trained, output, options, [](const char*, int64_t, int64_t) {});
      if (report != nullptr && world.rank() == 0) *report = done;
    });
  }
  void export_to(const fs::path& output, const std::string& base, const ExportOptions& options = {},
                 int64_t ranks = 1, ExportReport* report = nullptr) const {
    for (const auto& error : try_export(output, base, options, ranks, report))
      ASSERT_FALSE(error) << error->what();
  }
  Checkpoint& checkpoint() { return checkpoint_; }
  const fs::path& run() const { return scratch_.path(); }

 private:
  LoraConfig lora_;
  ScratchDirectory scratch_;
  Checkpoint checkpoint_;
};

std::map<std::string, std::string> bytes_of_files(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().filename() != "README.md")  // names the mesh
      files.emplace(entry.path().filename().string(), read_bytes(entry.path()));
  return files;
}

// The bytes of a tensor of the adapter.
std::string tensor_bytes(const PeftAdapter& adapter, const std::string& name) {
  const StoredTensor& tensor = adapter.tensors.at(name);
  return adapter.file.text_at(tensor.begin, tensor.bytes);
}

std::string base_in(const fs::path& directory) {
  return nlohmann::json::parse(read_text(directory / "adapter_config.json")).at("base_model_name_or_path");
}

TEST(ExportAdapters, EveryElementIsAtItsPlaceInEveryType) {
  for (const ExportDType dtype : {ExportDType::kFloat32, ExportDType::kBFloat16, ExportDType::kFloat16}) {
    SCOPED_TRACE(std::string(to_string(dtype)));
    const ScratchDirectory scratch;
    const SavedAdapters saved(turned_model(), every_target(), {1, 1, 1});
    ExportReport report;
    saved.export_to(scratch / "out", "models/a", {.dtype = dtype}, 1, &report);
    const PeftAdapter read = open_peft_adapter(scratch / "out", turned_model());
    EXPECT_EQ(read.lora, every_target());
    EXPECT_EQ(base_in(scratch / "out"), "models/a");
    EXPECT_EQ(report.tensors, 28);
    EXPECT_EQ(report.files.size(), 3u);
    EXPECT_EQ(report.files[0].name, "adapter_model.safetensors");
    EXPECT_FALSE(report.has_tokenizer);
    for (const AdapterSpec& adapter : adapter_specs(turned_model(), every_target()))
      for (const ParameterSpec* p : {&adapter.a, &adapter.b}) {
        ASSERT_EQ(read.tensors.at(p->name).dtype, safetensors_dtype(dtype));
        const std::string bytes = tensor_bytes(read, p->name);
        const bool turns =
            p == &adapter.b && (adapter.target == LoraTarget::kQuery || adapter.target == LoraTarget::kKey);
        for (int64_t i = 0; i < p->count(); ++i) {
          const int64_t row = i / p->columns, column = i % p->columns;
          const float value = value_of(p->name, row, column, 0, kAdapterStep);
          std::string expected(static_cast<size_t>(element_bytes(dtype)), '\0');
          ASSERT_FALSE(convert(&value, 1, dtype, expected.data()));
          const int64_t stored = turns ? pretrained_row(row, turned_model().head_size()) : row;
          const int64_t at = (stored * p->columns + column) * element_bytes(dtype);
          ASSERT_EQ(bytes.substr(static_cast<size_t>(at), expected.size()), expected) << p->name << " " << i;
        }
      }
  }
}

TEST(ExportAdapters, FloatsAreTheDefault) {
  const ScratchDirectory scratch;
  SavedAdapters(tiny_model(), {.rank = 1, .alpha = 2}, {1, 1, 1}).export_to(scratch / "out", "");
  EXPECT_EQ(open_peft_adapter(scratch / "out", tiny_model()).tensors.begin()->second.dtype, "F32");
}

TEST(ExportAdapters, TheBytesDoNotDependOnMeshOrRanks) {
  const ScratchDirectory scratch;
  SavedAdapters(turned_model(), every_target(), {1, 1, 1}).export_to(scratch / "one", "models/a");
  const auto expected = bytes_of_files(scratch / "one");
  EXPECT_EQ(expected.size(), 2u);
  for (const MeshSizes& mesh : {MeshSizes{1, 4, 1}, {1, 1, 4}, {1, 2, 2}, {2, 1, 1}, {2, 3, 2}}) {
    const SavedAdapters saved(turned_model(), every_target(), mesh);
    for (const int64_t ranks : {1, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", mesh.to_text(), ranks));
      const fs::path output =
          scratch / fmt::format("{}{}{}-{}", mesh.replicate, mesh.fsdp, mesh.tensor, ranks);
      saved.export_to(output, "models/a", {}, ranks);
      EXPECT_EQ(bytes_of_files(output), expected);
    }
  }
}

// Adapters that peft wrote are read into every mesh and exported again, equal bit by bit. With
// RIPSTOP_EXPORT_ADAPTERS=DIR the exports stay in DIR, for check_export.py.
TEST(ExportAdapters, WhatPeftMadeComesBack) {
  const char* const keep = std::getenv("RIPSTOP_EXPORT_ADAPTERS");
  const auto golden = nlohmann::json::parse(read_text(golden_file("lora/logits.json")));
  for (const nlohmann::json& given : golden.at("imports")) {
    const std::string name = given.at("adapter"), base = given.at("base");
    const PeftAdapter original =
        open_peft_adapter(golden_file(name), read_pretrained_config(golden_file(base)));
    for (const MeshSizes& mesh : {MeshSizes{1, 1, 1}, {1, 3, 1}, {1, 2, 2}}) {
      SCOPED_TRACE(fmt::format("{} on {}", name, mesh.to_text()));
      const ScratchDirectory scratch;
      const fs::path output =
          keep == nullptr ? scratch / "out"
                          : fs::path(keep) / fs::path(name).filename() / fmt::format("fsdp{}", mesh.fsdp);
      SavedAdapters(original.model, original.lora, mesh, &original).export_to(output, base);
      const PeftAdapter back = open_peft_adapter(output, original.model);
      EXPECT_EQ(back.lora, original.lora);
      EXPECT_EQ(base_in(output), base);
      ASSERT_EQ(back.tensors.size(), original.tensors.size());
      for (const auto& [parameter, tensor] : original.tensors)
        EXPECT_EQ(tensor_bytes(back, parameter), tensor_bytes(original, parameter)) << parameter;
    }
  }
}

TEST(ExportAdapters, OtherUnitsThanTheAdaptersAreRefused) {
  const ScratchDirectory scratch;
  const SavedAdapters saved(tiny_model(), {.rank = 1, .alpha = 2}, {1, 1, 1});
  QuickIo io;
  SavedAdapters other(tiny_model(), {.rank = 2, .alpha = 2}, {1, 1, 1});
  other.checkpoint() =
      Checkpoint{saved.run() / "checkpoints" / step_directory_name(kAdapterStep),
                 read_manifest(io, saved.run() / "checkpoints" / step_directory_name(kAdapterStep))};
  const auto thrown = other.try_export(scratch / "out", "");
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ExitCode::kStorage) << thrown[0]->what();
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

TEST(ExportAdapters, TheCardSaysHowToLoadThem) {
  const ScratchDirectory scratch;
  const SavedAdapters saved(tiny_model(), {.rank = 1, .alpha = 2}, {1, 1, 1});
  write_bytes(saved.run() / "prompt_template.txt", "Read:\n{document}\n\nTL;DR:");
  saved.export_to(scratch / "out", "models/\"a\"", {.written_by = "ripstop 9.9"});
  const std::string card = read_bytes(scratch / "out" / "README.md");
  EXPECT_TRUE(card.starts_with("---\nlibrary_name: peft\npipeline_tag: text-generation\nbase_model: "))
      << card;
  EXPECT_HAS(card, "LoRA adapters of a LLaMA-style transformer that writes summaries");
  EXPECT_HAS(card, "base = \"models/\\\"a\\\"\"");
  EXPECT_HAS(card, "model = PeftModel.from_pretrained(model, \".\")");
  EXPECT_HAS(card, "max_new_tokens = 64");
  EXPECT_HAS(card, "| adapters | rank 1, alpha 2, dropout 0, of q_proj, k_proj, v_proj, o_proj |");
  EXPECT_HAS(card, "ripstop 9.9");
  EXPECT_EQ(card.find("ripstop summarize ."), std::string::npos);
}

}  // namespace
}  // namespace ripstop
