#include "train/generate/inference_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "model/kernels/cpu/processor.h"
#include "parallel/mpi_world.h"
#include "tests/train/generate/listed_prompts.h"
#include "train/generate/beam_search.h"

namespace ripstop {
namespace {

using Ids = std::vector<int32_t>;

const ModelConfig kModel{.hidden_size = 32,
                         .intermediate_size = 48,
                         .num_hidden_layers = 3,
                         .num_attention_heads = 4,
                         .num_key_value_heads = 2,
                         .vocab_size = 61,
                         .max_position_embeddings = 96,
                         .initializer_range = 0.5,  // logits far apart, so that a wrong key or position shows
                         .head_dim = 12,
                         .attention_bias = AttentionBias::kQkvo,
                         .qk_norm = true};

// A model with random weights on one rank.
class InferenceModelTest : public testing::Test {
 protected:
  std::unique_ptr<InferenceModel> model(const InferenceOptions& options) {
    const InferencePlan plan =
        plan_inference(kModel, options, mesh_.sizes(), mesh_.coordinates(), DeviceKind::kCpu);
    auto made = std::make_unique<InferenceModel>(kModel, options, mesh_, stream_, ledger_, plan.arena);
    made->model().initialize(7);
    for (FsdpUnit& unit : made->model().units()) set_vectors(unit);
    made->model().weights_changed(made->arena());
    return made;
  }
  // Biases begin at zero: a missing one would not show.
  static void set_vectors(FsdpUnit& unit) {
    std::vector<float> values(static_cast<size_t>(unit.layout().vector_elements()));
    for (const Box& box : unit.layout().boxes(0, std::ssize(values)))
      for (int64_t i = 0; i < box.rows * box.columns; ++i)
        values[static_cast<size_t>(box.offset + i)] =
            (box.parameter->name.ends_with(".bias") ? 0 : 1) + 0.5F * std::sin(0.7F * static_cast<float>(i));
    unit.set_shard(0, values);
  }
  std::vector<Ids> generate(InferenceModel& model, const GenerateOptions& options,
                            const std::vector<Ids>& prompts) {
    std::vector<Ids> texts;
    ripstop::generate(
        options, ListedPrompts(prompts),
        {.best = [&](std::span<const SlotTokens> items) { return model.best(items, options.ids); },
         .logits = [&](std::span<const SlotTokens> items) { return model.logits(items); }},
        [&](Continuation continuation) { texts.push_back(std::move(continuation.tokens)); });
    return texts;
  }

