#include "parallel/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "model/core/error.h"
#include "model/lora.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

using Layers = std::vector<int64_t>;

ModelConfig preset(const char* name, int64_t vocabulary = 32000) {
  ModelConfig config = find_model_preset(name)->config;
  config.vocab_size = vocabulary;
  return config;
}

Layers layers_of(const ModelConfig& config, int64_t ranks, double target_share = 1) {
  return split_stages(config, std::min<int64_t>(config.max_position_embeddings, 2048), target_share, ranks, 1)
      .layers;
}

TEST(SplitStages, WeighsTheHead) {
  EXPECT_EQ(layers_of(preset("llama2-7b"), 1), Layers{32});
  EXPECT_EQ(layers_of(preset("llama2-7b"), 2), (Layers{16, 16}));
  EXPECT_EQ(layers_of(preset("llama2-7b"), 4), (Layers{8, 8, 8, 8}));
  EXPECT_EQ(layers_of(preset("llama2-7b"), 8), Layers(8, 4));
  EXPECT_EQ(layers_of(preset("110m"), 4), (Layers{4, 4, 4, 0})) << "the head is as long as 3 layers";
  EXPECT_EQ(layers_of(preset("110m"), 4, 0), (Layers{3, 3, 3, 3})) << "no row has a target";
  EXPECT_EQ(layers_of(preset("llama3.1-8b", 128256), 2), (Layers{17, 15}));
  EXPECT_EQ(layers_of(preset("llama3.1-8b", 128256), 2, 0.07), (Layers{16, 16})) << "summaries";
}

TEST(SplitStages, GivesEarlierStagesFewerLayers) {
  EXPECT_EQ(layers_of(preset("110m"), 5, 0), (Layers{2, 2, 2, 3, 3}));
  EXPECT_EQ(layers_of(preset("tinyllama-1.1b"), 3, 0), (Layers{7, 7, 8}));
  EXPECT_EQ(layers_of(preset("llama2-7b"), 3), (Layers{11, 11, 10}));
}

// No split is better than the one that was found.
TEST(SplitStages, TheLongestStageIsAsShortAsPossible) {
  for (int64_t all = 1; all <= 24; ++all)
    for (int64_t stages = 1; stages <= all + 1; ++stages)
      for (const double share : {0.0, 0.1, 0.5, 1.0}) {
        ModelConfig config = preset("110m");
        config.num_hidden_layers = all;
        const Layers found = layers_of(config, stages, share);
        ASSERT_EQ(std::accumulate(found.begin(), found.end(), int64_t{0}), all);
        ASSERT_EQ(found.size(), static_cast<size_t>(stages));
        if (stages == 1) continue;
        EXPECT_GE(*std::min_element(found.begin(), found.end() - 1), 1);
        EXPECT_TRUE(std::is_sorted(found.begin(), found.end() - 1));
        // 2 C V operations of the head beside 2 (4 C C + 3 C F) + 2 C T of a layer, in a forward.
        const double head = share * 32000 * 768 / (4 * 768 * 768 + 3 * 768 * 2048 + 768 * 1024);
        const auto longest = [&](int64_t largest, int64_t last) {
          return std::max(static_cast<double>(largest), static_cast<double>(last) + head);
        };
        const double found_longest = longest(*std::max_element(found.begin(), found.end() - 1), found.back());
        for (int64_t last = 0; last <= all - (stages - 1); ++last) {
          const int64_t largest = (all - last + stages - 2) / (stages - 1);
          EXPECT_LE(found_longest, longest(largest, last) + 0.01) << all << " " << stages << " " << last;
        }
      }
}

TEST(SplitStages, RefusesMoreStagesThanLayersAndHead) {
  EXPECT_EQ(layers_of(preset("110m"), 13).back(), 0);
  const std::string one = what_and_hint_of([] { layers_of(preset("110m"), 16); }, ExitCode::kResources);
  EXPECT_EQ(
      one,
      "mesh.pipeline 16 makes 16 stages, the model has 12 layers | sizes of mesh.pipeline that fit: 1 to "
      "13; only the last stage may have no layer");
  const std::string two =
      what_and_hint_of([] { split_stages(preset("110m"), 1024, 1, 8, 2); }, ExitCode::kResources);
  EXPECT_HAS(two, "16 stages");
  EXPECT_HAS(two, "1 to 6;");
}

