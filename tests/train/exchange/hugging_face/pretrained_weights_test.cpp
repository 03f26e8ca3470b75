#include "train/exchange/hugging_face/pretrained_model.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/expect_error.h"
#include "tests/train/exchange/torch_writer.h"

namespace ripstop {
namespace {

// A model of 4 heads of 4 elements and 2 key-value heads, so that two tensor ranks can share it.
class PretrainedWeights : public testing::Test {
 protected:
  PretrainedWeights() {
    model_.config["hidden_size"] = 16;
    model_.config["num_attention_heads"] = 4;
    model_.config["num_key_value_heads"] = 2;
    const std::map<int64_t, int64_t> grown = {{8, 16}, {4, 8}};
    for (TensorToWrite& tensor : model_.tensors)
      for (int64_t& size : tensor.shape)
        if (grown.contains(size)) size = grown.at(size);
    model_.tensor("model.embed_tokens.weight").shape = {16, 16};
    model_.fill("F32");
  }

  // The stored value of an element of ripstop's `name`, by definition: the rows of a head are [pairs, 2] in
  // ripstop and [2, pairs] in Hugging Face's tensors.
  static float expected(const std::string& name, int64_t row, int64_t column, int64_t columns) {
    constexpr int64_t kHead = 4;
    if (name.ends_with("wq.weight") || name.ends_with("wk.weight")) {
      const int64_t pair = row % kHead / 2, of_pair = row % 2;
      row = row / kHead * kHead + of_pair * (kHead / 2) + pair;
    }
    return stored_value(pretrained_name(name), row * columns + column);
  }

  // Reads every shard of a mesh, and compares each logical element.
  static void expect_read(const PretrainedModel& model, int64_t tensor, int64_t fsdp) {
    std::map<std::string, int64_t> found;
    const std::vector<UnitSpec> table = parameter_table(model.config);
    for (const UnitSpec& unit : table)
      for (int64_t t = 0; t < tensor; ++t)
        for (int64_t f = 0; f < fsdp; ++f) {
          const UnitLayout layout(unit, tensor, t, fsdp);
          const int64_t elements = layout.shard_elements(), begin = f * elements;
          std::vector<float> shard(static_cast<size_t>(elements), -7.0F), wanted(shard.size(), 0.0F);
          read_pretrained(model, layout, begin, begin + elements, shard.data());
          for (const Box& box : layout.boxes(begin, begin + elements))
            for (int64_t r = 0; r < box.rows; ++r)
              for (int64_t c = 0; c < box.columns; ++c, ++found[box.parameter->name])
                wanted[static_cast<size_t>(box.offset - begin + r * box.stride + c)] =
                    expected(box.parameter->name, box.row + r, box.column + c, box.parameter->columns);
          EXPECT_EQ(shard, wanted) << unit.name << " tensor " << t << " fsdp " << f;
        }
    EXPECT_GE(found.at("layers.1.attention.wq.weight"), 16 * 16);
    EXPECT_EQ(found.at("layers.1.attention.wk.weight"), 8 * 16);
  }

  PretrainedModel opened() const { return open_pretrained_model(model_.path()); }