  MpiWorld world_;
  DeviceMesh mesh_{world_, {.replicate = 1, .fsdp = 1, .tensor = 1}};
  Stream stream_{Device::cpu()};
  MemoryLedger ledger_;
};

GenerateOptions generation(int64_t slots, int64_t prefill_tokens, const GenerationSettings& settings) {
  return {.slots = slots,
          .context = 96,
          .prefill_tokens = prefill_tokens,
          .ids = kModel.vocab_size,
          .end_tokens = {-1},
          .settings = settings};
}

std::vector<Ids> prompts_of_many_lengths() {
  std::vector<Ids> prompts;
  for (int32_t i = 0; i < 17; ++i) {
    Ids prompt{1};
    for (int32_t p = 0; p < i * i % 70; ++p) prompt.push_back(3 + (p * 7 + i * 11) % 50);
    prompts.push_back(prompt);
  }
  return prompts;
}

// Compares with continuations without a cache, where every token comes from a run of the whole sequence.
TEST_F(InferenceModelTest, CachedTokensEqualThoseOfTheWholeSequence) {
  const auto whole = model({.compute = DType::kFloat32, .context = 96, .slots = 1, .prefill_tokens = 96});
  std::vector<Ids> expected;
  std::set<int32_t> seen;
  for (Ids sequence : prompts_of_many_lengths()) {
    Ids text;
    for (int i = 0; i < 20; ++i) {
      const SlotTokens item{.tokens = sequence};
      text.push_back(whole->best(std::span(&item, 1), kModel.vocab_size).front());
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
      const GenerateOptions options = generation(slots, prefill_tokens, {.max_new_tokens = 20});
      EXPECT_EQ(generate(*cached, options, prompts_of_many_lengths()), expected) << slots << " slots";
    }
}

TEST_F(InferenceModelTest, NamesOnlyIdsOfTheTokenizer) {
  const auto model =
      this->model({.compute = DType::kFloat32, .context = 96, .slots = 3, .prefill_tokens = 200});
  GenerateOptions options = generation(3, 200, {.max_new_tokens = 20});
  options.ids = 20;
  std::set<int32_t> seen;
  for (const Ids& text : generate(*model, options, prompts_of_many_lengths()))
    seen.insert(text.begin(), text.end());
  EXPECT_GT(seen.size(), 10U);
  EXPECT_LT(*seen.rbegin(), 20);
}

// A beam search without a cache: computes the whole sequence of each beam in every step.
std::vector<Ids> searched_without_cache(InferenceModel& model, const GenerateOptions& options,
                                        const std::vector<Ids>& prompts) {
  std::vector<Ids> texts;
  for (const Ids& prompt : prompts) {
    BeamSearch search(options, {prompt, 0});
    std::map<int64_t, int32_t> token_at;
    for (bool ended = false; !ended;) {
      std::vector<SlotTokens> rows;
      search.add_rows(0, rows);
      std::vector<std::vector<float>> logits;
      std::vector<LogitRow> next;
      for (const SlotTokens& row : rows) {
        Ids sequence = prompt;
        if (!row.places.empty()) token_at[row.places.back()] = row.tokens[0];
        for (const int32_t place : row.places) sequence.push_back(token_at[place]);
        const SlotTokens whole{.tokens = sequence};
        next.push_back(model.logits(std::span(&whole, 1)).front());
        logits.emplace_back(next.back().logits.begin(), next.back().logits.end());
      }
      for (size_t i = 0; i < next.size(); ++i) next[i].logits = logits[i];
      ended = search.accept(next);
    }
    texts.push_back(search.take().tokens);
  }
  return texts;
}

TEST_F(InferenceModelTest, BeamsShareTheCacheOfTheirPrompt) {
  const GenerationSettings settings{.num_beams = 4, .length_penalty = 1.3, .max_new_tokens = 20};
  const auto options = [&](int64_t slots) {
    InferenceOptions made = InferenceOptions::of(kModel, 96, DType::kFloat32, slots, settings);
    made.prefill_tokens = 200;
    return made;
  };
  const auto whole = model(options(1));
  const std::vector<Ids> expected =
      searched_without_cache(*whole, generation(1, 200, settings), prompts_of_many_lengths());
  for (const int64_t slots : {1, 5}) {
    const auto cached = model(options(slots));
    EXPECT_EQ(generate(*cached, generation(slots, 200, settings), prompts_of_many_lengths()), expected)
        << slots;
  }
}

TEST_F(InferenceModelTest, PlanIsWhatItTakes) {
  for (const int64_t slots : {1, 5})
    for (const GenerationSettings& settings : {GenerationSettings{.max_new_tokens = 20},
                                               GenerationSettings{.min_new_tokens = 2, .max_new_tokens = 20},
                                               GenerationSettings{.max_new_tokens = 20, .do_sample = true},
                                               GenerationSettings{.num_beams = 3, .max_new_tokens = 20}}) {
      InferenceOptions options = InferenceOptions::of(kModel, 96, DType::kFloat32, slots, settings);
      options.prefill_tokens = 200;
      const InferencePlan plan =
          plan_inference(kModel, options, mesh_.sizes(), mesh_.coordinates(), DeviceKind::kCpu);
      MemoryLedger ledger;
      InferenceModel made(kModel, options, mesh_, stream_, ledger, plan.arena);
      made.model().initialize(7);
      generate(made, generation(slots, 200, settings), prompts_of_many_lengths());
      EXPECT_EQ(ledger.peak(), plan.memory);
      EXPECT_LE(made.arena().peak().total(), plan.arena.total());
    }
}

// Beams need places for their new tokens and rows of logits, but no second copy of the prompt.
TEST_F(InferenceModelTest, BeamsTakeMemoryForTheirNewTokensOnly) {
  const auto memory = [&](int64_t num_beams) {
    GenerationSettings settings{.num_beams = num_beams, .min_new_tokens = 1, .max_new_tokens = 20};
    const InferenceOptions options = InferenceOptions::of(kModel, 96, DType::kFloat32, 10, settings);
    return plan_inference(kModel, options, mesh_.sizes(), {}, DeviceKind::kCpu).memory.total() -
           plan_inference(kModel, options, mesh_.sizes(), {}, DeviceKind::kCpu).arena.total();
  };
  const int64_t place = 3 * 2 * 2 * 12 * 4;          // layers x (key, value) x heads x size x bytes
  const int64_t rows = 4 * (64 + 3);                 // logits of 61 ids with padding, and statistics
  const int64_t places = 10 * 4 * 4 * (1 + 1 + 20);  // of 40 rows: own place, first, list
  EXPECT_EQ(memory(4) - memory(1), 11 * 3 * 20 * place + 30 * rows + places);
}

// On a CPU the plan includes host memory for choosing tokens: a row of logits for each thread that draws, and
// rows of the whole vocabulary. On a GPU it does not.
TEST_F(InferenceModelTest, WhatTheHostNeedsToChooseTokensIsPlanned) {
  const auto memory = [&](const GenerationSettings& settings, int64_t tensor, DeviceKind device) {
    const InferenceOptions options = InferenceOptions::of(kModel, 96, DType::kFloat32, 10, settings);
    const InferencePlan plan =
        plan_inference(kModel, options, {.replicate = 1, .fsdp = 1, .tensor = tensor}, {}, device);
    return plan.memory[MemoryCategory::kActivations] - plan.arena[MemoryCategory::kActivations];
  };
  const GenerationSettings best{.max_new_tokens = 20}, chosen{.min_new_tokens = 1, .max_new_tokens = 20};
  const int64_t rows = 10;
  const auto added = [&](int64_t tensor, DeviceKind device) {
    return memory(chosen, tensor, device) - memory(best, tensor, device);
  };
  // Each slice has logits of 64 ids, padding included, and 3 statistics, instead of one value and one id.
  EXPECT_EQ(added(1, DeviceKind::kCpu), 4 * rows * (64 + 3 - 2));
  EXPECT_EQ(added(2, DeviceKind::kCpu), 4 * rows * (64 + 2 * (3 - 2)) + 4 * rows * 61);
  EXPECT_EQ(added(2, DeviceKind::kCuda), 4 * rows * (64 + 2 * (3 - 2)));
  const auto drawing = [&](const GenerationSettings& settings) {
    const InferenceOptions options = InferenceOptions::of(kModel, 96, DType::kFloat32, 10, settings);
    return plan_inference(kModel, options, mesh_.sizes(), {}, DeviceKind::kCpu).memory.total();
  };
  EXPECT_EQ(drawing({.max_new_tokens = 20, .do_sample = true}) - drawing(chosen),
            std::min<int64_t>(cpu_threads(), rows) * 61 * 8);
}

// The loss is the sum over all targets, for any division of the sequences into batches.
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
    const LossSum sum = made->evaluate(batches, next, [] { return false; });
    EXPECT_EQ(sum.target_count, batches * std::ssize(token) / 8 * 7);
    EXPECT_EQ(made->evaluate(batches, next, [] { return false; }).loss, sum.loss)
        << "nothing is left of the first call";
    return sum.loss;
  };
  const double one = loss(8, 8, 1);
  EXPECT_GT(one, 7 * 0.5);
  EXPECT_NEAR(loss(8, 32, 3), 12 * one, 1e-4 * one);
  EXPECT_NEAR(loss(16, 32, 1), 4 * one, 1e-4 * one);
}

}  // namespace
}  // namespace ripstop
