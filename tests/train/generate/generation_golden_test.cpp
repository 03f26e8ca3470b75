// Compares greedy and beam search with ids of Hugging Face's generate() (tests/golden/make_generation.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "parallel/mpi_world.h"
#include "tests/test_files.h"
#include "tests/train/generate/listed_prompts.h"
#include "train/generate/inference_model.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

constexpr int32_t kGoldenEnd = 2;
constexpr int64_t kGoldenContext = 96;
const ModelConfig kGoldenModel{.hidden_size = 32,
                               .intermediate_size = 48,
                               .num_hidden_layers = 2,
                               .num_attention_heads = 4,
                               .num_key_value_heads = 2,
                               .vocab_size = 97,
                               .max_position_embeddings = kGoldenContext};

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

float uniform(uint64_t number, uint64_t index) {
  return static_cast<float>(mixed(((number << 32) + index + 1) * 0x9E3779B97F4A7C15U) >> 40) * 0x1p-23F - 1;
}

// Element `index` of a parameter, by the rule in make_generation.py.
float weight(const ParameterSpec& parameter, int64_t index) {
  const std::string& name = parameter.name;
  if (name.find("norm") != std::string::npos) return 1;
  uint64_t number = name.rfind("output", 0) == 0 ? 1 : 0;
  if (name.rfind("layers.", 0) == 0) {
    const std::vector<std::string> parts{"wq", "wk", "wv", "wo", "w1", "w2", "w3"};
    number = 10 * (static_cast<uint64_t>(name[7] - '0') + 1);
    for (size_t i = 0; i < parts.size(); ++i)
      if (name.find("." + parts[i] + ".") != std::string::npos) number += i;
  }
  const bool end = number == 1 && index / kGoldenModel.hidden_size == kGoldenEnd;
  return uniform(number, static_cast<uint64_t>(index)) * 0.5F * (end ? 2 : 1);
}

void fill(ShardedTransformer& model) {
  for (FsdpUnit& unit : model.units()) {
    std::vector<float> values(static_cast<size_t>(unit.layout().elements()));
    for (const Box& box : unit.layout().slices())
      for (int64_t r = 0; r < box.rows; ++r)
        for (int64_t c = 0; c < box.columns; ++c)
          values[static_cast<size_t>(box.offset + r * box.stride + c)] =
              weight(*box.parameter, (box.row + r) * box.parameter->columns + box.column + c);
    unit.set_shard(0, values);
  }
}

Ids prompt(uint64_t number) {
  Ids ids{1};
  for (uint64_t p = 0; p < number * 7 % 41; ++p)
    ids.push_back(static_cast<int32_t>(3 + mixed(1000 * number + p) % 94));
  return ids;
}

GenerationSettings settings_of(const Json& json) {
  GenerationSettings settings;
  settings.num_beams = json.value("num_beams", 1);
  settings.max_new_tokens = json["max_new_tokens"];
  settings.length_penalty = json.value("length_penalty", 1.0);
  settings.no_repeat_ngram_size = json.value("no_repeat_ngram_size", 0);
  settings.min_new_tokens = json.value("min_new_tokens", 0);
  const std::string stopping = json.value("early_stopping", "false");
  settings.early_stopping = stopping == "true"    ? EarlyStopping::kTrue
                            : stopping == "never" ? EarlyStopping::kNever
                                                  : EarlyStopping::kFalse;
  return settings;
}

std::vector<Ids> texts_by(const GenerationSettings& settings, int64_t slots, uint64_t prompts) {
  MpiWorld world;
  DeviceMesh mesh{world, {.replicate = 1, .fsdp = 1, .tensor = 1}};
  const Stream stream{Device::cpu()};
  MemoryLedger ledger;
  InferenceOptions options =
      InferenceOptions::of(kGoldenModel, kGoldenContext, DType::kFloat32, slots, settings);
  options.prefill_tokens = 150;
  const InferencePlan plan = plan_inference(kGoldenModel, options, mesh.sizes(), {}, DeviceKind::kCpu);
  InferenceModel model(kGoldenModel, options, mesh, stream, ledger, plan.arena);
  fill(model.model());
  std::vector<Ids> listed, texts;
  for (uint64_t number = 0; number < prompts; ++number) listed.push_back(prompt(number));
  ripstop::generate(
      {.slots = slots,
       .context = kGoldenContext,
       .prefill_tokens = options.prefill_tokens,
       .ids = kGoldenModel.vocab_size,
       .end_tokens = {kGoldenEnd},
       .settings = settings},
      ListedPrompts(std::move(listed)),
      {.best = [&](std::span<const SlotTokens> items) { return model.best(items, kGoldenModel.vocab_size); },
       .logits = [&](std::span<const SlotTokens> items) { return model.logits(items); }},
      [&](Continuation continuation) {
        texts.push_back(std::move(continuation.tokens));
        if (continuation.ended) texts.back().push_back(kGoldenEnd);
      });
  EXPECT_EQ(ledger.peak(), plan.memory);
  return texts;
}

TEST(GenerationGolden, WritesTheIdsOfHuggingFace) {
  const Json golden = Json::parse(std::ifstream(golden_file("generation.json")));
  ASSERT_GE(golden["cases"].size(), 14U);
  for (const Json& one : golden["cases"]) {
    const std::vector<Ids> expected = one["texts"];
    ASSERT_EQ(expected.size(), 50U);
    for (const int64_t slots : {1, 6}) {
      const std::vector<Ids> texts = texts_by(settings_of(one["settings"]), slots, expected.size());
      ASSERT_EQ(texts.size(), expected.size());
      for (size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(texts[i], expected[i])
            << one["settings"].dump() << ", prompt " << i << ", " << slots << " slots";
    }
  }
}

}  // namespace
}  // namespace ripstop
