// One training step on one rank: its results, its changes, and the states that it must not change.
#include "train/step/training_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "train/plan/rank_plan.h"

namespace ripstop {
namespace {

constexpr int64_t kPositions = 8, kSequences = 4;
constexpr int32_t kPoisoned = 30;  // a token that only some tests use

const ModelConfig kModel{.hidden_size = 16,
                         .intermediate_size = 24,
                         .num_hidden_layers = 2,
                         .num_attention_heads = 2,
                         .num_key_value_heads = 1,
                         .vocab_size = 31,
                         .max_position_embeddings = kPositions};

// `count` sequences of one document each. Token i + 1 is the target of token i, except for the last one.
struct Tokens {
  std::vector<int32_t> token, position, target, document_offset{0};
  explicit Tokens(int64_t count, bool with_targets = true) {
    for (int64_t s = 0; s < count; ++s) {
      for (int64_t p = 0; p < kPositions; ++p) {
        token.push_back(static_cast<int32_t>((7 * s + 3 * p) % 29));
        position.push_back(static_cast<int32_t>(p));
        const bool counts = with_targets && p + 1 < kPositions;
        target.push_back(counts ? static_cast<int32_t>((7 * s + 3 * p + 3) % 29) : -1);
      }
      document_offset.push_back(static_cast<int32_t>(token.size()));
    }
  }
  // The sequences [first, first + count) alone.
  Tokens part(int64_t first, int64_t count) const {
    Tokens some(count);
    for (auto [from, to] : {std::pair{&token, &some.token}, {&target, &some.target}})
      to->assign(from->begin() + first * kPositions, from->begin() + (first + count) * kPositions);
    return some;
  }
  HostTokens view() const { return {token, position, target, document_offset}; }
};

// A step on one rank, with memory as planned.
class OneRank {
 public:
  explicit OneRank(double max_grad_norm = 0, int64_t micro_batch_sequences = kSequences,
                   Recompute recompute = Recompute::kNone, const LoraConfig& lora = {})
      : mesh_(DeviceMesh::planned({.replicate = 1, .fsdp = 1, .tensor = 1}, {})), stream_(Device::cpu()) {
    StepOptions options;
    options.sharding = {.compute = DType::kFloat32,
                        .sequence_count = micro_batch_sequences,
                        .sequence_length = kPositions,
                        .recompute = recompute,
                        .lora = lora};
    options.max_grad_norm = max_grad_norm;
    const RankPlan plan = plan_rank({.model = kModel,
                                     .step = options,
                                     .mesh = mesh_.sizes(),
                                     .micro_batches = kSequences / micro_batch_sequences},
                                    {});
    step_.emplace(kModel, options, mesh_, stream_, ledger_, plan.arena);
    step_->model().initialize(3);
  }

  TrainingStep& step() { return *step_; }

  StepResult run(const Tokens& tokens, const StepNumbers& numbers, bool stop = false) {
    return step_->run(
        1, [&](int64_t) { return tokens.view(); }, 1e-2, numbers, [&] { return stop; });
  }
  StepResult run(const Tokens& tokens, int64_t number = 1, bool stop = false) {
    return run(tokens, StepNumbers{number}, stop);
  }

  // All master weights and moments of this rank.
  std::vector<float> state() {
    std::vector<float> all;
    for (size_t u = 0; u < step_->model().units().size(); ++u)
      for (const Tensor& t :
           {step_->model().units()[u].master(), step_->optimizer().first(u), step_->optimizer().second(u)})
        all.insert(all.end(), t.as<float>(), t.as<float>() + t.count());
    return all;
  }

  // Makes the embedding of kPoisoned not finite: a batch with that token has no finite loss.
  void poison() {
    for (FsdpUnit& unit : step_->model().units())
      for (const Box& box : unit.layout().boxes(0, unit.master().count()))
        if (box.parameter->name == "tok_embeddings.weight")
          unit.master().as<float>()[box.offset + kPoisoned * box.stride] =
              std::numeric_limits<float>::infinity();
    step_->model().weights_changed(step_->arena());
  }

