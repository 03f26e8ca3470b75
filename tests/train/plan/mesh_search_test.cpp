#include "train/plan/mesh_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "tests/train/config/small_config.h"
#include "train/plan/fitting_meshes.h"
#include "train/plan/micro_batch.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

constexpr int64_t kAllRows = 1000;

// Six heads, so that tensor axes are 1, 2, 3 and 6; one layer, to plan all rows of a search fast.
RunConfig searched(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all{"model.num_hidden_layers=1", "model.vocab_size=300", "data.sequence_length=24",
                               "train.global_batch_sequences=50"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parsed(kSmallest, all);
}

RunTarget nodes_of(int64_t nodes, int64_t ranks_per_node, std::optional<int64_t> memory = std::nullopt) {
  RunTarget target = run_target(nodes * ranks_per_node, DeviceKind::kCuda, memory, 300);
  target.ranks_per_node = ranks_per_node;
  return target;
}

// The run of a mesh and micro-batch as resolve_run plans it.
ResolvedRun resolved(const RunTarget& target, const MeshSizes& mesh, int64_t micro_batch,
                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides{
      fmt::format("mesh.replicate={}", mesh.replicate), fmt::format("mesh.fsdp={}", mesh.fsdp),
      fmt::format("mesh.tensor={}", mesh.tensor), fmt::format("train.micro_batch_sequences={}", micro_batch)};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return resolve_run(searched(overrides), target);
}

using Row = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // a mesh and a micro-batch

Row row_of(const ResolvedRun& run) {
  return {run.mesh.replicate, run.mesh.fsdp, run.mesh.tensor, run.step.sharding.sequence_count};
}

std::set<Row> rows_of(const MeshSearch& found) {
  std::set<Row> rows;
  for (const ResolvedRun& run : found.rows) rows.insert(row_of(run));
  EXPECT_EQ(rows.size(), found.rows.size()) << "a row comes twice";
  return rows;
}

// The rows by their definition: tries each mesh and each size.
std::set<Row> every_row_that_fits(const RunTarget& target) {
  std::set<Row> rows;
  for (int64_t replicate = 1; replicate <= target.ranks; ++replicate)
    for (int64_t fsdp = 1; fsdp <= target.ranks; ++fsdp)
      for (const int64_t tensor : {1, 2, 3, 6}) {
        const MeshSizes mesh{.replicate = replicate, .fsdp = fsdp, .tensor = tensor};
        if (mesh.ranks() != target.ranks || target.ranks_per_node % tensor != 0) continue;
        for (const int64_t size : micro_batches_to_try(searched(), target, mesh, 1)) try {
            rows.insert(row_of(resolved(target, mesh, size)));
          } catch (const PlanTooLarge&) {
          }
      }
  return rows;
}

void expect_equal_plans(const ResolvedRun& row, const ResolvedRun& plan) {
  EXPECT_EQ(row_of(row), row_of(plan));
  EXPECT_EQ(row.micro_batches, plan.micro_batches);
  EXPECT_EQ(row.idle_share, plan.idle_share);
  EXPECT_EQ(row.step.sharding.recompute, plan.step.sharding.recompute);
  EXPECT_EQ(row.library_bytes, plan.library_bytes);
  EXPECT_EQ(row.plan.traffic_per_step, plan.plan.traffic_per_step);
  EXPECT_EQ(row.memory(), plan.memory());
}

// A memory that about half of the rows of 12 ranks exceed.
int64_t middle_memory() {
  std::vector<int64_t> bytes;
  for (const ResolvedRun& run : search_meshes(searched(), nodes_of(2, 6), {}, kAllRows).rows)
    bytes.push_back(run.memory().total() + run.library_bytes);
  std::ranges::sort(bytes);
  return bytes.at(bytes.size() / 2);
}

TEST(MeshSearch, FindsEveryRowThatFitsAndEachIsItsPlan) {
  const int64_t memory = middle_memory();
  for (const RunTarget& target : {nodes_of(2, 6, memory), nodes_of(2, 6), nodes_of(3, 4, memory)}) {
    const MeshSearch found = search_meshes(searched(), target, {}, kAllRows);
    EXPECT_EQ(rows_of(found), every_row_that_fits(target));
    EXPECT_EQ(found.fitting, static_cast<int64_t>(found.rows.size()));
    for (const ResolvedRun& row : found.rows)
      expect_equal_plans(row, resolved(target, row.mesh, row.step.sharding.sequence_count));
  }
  EXPECT_LT(search_meshes(searched(), nodes_of(2, 6, memory), {}, 1).fitting,
            search_meshes(searched(), nodes_of(2, 6), {}, 1).fitting);
}

// Summaries at validations need memory, too, and so does a plan of other settings.
TEST(MeshSearch, RowsHaveTheSettingsOfTheConfig) {
  const std::vector<std::string> more{"train.validate_every=5", "generation.validate_examples=4",
                                      "generation.max_new_tokens=4", "train.reshard_after_forward=false",
                                      "precision.reduce=bfloat16"};
  const RunTarget target = nodes_of(1, 4);
  const MeshSearch found = search_meshes(searched(more), target, {}, 5);
  ASSERT_EQ(found.rows.size(), 5U);
  for (const ResolvedRun& row : found.rows) {
    EXPECT_GT(row.summaries_memory.total(), 0);
    expect_equal_plans(row, resolved(target, row.mesh, row.step.sharding.sequence_count, more));
  }
}

// lost_percent counts empty sequences and recomputation.
int64_t percent_lost(const ResolvedRun& run) {
  const int64_t computed =
      run.mesh.replicate * run.mesh.fsdp * run.micro_batches * run.step.sharding.sequence_count;
  if (run.step.sharding.recompute == Recompute::kNone) return 100 * (computed - 50) / computed;
  return static_cast<int64_t>(100 *
                              (1 - 50 / (static_cast<double>(computed) * (1 + run.recomputed_share()))));
}

// Whether `rows[first]` is the best of the rows from there on, as MeshSearch::rows promises.
bool is_best_of_the_rest(const std::vector<ResolvedRun>& rows, size_t first, int64_t ranks_per_node) {
  const auto sent = [&](const ResolvedRun& run) {
    return sent_bytes(run.plan.traffic_per_step, run.mesh, ranks_per_node);
  };
  std::vector<ResolvedRun> left(rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end());
  const auto keep_fewest = [&](const auto& number, double as_few) {
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (const ResolvedRun& run : left) fewest = std::min(fewest, number(run));
    std::erase_if(left, [&](const ResolvedRun& run) {
      return number(run) > static_cast<int64_t>(as_few * static_cast<double>(fewest));
    });
  };
  keep_fewest(percent_lost, 1);
  keep_fewest([&](const ResolvedRun& run) { return sent(run).between_nodes; }, kAsFewBytes);
  keep_fewest([&](const ResolvedRun& run) { return sent(run).total(); }, kAsFewBytes);
  const int64_t most = std::ranges::max(left, {}, [](const ResolvedRun& run) {
                         return run.step.sharding.sequence_count;
                       }).step.sharding.sequence_count;
  std::erase_if(left, [&](const ResolvedRun& run) { return run.step.sharding.sequence_count < most; });
  keep_fewest([](const ResolvedRun& run) { return run.memory().total(); }, 1);
  return std::ranges::any_of(left,
                             [&](const ResolvedRun& run) { return row_of(run) == row_of(rows[first]); });
}

TEST(MeshSearch, EachRowIsTheBestOfThoseLeft) {
  const int64_t memory = middle_memory();
  for (const RunTarget& target : {nodes_of(2, 6), nodes_of(2, 6, memory), nodes_of(1, 12), nodes_of(12, 1)}) {
    std::vector<ResolvedRun> rows = search_meshes(searched(), target, {}, kAllRows).rows;
    ASSERT_GT(rows.size(), 3U);
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_TRUE(is_best_of_the_rest(rows, i, target.ranks_per_node))
          << i << ": " << rows[i].mesh.to_text() << " with " << rows[i].step.sharding.sequence_count;
    EXPECT_LE(percent_lost(rows.front()), percent_lost(rows.back()));
    // The check can fail.
    std::swap(rows.front(), rows.back());
    EXPECT_FALSE(is_best_of_the_rest(rows, 0, target.ranks_per_node));
  }
}

// A row has the least recomputation that fits, which counts as lost as idle time does.
TEST(MeshSearch, RecomputationIsLostTime) {
  const auto deep = [](const std::string& recompute) {
    return searched({"model.num_hidden_layers=6", "train.recompute=" + recompute});
  };
  std::vector<int64_t> bytes;
  for (const ResolvedRun& run : search_meshes(deep("none"), nodes_of(1, 6), {}, kAllRows).rows)
    bytes.push_back(run.memory().total() + run.library_bytes);
  const RunTarget target = nodes_of(1, 6, *std::ranges::min_element(bytes));
  const MeshSearch some = search_meshes(deep("none"), target, {}, kAllRows);
  const MeshSearch all = search_meshes(deep("auto"), target, {}, kAllRows);
  EXPECT_GT(all.fitting, some.fitting);
  EXPECT_EQ(all.rows.front().step.sharding.recompute, Recompute::kNone);
  std::set<Recompute> modes;
  for (size_t i = 0; i < all.rows.size(); ++i) {
    modes.insert(all.rows[i].step.sharding.recompute);
    EXPECT_TRUE(is_best_of_the_rest(all.rows, i, target.ranks_per_node)) << i;
  }
  EXPECT_GT(modes.size(), 1U);
  for (const ResolvedRun& run : search_meshes(deep("full"), target, {}, kAllRows).rows)
    EXPECT_EQ(run.step.sharding.recompute, Recompute::kFull);
}

TEST(MeshSearch, TheFirstRowsAreThoseOfALongerSearch) {
  const RunTarget target = nodes_of(2, 6, middle_memory());
  const MeshSearch all = search_meshes(searched(), target, {}, kAllRows);
  const MeshSearch few = search_meshes(searched(), target, {}, 4);
  EXPECT_EQ(few.fitting, all.fitting);
  ASSERT_EQ(few.rows.size(), 4U);
  for (size_t i = 0; i < few.rows.size(); ++i) expect_equal_plans(few.rows[i], all.rows[i]);
}

TEST(MeshSearch, ABatchOfManySequencesIsSearchedAtOnce) {
  const RunConfig config = searched({"train.global_batch_sequences=1000000"});
  const MeshSearch found = search_meshes(config, nodes_of(128, 6, int64_t{4} << 30), {}, 10);
  EXPECT_EQ(found.rows.size(), 10U);
  EXPECT_GT(found.fitting, 1000);
}

TEST(MeshSearch, SentBytesAreSplitAtTheNode) {
  const AxisBytes traffic{.replicate = 1, .fsdp = 10, .tensor = 100};
  const MeshSizes mesh{.replicate = 2, .fsdp = 4, .tensor = 2};
  EXPECT_EQ(sent_bytes(traffic, mesh, 16), (SentBytes{111, 0}));
  EXPECT_EQ(sent_bytes(traffic, mesh, 8), (SentBytes{110, 1}));
  EXPECT_EQ(sent_bytes(traffic, mesh, 4), (SentBytes{100, 11}));
  EXPECT_EQ(sent_bytes(traffic, mesh, 1), (SentBytes{0, 111}));
  // Nodes of 6 hold a block of 4, and cut the next one.
  EXPECT_EQ(sent_bytes(traffic, {.replicate = 3, .fsdp = 2, .tensor = 2}, 6), (SentBytes{100, 11}));
  EXPECT_EQ(sent_bytes(traffic, {.replicate = 1, .fsdp = 3, .tensor = 2}, 8), (SentBytes{111, 0}));
  // A stage is a block of fsdp x tensor ranks, and a replica is one of all stages.
  const AxisBytes stages{.replicate = 1000, .fsdp = 10, .tensor = 1, .pipeline = 100};
  const MeshSizes cut{.replicate = 2, .fsdp = 2, .tensor = 2, .pipeline = 2};
  EXPECT_EQ(sent_bytes(stages, cut, 4), (SentBytes{11, 1100}));
  EXPECT_EQ(sent_bytes(stages, cut, 8), (SentBytes{111, 1000}));
}

TEST(MeshSearch, KeptSizesRestrictIt) {
  const RunTarget target = nodes_of(2, 6);
  for (const ResolvedRun& run : search_meshes(searched(), target, {.tensor = 3}, kAllRows).rows)
    EXPECT_EQ(run.mesh.tensor, 3);
  for (const ResolvedRun& run : search_meshes(searched(), target, {.replicate = 2, .fsdp = 3}, kAllRows).rows)
    EXPECT_EQ(run.mesh, (MeshSizes{2, 3, 2}));
  for (const ResolvedRun& run : search_meshes(searched(), target, {}, kAllRows).rows)
    EXPECT_EQ(run.mesh.pipeline, 1);
  const MeshSearch five =
      search_meshes(searched({"train.micro_batch_sequences=5"}), target, {.tensor = 1}, kAllRows);
  EXPECT_EQ(five.fitting, 6);  // 1, 2, 3, 4, 6 or 12 replicas
  for (const ResolvedRun& run : five.rows) EXPECT_EQ(run.step.sharding.sequence_count, 5);
  const MeshSearch none = search_meshes(searched(), target, {.fsdp = 5}, kAllRows);
  EXPECT_FALSE(none.first.has_value());
  EXPECT_TRUE(none.rows.empty());
}

RunConfig deep_search(int64_t batch) {
  return searched({"model.num_hidden_layers=8", "train.recompute=none", "model.preset=debug",
                   fmt::format("train.global_batch_sequences={}", batch)});
}

// Percent lost and bytes sent have no common measure, so only a user or rates bring pipelines in.
TEST(MeshSearch, HasPipelinesIfKeptOrTimed) {
  const auto stages = [](const RunTarget& target, const KeptSizes& kept = {}) {
    std::set<int64_t> found;
    for (const ResolvedRun& run : search_meshes(deep_search(16), target, kept, kAllRows).rows)
      found.insert(run.mesh.pipeline);
    return found;
  };
  RunTarget target = nodes_of(4, 4);
  EXPECT_EQ(stages(target), std::set<int64_t>{1});
  EXPECT_EQ(stages(target, {.pipeline = 4}), std::set<int64_t>{4});
  EXPECT_EQ(stages(target, {.pipeline = 16}), std::set<int64_t>{}) << "8 layers";
  target.rates = Rates();
  target.rates->flops_per_second = 1e12;
  EXPECT_EQ(stages(target), (std::set<int64_t>{1, 2, 4, 8}));
  RunTarget one_node = nodes_of(1, 16);
  one_node.rates = target.rates;
  EXPECT_EQ(stages(one_node), std::set<int64_t>{1});
  target.rates = Rates();
  target.rates->memory_bytes_per_second = 1e12;
  EXPECT_EQ(stages(target), std::set<int64_t>{1}) << "layers would cost nothing";
}

TEST(MeshSearch, PipelinesLoseTheirIdleTime) {
  const RunConfig config = deep_search(16);
  const RunTarget target = nodes_of(4, 4);
  int64_t before = 0;
  for (const ResolvedRun& run : search_meshes(config, target, {.pipeline = 4}, kAllRows).rows) {
    const double computed = static_cast<double>(run.mesh.replicate * run.mesh.fsdp * run.micro_batches *
                                                run.step.sharding.sequence_count);
    EXPECT_GT(run.pipeline_idle_share, 0.1);
    const int64_t lost = lost_percent(config, run);
    EXPECT_EQ(lost, static_cast<int64_t>(100 * (1 - 16 * (1 - run.pipeline_idle_share) / computed)));
    EXPECT_GE(lost, before);
    before = lost;
  }
  EXPECT_GT(before, 20);
}

// Slow links between nodes make a pipeline the shortest step, fast ones do not.
TEST(MeshSearch, SlowLinksMakePipelinesFirst) {
  const auto best = [](double bytes_per_second) {
    RunTarget target = nodes_of(4, 4);
    target.rates = Rates();
    target.rates->flops_per_second = 1e12;
    target.rates->inside_node = LinkRate{0, 1e12, 1};
    target.rates->between_nodes = LinkRate{0, bytes_per_second, 1};
    return search_meshes(deep_search(64), target, {}, 1).rows.front().mesh.pipeline;
  };
  EXPECT_EQ(best(1e12), 1);
  EXPECT_GT(best(1e7), 1);
}

// Two stages on a rank come first where few micro-batches idle long and the link is fast.
TEST(MeshSearch, TimesPipelinesOfTwoStagesOnARank) {
  const auto found = [](double bytes_per_second, const KeptSizes& kept) {
    RunTarget target = nodes_of(4, 4);
    target.rates = Rates();
    target.rates->flops_per_second = 1e12;
    target.rates->inside_node = LinkRate{0, 1e12, 1};
    target.rates->between_nodes = LinkRate{0, bytes_per_second, 1};
    std::vector<std::pair<int64_t, int64_t>> rows;
    for (const ResolvedRun& run : search_meshes(deep_search(16), target, kept, kAllRows).rows) {
      rows.emplace_back(run.mesh.pipeline, run.step.sharding.stages_per_rank);
      EXPECT_EQ(rows.back().second == 2 ? run.micro_batches % run.mesh.pipeline : 0, 0);
    }
    return rows;
  };
  const auto of_four = [&](double bytes_per_second) {
    std::vector<std::pair<int64_t, int64_t>> rows = found(bytes_per_second, {});
    std::erase_if(rows, [](const auto& row) { return row.first != 4; });
    return rows.front().second;
  };
  EXPECT_EQ(of_four(1e12), 2);
  EXPECT_EQ(of_four(1e6), 1);
  const auto rows = found(1e12, {});
  EXPECT_EQ(std::ranges::count(rows, std::pair<int64_t, int64_t>{8, 2}), 0) << "8 layers";
  for (const auto& [pipeline, stages] : found(1e12, {.pipeline = 4})) EXPECT_EQ(stages, 1) << "the config's";
}

TEST(MeshSearch, TensorGroupsLieInsideNodes) {
  const auto largest = [](const RunConfig& config) {
    int64_t tensor = 0;
    for (const ResolvedRun& run : search_meshes(config, nodes_of(6, 2), {}, kAllRows).rows)
      tensor = std::max(tensor, run.mesh.tensor);
    return tensor;
  };
  EXPECT_EQ(largest(searched()), 2);
  EXPECT_EQ(largest(searched({"mesh.allow_tensor_across_nodes=true"})), 6);
}

TEST(MeshSearch, NothingFitsIsAnAnswer) {
  const MeshSearch found = search_meshes(searched(), nodes_of(2, 6, 1 << 20), {}, kAllRows);
  EXPECT_EQ(found.fitting, 0);
  EXPECT_TRUE(found.rows.empty());
  EXPECT_TRUE(found.first.has_value());
}

}  // namespace
}  // namespace ripstop
