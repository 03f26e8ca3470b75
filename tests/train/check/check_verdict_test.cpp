// The verdict on made-up findings: it reports each kind of difference with name and place.
#include "train/check/check_verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/expect_has.h"
#include "train/check/mesh_check.h"

namespace ripstop {
namespace {

constexpr MeshSizes kEightRanks{.replicate = 2, .fsdp = 2, .tensor = 2};

class Verdict : public testing::Test {
 protected:
  Verdict() {
    settings.model = find_model_preset("debug")->config;
    settings.model.vocab_size = 61;
    settings.step.sharding.compute = DType::kFloat32;
    settings.step.sharding.sequence_length = 16;
    settings.learning_rate = 0.02;
    size_t parameters = 0;
    const std::vector<UnitSpec> table = parameter_table(settings.model);
    for (const UnitSpec& unit : table)
      for (const ParameterSpec& p : unit.parameters()) {
        names.push_back(p.name);
        ++parameters;
      }
    RankFindings one;
    for (size_t s = 0; s < kCheckSteps; ++s)
      one.steps[s] = one.reference[s] = {
          .loss = 4,
          .gradient_norm = 2,
          .target_count = target_count(settings.tokens(kEightRanks), static_cast<int64_t>(s) + 1)};
    for (size_t state = 0; state < kComparedStates; ++state) {
      one.errors[state].resize(parameters);
      one.norms[state].assign(parameters, 100.0);
      one.units[state].assign(table.size(), {.is_held = true});
    }
    ranks.assign(static_cast<size_t>(kEightRanks.ranks()), one);
    for (int64_t r = 0; r < kEightRanks.ranks(); ++r) hosts.push_back(fmt::format("node{}", r / 4));
  }

  MeshVerdict judged() const { return judge(ranks, kEightRanks, hosts, settings); }
  size_t number_of(const std::string& name) const {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  }
  void expect_fails(const std::string& text) const {
    const MeshVerdict verdict = judged();
    EXPECT_FALSE(verdict.holds());
    EXPECT_HAS(verdict.complaint(), text);
  }