 private:
  DeviceMesh mesh_;
  Stream stream_;
  MemoryLedger ledger_;
  std::optional<TrainingStep> step_;
};

// Bit-equal, so that NaN equals NaN.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

TEST(TrainingStep, ReducesTheLoss) {
  OneRank rank;
  const Tokens tokens(kSequences);
  const StepResult first = rank.run(tokens, 1);
  EXPECT_FALSE(first.skipped);
  EXPECT_EQ(first.sum.target_count, kSequences * (kPositions - 1));
  EXPECT_NEAR(first.loss, std::log(31.0), 1.0) << "fresh weights guess about evenly";
  EXPECT_GT(first.gradient_norm, 0);
  double last = first.loss;
  for (int64_t update = 2; update <= 10; ++update) last = rank.run(tokens, update).loss;
  EXPECT_LT(last, 0.7 * first.loss);
}

TEST(TrainingStep, EvaluationGivesTheLossOfTheNextStep) {
  OneRank rank;
  const Tokens tokens(kSequences);
  const LossSum sum = rank.step().evaluate(
      1, [&](int64_t) { return tokens.view(); }, [] { return false; });
  const std::vector<float> before = rank.state();
  EXPECT_EQ(sum.target_count, kSequences * (kPositions - 1));
  EXPECT_EQ(rank.state(), before) << "an evaluation changes no weights";
  EXPECT_NEAR(rank.run(tokens).loss, sum.mean(), 1e-6 * sum.mean());
}

TEST(TrainingStep, AccumulationEqualsOneLargeBatch) {
  const Tokens tokens(kSequences);
  OneRank whole, parts(0, 1);
  for (int64_t update = 1; update <= 3; ++update) {
    const StepResult expected = whole.run(tokens, update);
    std::optional<Tokens> part;
    const StepResult found = parts.step().run(
        kSequences, [&](int64_t micro) { return part.emplace(tokens.part(micro, 1)).view(); }, 1e-2, {update},
        [] { return false; });
    EXPECT_EQ(found.sum.target_count, expected.sum.target_count);
    EXPECT_NEAR(found.loss, expected.loss, 1e-5 * expected.loss);
    EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 1e-4 * expected.gradient_norm);
  }
}

// More meshes and dtypes: tests/train/step/layout_ranks_test.cpp.
TEST(TrainingStep, RecomputingChangesNoBit) {
  const Tokens tokens(kSequences);
  OneRank none;
  std::vector<StepResult> expected;
  for (int64_t update = 1; update <= 3; ++update) expected.push_back(none.run(tokens, update));
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    OneRank rank(0, kSequences, recompute);
    for (int64_t update = 1; update <= 3; ++update) {
      const StepResult found = rank.run(tokens, update);
      EXPECT_EQ(found.loss, expected[static_cast<size_t>(update - 1)].loss) << to_string(recompute);
      EXPECT_EQ(found.gradient_norm, expected[static_cast<size_t>(update - 1)].gradient_norm);
    }
    EXPECT_TRUE(same_bits(rank.state(), none.state())) << to_string(recompute);
    // An evaluation keeps nothing for backward in any mode.
    const auto evaluated = [&](OneRank& of) {
      return of.step()
          .evaluate(
              1, [&](int64_t) { return tokens.view(); }, [] { return false; })
          .mean();
    };
    EXPECT_EQ(evaluated(rank), evaluated(none));
  }
}

TEST(TrainingStep, ANonFiniteStepChangesNothing) {
  OneRank rank;
  rank.run(Tokens(kSequences), 1);
  rank.poison();
  const std::vector<float> before = rank.state();
  Tokens poisoned(kSequences);
  poisoned.token[3] = kPoisoned;
  const StepResult result = rank.run(poisoned, 2);
  EXPECT_TRUE(result.skipped);
  EXPECT_GT(result.sum.target_count, 0);
  EXPECT_TRUE(same_bits(rank.state(), before));

  const StepResult next = rank.run(Tokens(kSequences), 2);
  EXPECT_FALSE(next.skipped) << "nothing of the bad gradient is left";
  EXPECT_TRUE(std::isfinite(next.loss));
  EXPECT_FALSE(same_bits(rank.state(), before));
}

TEST(TrainingStep, AStepWithoutTargetsChangesNothing) {
  OneRank rank;
  rank.run(Tokens(kSequences), 1);
  const std::vector<float> before = rank.state();
  const StepResult result = rank.run(Tokens(kSequences, /*with_targets=*/false), 2);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.sum.target_count, 0);
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.gradient_norm, 0);
  EXPECT_EQ(rank.state(), before);
}

// AdamW divides by the root of the second moment, so the size of a first gradient hardly shows in the
// weights. The first moment shows it: 0.1 g after one step.
TEST(TrainingStep, ClippingScalesTheGradient) {
  const Tokens tokens(kSequences);
  OneRank free, clipped(0.01);
  const double norm = free.run(tokens).gradient_norm;
  EXPECT_EQ(clipped.run(tokens).gradient_norm, norm) << "the norm is that before clipping";
  ASSERT_GT(norm, 0.1);
  const double factor = 0.01 / (norm + 1e-6);
  for (size_t u = 0; u < free.step().model().units().size(); ++u) {
    const Tensor &expected = free.step().optimizer().first(u), &found = clipped.step().optimizer().first(u);
    for (int64_t i = 0; i < expected.count(); ++i) {
      const double g = factor * expected.as<float>()[i];
      ASSERT_NEAR(found.as<float>()[i], g, 1e-5 * std::abs(g) + 1e-12) << "unit " << u << " element " << i;
    }
  }
}

// The step after a skipped one has the same update number, and must not repeat its dropout.
TEST(TrainingStep, DropoutDependsOnTheStepAndNotOnTheUpdate) {
  LoraConfig lora{.rank = 2, .alpha = 4, .dropout = 0.5};
  const auto norm = [&](const StepNumbers& numbers) {
    return OneRank(0, kSequences, Recompute::kNone, lora).run(Tokens(kSequences), numbers).gradient_norm;
  };
  EXPECT_NE(norm({.step = 2, .update = 1}), norm({.step = 1, .update = 1}));
  EXPECT_EQ(norm({.step = 2, .update = 1}), norm({.step = 2, .update = 2}));
  lora.dropout = 0;
  EXPECT_EQ(norm({.step = 2, .update = 1}), norm({.step = 1, .update = 1}));
}

TEST(TrainingStep, AStopRequestReachesTheResult) {
  OneRank rank;
  const Tokens tokens(kSequences);
  EXPECT_EQ(rank.run(tokens, 1, /*stop=*/false).sum.stop_requests, 0);
  const StepResult result = rank.run(tokens, 2, /*stop=*/true);
  EXPECT_EQ(result.sum.stop_requests, 1);
  EXPECT_FALSE(result.skipped) << "the step itself is done";
  EXPECT_EQ(rank.run(tokens, 3, /*stop=*/false).sum.stop_requests, 0);
  const LossSum sum = rank.step().evaluate(
      1, [&](int64_t) { return tokens.view(); }, [] { return true; });
  EXPECT_EQ(sum.stop_requests, 1);
}

}  // namespace
}  // namespace ripstop
