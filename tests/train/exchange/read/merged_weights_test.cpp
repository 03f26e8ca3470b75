#include "train/exchange/read/weights_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/test_files.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "tests/train/exchange/one_rank_model.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/peft/peft_adapter.h"

namespace ripstop {
namespace {

// All elements of a parameter of an adapter, by a rule.
const auto values_of_adapter = [](const ParameterSpec& p) {
  std::vector<float> values;
  for (int64_t i = 0; i < p.count(); ++i)
    values.push_back(value_of(p.name, i / p.columns, i % p.columns, 1, 0));
  return values;
};

// The elements [begin, end) of a unit, by a rule; padding has -7.
std::vector<float> weights_before(const UnitLayout& layout, int64_t begin, int64_t end) {
  std::vector<float> weights(static_cast<size_t>(end - begin), -7.0F);
  for (const Box& box : layout.boxes(begin, end))
    for (int64_t r = 0; r < box.rows; ++r)
      for (int64_t c = 0; c < box.columns; ++c)
        weights[static_cast<size_t>(box.offset - begin + r * box.stride + c)] =
            value_of(box.parameter->name, box.row + r, box.column + c, 0, 0);
  return weights;
}

class MergedWeights : public testing::Test {
 protected:
  // w + scale * b a of one element, in float64 throughout.
  double merged_element(const ParameterSpec& w, int64_t row, int64_t column) const {
    double sum = 0;
    for (const AdapterSpec& adapter : adapters_) {
      if (adapter.matrix.name != w.name) continue;
      for (int64_t r = 0; r < lora_.rank; ++r)
        sum += double{value_of(adapter.b.name, row, r, 1, 0)} *
               double{value_of(adapter.a.name, r, column, 1, 0)};
    }
    return double{value_of(w.name, row, column, 0, 0)} + lora_.scale() * sum;
  }

  void expect_merged(int64_t tensor, int64_t fsdp) const {
    for (const UnitSpec& unit : table_)
      for (int64_t t = 0; t < tensor; ++t)
        for (int64_t f = 0; f < fsdp; ++f) {
          const UnitLayout layout(unit, tensor, t, fsdp);
          const int64_t begin = f * layout.shard_elements(), end = begin + layout.shard_elements();
          std::vector<float> found = weights_before(layout, begin, end), wanted = found;
          add_adapters(layout, begin, end, found.data(), adapters_, lora_.scale(), values_of_adapter);
          for (const Box& box : layout.boxes(begin, end))
            for (int64_t r = 0; r < box.rows; ++r)
              for (int64_t c = 0; c < box.columns; ++c)
                wanted[static_cast<size_t>(box.offset - begin + r * box.stride + c)] =
                    static_cast<float>(merged_element(*box.parameter, box.row + r, box.column + c));
          EXPECT_EQ(found, wanted) << unit.name << " tensor " << t << " fsdp " << f;
        }
  }

  void use(const LoraConfig& lora) {
    lora_ = lora;
    adapters_ = adapter_specs(model_, lora_);
  }

