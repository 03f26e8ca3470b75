// A model of Hugging Face that is read into a mesh, or imported, and then exported has equal weights.
#include <gtest/gtest.h>

#include <map>

#include "tests/test_files.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/exchange/read/weights_reader.h"
#include "train/exchange/write/export_model.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// The bytes of every tensor, by Hugging Face's name. A second copy of a tied table is left out.
std::map<std::string, std::string> tensors_of(const fs::path& directory) {
  const PretrainedModel model = open_pretrained_model(directory);
  std::map<std::string, std::string> tensors;
  for (const auto& [name, tensor] : model.tensors)
    tensors.emplace(pretrained_name(name),
                    tensor.dtype + model.files[tensor.file].text_at(tensor.begin, tensor.bytes));
  return tensors;
}

ExportDType dtype_of(const std::map<std::string, std::string>& tensors) {
  const std::string& first = tensors.begin()->second;
  return first.starts_with("BF16")  ? ExportDType::kBFloat16
         : first.starts_with("F16") ? ExportDType::kFloat16
                                    : ExportDType::kFloat32;
}

class RoundTrip : public testing::Test {
 protected:
  // Reads the model on `mesh`, saves a checkpoint, exports the checkpoint on as many ranks, and compares.
  void expect_same(const fs::path& source, const MeshSizes& mesh) {
    SCOPED_TRACE(source.string() + " on " + mesh.to_text());
    const StoredModel model = open_stored_model(io_, source);
    const std::vector<UnitSpec> table = parameter_table(model.config());
    const ScratchDirectory run;
    const auto saved = SimulatedRanks(mesh.ranks()).run([&](Communicator& world) {
      RankMemory memory(table, mesh, world.rank());
      read_weights(io_, model, memory.fsdp_index(), memory.units());
      memory_writer(io_, run / "checkpoints", world, mesh, memory.units()).save(model.state(), {});
    });
    for (const auto& error : saved) ASSERT_FALSE(error) << error->what();
    expect_export(source, run.path(), mesh.ranks());
  }

  void expect_export(const fs::path& source, const fs::path& run, int64_t ranks) {
    const std::map<std::string, std::string> before = tensors_of(source);
    const auto self = make_self_communicator("test");
    const TrainedModel saved = find_trained_model(io_, *self, run, "latest");
    const ScratchDirectory scratch;
    const auto thrown = SimulatedRanks(ranks).run([&](Communicator& world) {
      export_model(io_, world, saved, scratch / "out", {.dtype = dtype_of(before), .most_file_bytes = 40'000},
                   [](const char*, int64_t, int64_t) {});
    });
    for (const auto& error : thrown) ASSERT_FALSE(error) << error->what();
    EXPECT_TRUE(tensors_of(scratch / "out") == before);
    EXPECT_EQ(open_stored_model(io_, scratch / "out").config(), open_stored_model(io_, source).config());
  }

  QuickIo io_;
};

TEST_F(RoundTrip, EveryModelThroughEveryMesh) {
  for (const char* name : {"untied_bf16", "tied_f32", "old_f16"}) {
    const fs::path model = golden_file("pretrained/" + std::string(name));
    const std::vector<int64_t> axes = tensor_axis_sizes(open_stored_model(io_, model).config());
    for (const MeshSizes& mesh :
         {MeshSizes{1, 1, 1}, {1, 4, 1}, {1, 1, 4}, {1, 2, 2}, {1, 3, 2}, {2, 2, 1}, {1, 1, 2}})
      if (std::find(axes.begin(), axes.end(), mesh.tensor) != axes.end()) expect_same(model, mesh);
  }
}

TEST_F(RoundTrip, HeadsForFourTensorRanks) {
  PretrainedDirectory model;
  model.config["hidden_size"] = 16;
  model.config["num_attention_heads"] = 8;
  model.config["num_key_value_heads"] = 4;
  for (TensorToWrite& tensor : model.tensors)
    for (int64_t& size : tensor.shape)
      if (size == 8 || size == 4) size *= 2;
  model.tensor("model.embed_tokens.weight").shape = {16, 16};
  model.fill("BF16");
  model.write_sharded();
  for (const MeshSizes& mesh : {MeshSizes{1, 1, 4}, {1, 2, 4}}) expect_same(model.path(), mesh);
}

// Qwen3's norms of heads and biases of q, k, v and o, and heads of 6 with a hidden size of 8.
TEST_F(RoundTrip, BiasesNormsOfHeadsAndTheirSize) {
  PretrainedDirectory model;
  model.config.update({{"architectures", {"Qwen3ForCausalLM"}},
                       {"model_type", "qwen3"},
                       {"head_dim", 6},
                       {"num_key_value_heads", 2},
                       {"attention_bias", true}});
  for (const int layer : {0, 1}) {
    const std::string at = fmt::format("model.layers.{}.self_attn.", layer);
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      model.tensor(at + name + ".weight").shape = {12, 8};
      model.tensors.push_back({at + name + ".bias", {12}});
    }
    model.tensor(at + "o_proj.weight").shape = {8, 12};
    model.tensors.push_back({at + "o_proj.bias", {8}});
    for (const char* name : {"q_norm", "k_norm"}) model.tensors.push_back({at + name + ".weight", {6}});
  }
  model.fill("F32");
  model.write();
  for (const MeshSizes& mesh : {MeshSizes{1, 1, 1}, {1, 3, 1}, {1, 1, 2}, {1, 2, 2}, {2, 1, 1}})
    expect_same(model.path(), mesh);
}