  PretrainedDirectory model_;
};

TEST_F(PretrainedWeights, EveryElementGetsToItsPlaceOnEveryMesh) {
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    model_.fill(dtype);
    model_.write();
    for (const int64_t tensor : {1, 2})
      for (const int64_t fsdp : {1, 2, 3, 4}) expect_read(opened(), tensor, fsdp);
  }
}

TEST_F(PretrainedWeights, FilesOfTorchInAnyOrderOfElements) {
  for (const char* dtype : {"F32", "BF16", "F16"})
    for (const bool turned : {false, true}) {
      model_.fill(dtype);
      model_.write_config();
      write_bytes(model_.path() / "pytorch_model.bin", torch_bytes(model_.tensors, turned));
      for (const int64_t fsdp : {1, 3}) expect_read(opened(), 2, fsdp);
    }
}

TEST_F(PretrainedWeights, SeveralFilesAreOneModel) {
  model_.write_sharded();
  expect_read(opened(), 2, 2);
}

// An import reads a unit in pieces with any ends.
TEST_F(PretrainedWeights, AnyIntervalIsThatPartOfTheWhole) {
  model_.write();
  const PretrainedModel model = opened();
  const std::vector<UnitSpec> table = parameter_table(model.config);
  const UnitLayout layout(table[1], 1, 0, 1);
  std::vector<float> whole(static_cast<size_t>(layout.elements()));
  read_pretrained(model, layout, 0, layout.elements(), whole.data());
  for (int64_t begin = 0; begin < layout.elements(); begin += 37) {
    const int64_t end = std::min(begin + 53, layout.elements());
    std::vector<float> part(static_cast<size_t>(end - begin), -7.0F);
    read_pretrained(model, layout, begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
}

TEST_F(PretrainedWeights, ATiedTableIsReadFromEitherName) {
  model_.config["tie_word_embeddings"] = true;
  TensorToWrite& table = model_.tensor("model.embed_tokens.weight");
  model_.tensor("lm_head.weight").values = table.values;
  model_.write();
  expect_read(opened(), 2, 2);
  table.values[5 * 64] ^= 1;  // one bit of row 5
  model_.write();
  expect_error([&] { expect_read(opened(), 2, 2); }, ExitCode::kInputData,
               "row 5 of lm_head.weight differs from the embedding", "tie_word_embeddings");
}

TEST_F(PretrainedWeights, SixteenBitsBecomeFloatsExactly) {
  // Smallest and largest subnormal, smallest normal, one, largest value, and their negatives.
  const std::vector<std::pair<uint16_t, float>> halves = {
      {0x0001, 0x1p-24F}, {0x03ff, 0x1.ff8p-15F}, {0x0400, 0x1p-14F}, {0x3c00, 1.0F}, {0x7bff, 65504.0F}};
  model_.fill("F16");
  std::string& values = model_.tensor("model.norm.weight").values;
  for (size_t i = 0; i < halves.size(); ++i)
    for (const uint16_t sign : {0, 1}) {
      const auto bits = static_cast<uint16_t>(halves[i].first | sign << 15);
      values.replace(4 * i + 2 * sign, 2, reinterpret_cast<const char*>(&bits), 2);
    }
  model_.write();
  const PretrainedModel model = opened();
  const std::vector<UnitSpec> table = parameter_table(model.config);
  const UnitLayout layout(table.back(), 1, 0, 1);
  std::vector<float> read(static_cast<size_t>(layout.elements()));
  read_pretrained(model, layout, 0, layout.elements(), read.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(read[2 * i], halves[i].second);
    EXPECT_EQ(read[2 * i + 1], -halves[i].second);
  }
}

TEST_F(PretrainedWeights, ValuesThatAreNotFiniteAreRefused) {
  for (const auto& [dtype, bits] : {std::pair{"F32", 0x7f800000u},
                                    {"F32", 0xffc00000u},
                                    {"BF16", 0x7f80u},
                                    {"BF16", 0x7fc1u},
                                    {"F16", 0x7c00u},
                                    {"F16", 0xfe00u}}) {
    model_.fill(dtype);
    const size_t size = std::string(dtype) == "F32" ? 4 : 2;
    model_.tensor("model.layers.1.mlp.down_proj.weight")
        .values.replace(20 * size, size, reinterpret_cast<const char*>(&bits), size);
    model_.write();
    SCOPED_TRACE(dtype);
    expect_error([&] { expect_read(opened(), 1, 1); }, ExitCode::kInputData,
                 "model.layers.1.mlp.down_proj.weight has a value that is not finite, among its "
                 "elements 12 to 23");
  }
}

}  // namespace
}  // namespace ripstop