  ModelConfig model_ = small_sizes();
  std::vector<UnitSpec> table_ = parameter_table(model_);
  LoraConfig lora_;
  std::vector<AdapterSpec> adapters_;
};

TEST_F(MergedWeights, EqualFloat64OnEveryMesh) {
  for (const bool rslora : {false, true}) {
    use({.rank = 3, .alpha = 5, .rslora = rslora, .targets = {true, true, true, true, true, true, true}});
    for (const int64_t tensor : {1, 2, 4})
      for (const int64_t fsdp : {1, 2, 3}) expect_merged(tensor, fsdp);
  }
}

TEST_F(MergedWeights, AMatrixWithoutAnAdapterStaysAsItIs) {
  use({.rank = 1, .alpha = 2, .targets = {false, true, false, false, false, true, false}});
  expect_merged(2, 2);
  std::vector<std::string> asked;
  const UnitLayout layout(table_[1], 1, 0, 1);
  std::vector<float> weights = weights_before(layout, 0, layout.elements());
  add_adapters(layout, 0, layout.elements(), weights.data(), adapters_, lora_.scale(),
               [&](const ParameterSpec& p) {
                 asked.push_back(p.name);
                 return values_of_adapter(p);
               });
  EXPECT_EQ(asked.size(), 4u);  // of one layer alone
  for (const std::string& name : asked) EXPECT_TRUE(name.starts_with("layers.0.")) << name;
}

// An export reads a unit in pieces with any ends.
TEST_F(MergedWeights, DependOnNoInterval) {
  use({.rank = 4, .alpha = 4, .targets = {true, true, true, true, true, true, true}});
  const UnitLayout layout(table_[1], 2, 1, 1);
  std::vector<float> whole = weights_before(layout, 0, layout.elements());
  add_adapters(layout, 0, layout.elements(), whole.data(), adapters_, lora_.scale(), values_of_adapter);
  for (int64_t begin = 0; begin < layout.elements(); begin += 91) {
    const int64_t end = std::min(begin + 103, layout.elements());
    std::vector<float> part = weights_before(layout, begin, end);
    add_adapters(layout, begin, end, part.data(), adapters_, lora_.scale(), values_of_adapter);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
}

// Merges adapters of peft into their base, and compares with peft's logits in float64
// (tests/golden/make_lora.py).
TEST(MergedLogits, AreThoseOfPeft) {
  const auto golden = nlohmann::json::parse(std::ifstream(golden_file("lora/logits.json")));
  for (const nlohmann::json& given : golden.at("imports")) {
    const std::string name = given.at("adapter");
    SCOPED_TRACE(name);
    const PretrainedModel base = open_pretrained_model(golden_file(given.at("base")));
    const PeftAdapter adapter = open_peft_adapter(golden_file(name), base.config);
    const LoraConfig& lora = adapter.lora;
    const std::vector<AdapterSpec> adapters = adapter_specs(base.config, lora);
    // The weights of the units of adapter_table, by parameter.
    std::map<std::string, std::vector<float>> values;
    for (const UnitSpec& unit : adapter_table(base.config, lora)) {
      const UnitLayout layout(unit, 1, 0, 1);
      std::vector<float> all(static_cast<size_t>(layout.elements()));
      read_peft(adapter, layout, 0, layout.elements(), all.data());
      for (const Box& box : layout.slices())
        for (int64_t r = 0; r < box.rows; ++r)
          values[box.parameter->name].insert(values[box.parameter->name].end(),
                                             all.begin() + box.offset + r * box.stride,
                                             all.begin() + box.offset + r * box.stride + box.columns);
    }
    const std::vector<int32_t> ids = given.at("ids");
    OneRankModel one(base.config, std::ssize(ids));
    for (FsdpUnit& unit : one.model.units()) {
      const UnitLayout& layout = unit.layout();
      std::vector<float> weights(static_cast<size_t>(layout.elements()));
      read_pretrained(base, layout, 0, layout.elements(), weights.data());
      add_adapters(layout, 0, layout.elements(), weights.data(), adapters, lora.scale(),
                   [&](const ParameterSpec& p) { return values.at(p.name); });
      unit.set_shard(0, weights);
    }
    one.model.weights_changed(one.arena);
    const std::vector<float> found = one.logits(ids);
    std::vector<double> expected;
    for (const nlohmann::json& row : given.at("logits"))
      expected.insert(expected.end(), row.begin(), row.end());
    ASSERT_EQ(found.size(), expected.size());
    double error = 0;
    for (size_t i = 0; i < found.size(); ++i) error = std::max(error, std::abs(found[i] - expected[i]));
    EXPECT_GT(given.at("base_differs").get<double>(), 1.0);
    EXPECT_LT(error, 1e-5);
  }
}

}  // namespace
}  // namespace ripstop