TEST_F(RoundTrip, TinyModelsOfEveryFamily) {
  const auto models = shared_file("golden/families/models");
  if (!models) GTEST_SKIP() << "no shared/golden/families beside the checkout";
  int64_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(*models)) {
    if (!entry.is_directory()) continue;
    ++count;
    expect_same(entry.path(), {1, 2, 2});
    const ScratchDirectory scratch;
    import_model(io_, open_stored_model(io_, entry.path()), scratch / "imported");
    expect_export(entry.path(), scratch / "imported", 1);
  }
  EXPECT_EQ(count, 15);
}

TEST_F(RoundTrip, AnImportIsTheModel) {
  for (const char* name : {"untied_bf16", "tied_f32", "old_f16"}) {
    const fs::path model = golden_file("pretrained/" + std::string(name));
    const ScratchDirectory scratch;
    import_model(io_, open_stored_model(io_, model), scratch / "imported");
    expect_export(model, scratch / "imported", 1);
    expect_export(model, scratch / "imported", 3);
  }
}

// An import has had no updates, so precision.compute does not decide the type.
TEST_F(RoundTrip, AnImportIsExportedInFloat32UnlessToldOtherwise) {
  const fs::path model = golden_file("pretrained/old_f16");
  const ScratchDirectory scratch;
  import_model(io_, open_stored_model(io_, model), scratch / "imported");
  const auto self = make_self_communicator("test");
  const TrainedModel imported = find_trained_model(io_, *self, scratch / "imported", "latest");
  EXPECT_EQ(imported.config.precision.compute, FloatChoice::kBfloat16);
  export_model(io_, *self, imported, scratch / "out", {}, [](const char*, int64_t, int64_t) {});
  EXPECT_EQ(dtype_of(tensors_of(scratch / "out")), ExportDType::kFloat32);
}

TEST_F(RoundTrip, PublishedModels) {
  for (const char* name : {"data/models/stories260K/hf", "data/models/TinyStories-656K"}) {
    const auto model = shared_file(name);
    if (!model) GTEST_SKIP() << "no shared/data/models beside the checkout";
    const std::vector<int64_t> axes = tensor_axis_sizes(open_stored_model(io_, *model).config());
    for (const MeshSizes& mesh : {MeshSizes{1, 1, 1}, {1, 4, 1}, {1, 1, 4}, {1, 2, 2}})
      if (std::find(axes.begin(), axes.end(), mesh.tensor) != axes.end()) expect_same(*model, mesh);
  }
}

}  // namespace
}  // namespace ripstop
