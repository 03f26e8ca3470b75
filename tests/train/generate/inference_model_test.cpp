#include "train/generate/inference_model.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "parallel/mpi_world.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

const ModelConfig kModel{
    .hidden_size = 32,
    .intermediate_size = 48,
    .num_hidden_layers = 3,
    .num_attention_heads = 4,
    .num_key_value_heads = 2,
    .vocab_size = 61,
    .max_position_embeddings = 96,
    .initializer_range = 0.5};  // logits far apart, so that a wrong key or position shows

// One rank with random weights.
class InferenceModelTest : public testing::Test {
 protected:
  std::unique_ptr<InferenceModel> model(const InferenceOptions& options) {
    const InferencePlan plan =
        plan_inference(kModel, options, mesh_.sizes(), mesh_.coordinates(), DeviceKind::kCpu);
    auto made = std::make_unique<InferenceModel>(kModel, options, mesh_, stream_, ledger_, plan.arena);
    made->model().initialize(7);
    return made;
  }
  std::vector<Ids> generate(InferenceModel& model, const GreedyOptions& options,
                            const std::vector<Ids>& prompts) {
    std::vector<Ids> texts;
    size_t asked = 0;
    generate_greedy(
        options, [&] { return asked < prompts.size() ? std::optional(prompts[asked++]) : std::nullopt; },
        [&](std::span<const SlotTokens> items) { return model.append(items); },
        [&](Continuation continuation) { texts.push_back(std::move(continuation.tokens)); });
    return texts;
  }

  MpiWorld world_;
  DeviceMesh mesh_{world_, {.replicate = 1, .fsdp = 1, .tensor = 1}};
  Stream stream_{Device::cpu()};
  MemoryLedger ledger_;
};

std::vector<Ids> prompts_of_many_lengths() {
  std::vector<Ids> prompts;
  for (int32_t i = 0; i < 17; ++i) {
    Ids prompt{1};
    for (int32_t p = 0; p < i * i % 70; ++p) prompt.push_back(3 + (p * 7 + i * 11) % 50);
    prompts.push_back(prompt);
  }
  return prompts;
}

// The continuation of each prompt without a cache: every token comes from a run of the whole sequence.
TEST_F(InferenceModelTest, CachedTokensEqualThoseOfTheWholeSequence) {
  const auto whole = model({.compute = DType::kFloat32, .context = 96, .slots = 1, .prefill_tokens = 96});
  std::vector<Ids> expected;
  std::set<int32_t> seen;
  for (Ids sequence : prompts_of_many_lengths()) {
    Ids text;
    for (int i = 0; i < 20; ++i) {
      const SlotTokens item{0, 0, sequence};
      text.push_back(whole->append(std::span(&item, 1)).front());
      sequence.push_back(text.back());
      seen.insert(text.back());
    }
    expected.push_back(text);
  }
  EXPECT_GT(seen.size(), 20u);  // a model that always says the same proves little

  for (int64_t slots : {1, 3, 16})
    for (int64_t prefill_tokens : {96, 300}) {
      const auto cached = model(
          {.compute = DType::kFloat32, .context = 96, .slots = slots, .prefill_tokens = prefill_tokens});
      const GreedyOptions options{slots, 96, prefill_tokens, 20, /*end_token=*/-1};
      EXPECT_EQ(generate(*cached, options, prompts_of_many_lengths()), expected) << slots << " slots";
    }
}

TEST_F(InferenceModelTest, PlanIsWhatItTakes) {
  for (const int64_t slots : {1, 5}) {
    const InferenceOptions options{
        .compute = DType::kFloat32, .context = 96, .slots = slots, .prefill_tokens = 200};
    const InferencePlan plan =
        plan_inference(kModel, options, mesh_.sizes(), mesh_.coordinates(), DeviceKind::kCpu);
    MemoryLedger ledger;
    InferenceModel made(kModel, options, mesh_, stream_, ledger, plan.arena);
    made.model().initialize(7);
    generate(made, {slots, 96, 200, 20, -1}, prompts_of_many_lengths());
    EXPECT_EQ(ledger.peak(), plan.memory);
    EXPECT_LE(made.arena().peak().total(), plan.arena.total());
  }
}

// The loss is the sum over all targets, however the sequences are cut into batches.
TEST_F(InferenceModelTest, LossesAreSums) {
  const auto loss = [&](int64_t context, int64_t prefill_tokens, int batches) {
    const auto made =
        model({.compute = DType::kFloat32, .context = context, .slots = 1, .prefill_tokens = prefill_tokens});
    const Ids document = {1, 5, 9, 30, 31, 32, 7, 8};
    Ids token, position, target, offset{0};
    while (std::ssize(token) < prefill_tokens / context * context) {
      for (size_t p = 0; p < document.size(); ++p) {
        token.push_back(document[p]);
        position.push_back(static_cast<int32_t>(p));
        target.push_back(p + 1 < document.size() ? document[p + 1] : -1);
      }
      offset.push_back(static_cast<int32_t>(token.size()));
    }
    const auto next = [&](int64_t) { return HostTokens{token, position, target, offset}; };
    const LossSum sum = made->evaluate(batches, next);
    EXPECT_EQ(sum.target_count, batches * std::ssize(token) / 8 * 7);
    EXPECT_EQ(made->evaluate(batches, next).loss, sum.loss) << "nothing is left of the first call";
    return sum.loss;
  };
  const double one = loss(8, 8, 1);
  EXPECT_GT(one, 7 * 0.5);
  EXPECT_NEAR(loss(8, 32, 3), 12 * one, 1e-4 * one);
  EXPECT_NEAR(loss(16, 32, 1), 4 * one, 1e-4 * one);
}

}  // namespace
}  // namespace ripstop