  CheckSettings settings;
  std::vector<std::string> names, hosts;
  std::vector<RankFindings> ranks;
};

TEST_F(Verdict, WhatIsEqualHolds) {
  const MeshVerdict verdict = judged();
  EXPECT_TRUE(verdict.holds());
  EXPECT_EQ(verdict.complaint(), "");
  EXPECT_EQ(verdict.notes, std::vector<std::string>{});
  EXPECT_EQ(verdict.values.size(), 4 + 6 * names.size());
}

TEST_F(Verdict, ErrorsOfShardsAddUpAndThoseOfReplicasDoNot) {
  const size_t p = number_of("layers.1.attention.wo.weight");
  for (RankFindings& rank : ranks)
    rank.errors[1][p] = {.squared_error = 1, .worst_block = 0.3, .row = 5, .column = 7};
  ranks[6].errors[1][p].worst_block = 0.5;
  const MeshVerdict verdict = judged();
  // A squared error of 1 in each of 4 shards, a squared norm of 100.
  EXPECT_NEAR(verdict.worst(CheckedKind::kGradient).error, 0.2, 1e-12);
  EXPECT_EQ(verdict.worst(CheckedKind::kGradient).text(),
            "the gradient of layers.1.attention.wo.weight in step 2");
  EXPECT_EQ(verdict.worst(CheckedKind::kGradientBlock).text(),
            "the gradient of layers.1.attention.wo.weight in step 2 at row 5, column 7 on rank 6");
  expect_fails("layers.1.attention.wo.weight in step 2");
  // Ranks of the tensor axis hold copies of a vector, so an error adds up over two shards.
  const size_t norm = number_of("layers.0.ffn_norm.weight");
  for (RankFindings& rank : ranks) {
    rank.errors[1][p] = {};
    rank.errors[0][norm] = {.squared_error = 2};
  }
  EXPECT_NEAR(judged().worst(CheckedKind::kGradient).error, 0.2, 1e-12);
}

// Four stages of two layers: the first and the last one have the vocabulary, the two between have a layer
// each.
TEST_F(Verdict, TheEndsOfAPipelineHaveCopiesOfATiedTable) {
  const MeshSizes mesh{.replicate = 2, .fsdp = 1, .pipeline = 4};
  const size_t vocabulary = 0;
  for (size_t r = 0; r < ranks.size(); ++r)
    for (size_t state = 0; state < kComparedStates; ++state)
      for (size_t u = 0; u < ranks[r].units[state].size(); ++u) {
        const size_t stage = r % 4;
        const bool is_held = u == vocabulary ? stage == 0 || stage == 3 : stage == std::min<size_t>(u, 3);
        ranks[r].units[state][u] = {.is_held = is_held};
      }
  for (RankFindings& rank : ranks)
    for (size_t s = 0; s < kCheckSteps; ++s)
      rank.steps[s].target_count = target_count(settings.tokens(mesh), static_cast<int64_t>(s) + 1);
  EXPECT_EQ(judge(ranks, mesh, hosts, settings).complaint(), "");
  // A squared error of 1 in each of two copies, a squared norm of 100.
  ranks[0].errors[0][0] = ranks[3].errors[0][0] = {.squared_error = 1};
  EXPECT_NEAR(judge(ranks, mesh, hosts, settings).worst(CheckedKind::kGradient).error, 0.1, 1e-12);
  ranks[0].errors[0][0] = ranks[3].errors[0][0] = {};
  ranks[3].units[kCheckSteps][vocabulary].shard_hash = ranks[7].units[kCheckSteps][vocabulary].shard_hash = 1;
  const std::string text = judge(ranks, mesh, hosts, settings).complaint();
  EXPECT_HAS(text, "(stages) after the last step have other bits on rank 3 (node0) than on rank 0 (node0)");
  for (RankFindings& rank : ranks) rank.units[1][1].is_held = false;
  EXPECT_HAS(judge(ranks, mesh, hosts, settings).complaint(), "no stage has layers.0");
}

TEST_F(Verdict, TheFirstStepThatFailsIsNamed) {
  const size_t early = number_of("norm.weight"), late = number_of("layers.0.attention.wq.weight");
  ranks[1].errors[0][early] = {.squared_error = 0.01, .worst_block = 0.01};
  ranks[1].errors[1][late] = {.squared_error = 50, .worst_block = 3};
  EXPECT_EQ(judged().worst_parameter().parameter, "norm.weight");
  expect_fails("the gradient of norm.weight in step 1 is off by 0.01 (tolerance ");
  ranks[1].errors[0][early] = {};
  EXPECT_EQ(judged().worst_parameter().parameter, "layers.0.attention.wq.weight");
}

TEST_F(Verdict, LossAndNormCount) {
  for (RankFindings& rank : ranks) rank.steps[1].loss = 4.04;
  expect_fails("the loss in step 2 is off by 0.01 (tolerance ");
  for (RankFindings& rank : ranks) rank.steps[1] = rank.reference[1];
  for (RankFindings& rank : ranks) rank.steps[0].gradient_norm = 2.2;
  expect_fails("the gradient norm in step 1 is off by 0.1 (tolerance ");
  // The first failure comes first, although a later one is larger.
  for (RankFindings& rank : ranks) rank.steps[1].gradient_norm = 8;
  ranks[0].errors[1][0] = {.squared_error = 100, .worst_block = 1};
  EXPECT_EQ(judged().complaint().rfind("the gradient norm in step 1 is off by 0.1", 0), 0U)
      << judged().complaint();
  expect_fails("; the gradient of ");
}

TEST_F(Verdict, ValuesThatAreNotFiniteFailEverywhere) {
  const size_t p = number_of("layers.1.feed_forward.w2.weight");
  ranks[3].errors[0][p] = {.squared_error = std::nan(""), .worst_block = std::nan(""), .finite = false};
  EXPECT_EQ(judged().worst_parameter().parameter, "layers.1.feed_forward.w2.weight");
  expect_fails("layers.1.feed_forward.w2.weight in step 1 is off by inf");
  // Values that are not finite fail, even if each rank alone computes the same.
  ranks[3].errors[0][p] = {.finite = false};
  expect_fails("layers.1.feed_forward.w2.weight in step 1");
  ranks[3].errors[0][p] = {};
  for (RankFindings& rank : ranks)
    rank.steps[0].loss = rank.reference[0].loss = std::numeric_limits<double>::infinity();
  expect_fails("the loss in step 1 is off by inf");
  for (RankFindings& rank : ranks) rank.steps[0].skipped = true;
  expect_fails("step 1 was skipped: its loss or gradient is not finite");
  ranks[2].reference[1].skipped = true;
  expect_fails("rank 2 (node0) alone skipped step 2");
}

TEST_F(Verdict, PromisesToTheBitAreKept) {
  ranks[6].units[2][1].shard_hash = 1;
  expect_fails(
      "the weights of layers.0 (replicas) after the last step have other bits on rank 6 (node1) than on rank "
      "2 (node0)");
  ranks[6].units[2][1] = {.is_held = true};
  ranks[5].units[0][2].replicated_hash = 1;
  expect_fails(
      "the gradient of layers.1 (what the tensor axis does not cut) in step 1 has other bits on rank 5 "
      "(node1) than "
      "on rank 4 (node1)");
  ranks[5].units[0][2] = {.is_held = true};
  ranks[1].units[1][0].padding = 0.25;
  expect_fails("the padding of the gradient of vocabulary in step 2 is 0.25 on rank 1 (node0), not 0");
  ranks[1].units[1][0] = {.is_held = true};
  ranks[7].steps[1].loss = std::nextafter(4.0, 5.0);
  expect_fails("on rank 0 (node0), 4.000000000000001 and 2 on rank 7 (node1)");
  ranks[7].steps[1].loss = 4;
  for (RankFindings& rank : ranks) ++rank.steps[0].target_count;
  expect_fails("step 1 counted ");
}

// Processors of two kinds may round differently, so a difference alone is a note, not a failure.
TEST_F(Verdict, RanksThatDifferAloneAreANote) {
  ranks[2].norms[1][3] = std::nextafter(100.0, 101.0);
  const MeshVerdict verdict = judged();
  EXPECT_TRUE(verdict.holds());
  ASSERT_EQ(verdict.notes.size(), 1U);
  EXPECT_HAS(verdict.notes[0], "rank 2 (node0) alone computes other bits than rank 0 (node0) alone");
}

TEST_F(Verdict, FindingsTravelWhole) {
  RankFindings sent = ranks[0];
  sent.steps[1] = {.loss = 1.5, .gradient_norm = 2.5, .target_count = 77, .skipped = true};
  sent.errors[2][4] = {.squared_error = 3, .worst_block = 4, .row = 5, .column = 6, .finite = false};
  sent.norms[0][2] = 8;
  sent.units[1][1] = {.shard_hash = ~uint64_t{0}, .replicated_hash = 10, .padding = 11, .is_held = true};
  DeviceMesh alone = DeviceMesh::alone();
  const RankFindings got = findings_of_all_ranks(alone.world(), sent).front();
  EXPECT_EQ(got.steps, sent.steps);
  EXPECT_EQ(got.reference, sent.reference);
  EXPECT_EQ(got.norms, sent.norms);
  EXPECT_EQ(got.units, sent.units);
  EXPECT_EQ(got.errors[2][4].squared_error, 3);
  EXPECT_EQ(got.errors[2][4].row, 5);
  EXPECT_FALSE(got.errors[2][4].finite);
}

TEST_F(Verdict, TolerancesGrowWithRoundingAlone) {
  const auto of = [&](const CheckSettings& s, const MeshSizes& mesh) {
    return check_tolerances(s, mesh)[static_cast<size_t>(CheckedKind::kGradient)];
  };
  const double float32 = of(settings, kEightRanks);
  EXPECT_LT(float32, 3e-5);
  CheckSettings deep = settings;
  deep.model.num_hidden_layers = 80;
  EXPECT_GT(of(deep, kEightRanks), float32);
  EXPECT_LT(of(deep, kEightRanks), 1e-3);
  CheckSettings rounded = settings;
  rounded.step.sharding.reduce = DType::kBFloat16;
  EXPECT_GT(of(rounded, kEightRanks), 1e-3);
  EXPECT_EQ(of(rounded, {.replicate = 1, .fsdp = 1, .tensor = 8}), float32) << "nothing travels in bfloat16";
  EXPECT_GT(of(rounded, {.replicate = 4, .fsdp = 1, .tensor = 2}),
            of(rounded, {.replicate = 1, .fsdp = 4, .tensor = 2}))
      << "sums over replicas round twice";
  rounded.step.sharding.compute = DType::kBFloat16;
  EXPECT_LT(of(rounded, kEightRanks), 0.5);
}

}  // namespace
}  // namespace ripstop