TEST(StageSplit, StagesGoAroundTheRanks) {
  const StageSplit split{.layers = {3, 2, 2, 0}, .ranks = 2};
  EXPECT_EQ(split.of_rank(0), (std::vector<Stage>{{0, 0, 3, true, false}, {2, 5, 2, false, false}}));
  EXPECT_EQ(split.of_rank(1), (std::vector<Stage>{{1, 3, 2, false, false}, {3, 7, 0, false, true}}));
  EXPECT_EQ((StageSplit{.layers = {7}}.of_rank(0)), (std::vector<Stage>{{0, 0, 7, true, true}}));
}

// Each unit is on the rank of its layer; the embedding on the first, the head on the last.
TEST(StageSplit, UnitsAreWhereTheirLayersAre) {
  for (const bool tied : {false, true})
    for (const int64_t lora_rank : {0, 4})
      for (const auto& [ranks, stages] : {std::pair{1, 1}, {2, 1}, {3, 1}, {3, 2}, {13, 1}}) {
        ModelConfig config = preset("110m", 64);
        config.tie_word_embeddings = tied;
        LoraConfig lora;
        lora.rank = lora_rank;
        const std::vector<UnitSpec> units = unit_table(config, lora);
        const StageSplit split = split_stages(config, 64, 1, ranks, stages);
        for (size_t unit = 0; unit < units.size(); ++unit) {
          const std::string& name = units[unit].name;
          std::vector<int64_t> expected;
          for (int64_t rank = 0; rank < ranks; ++rank)
            for (const Stage& stage : split.of_rank(rank)) {
              bool here = (name == "embedding" && stage.is_first) || (name == "head" && stage.is_last) ||
                          (name == "vocabulary" && (stage.is_first || stage.is_last));
              for (int64_t layer = stage.first_layer; layer < stage.first_layer + stage.layers; ++layer)
                here = here || name == fmt::format("layers.{}", layer) ||
                       name == fmt::format("layers.{}.lora", layer);
              if (here) expected.push_back(rank);
            }
          EXPECT_EQ(split.ranks_with(unit), expected) << name << " on " << ranks << " ranks";
        }
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const std::vector<size_t> held = split.units_of_rank(rank, units.size());
          EXPECT_TRUE(std::ranges::is_sorted(held));
          for (size_t unit = 0; unit < units.size(); ++unit)
            EXPECT_EQ(std::ranges::count(held, unit), std::ranges::count(split.ranks_with(unit), rank));
        }
      }
}

TEST(WithLayers, TakesWhatFits) {
  const StageSplit split = split_stages(preset("110m"), 1024, 1, 4, 1);
  EXPECT_EQ(with_layers(split, {2, 4, 4, 2}), (StageSplit{{2, 4, 4, 2}, 4, true}));
  EXPECT_EQ(with_layers(split, {1, 1, 10, 0}).layers, (Layers{1, 1, 10, 0}));
}

TEST(WithLayers, RefusesLayersThatAreLost) {
  const StageSplit split = split_stages(preset("110m"), 1024, 1, 4, 1);
  const auto refused = [&](const Layers& layers) {
    return what_and_hint_of([&] { with_layers(split, layers); }, ExitCode::kUsage);
  };
  EXPECT_EQ(
      refused({3, 3, 3, 2}),
      "mesh.pipeline_layers is [3, 3, 3, 2]: 11 layers, the model has 12 | mesh.pipeline_layers = [4, 4, "
      "4, 0] is what \"auto\" chooses");
  EXPECT_HAS(refused({6, 6}), "2 stages, the pipeline has 4");
  EXPECT_HAS(refused({6, 0, 3, 3}), "stage 1 has 0 layers");
  EXPECT_HAS(refused({6, 4, 3, -1}), "stage 3 has -1 layers");
  EXPECT_HAS(refused({}), "0 stages");
}

}  // namespace
}  // namespace ripstop
