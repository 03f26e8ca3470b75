// `ripstop plan` with rates: how long a step and the run take, and the order of a search.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"
#include "train/machine/rates.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

class PlanRatesCommand : public testing::Test {
 protected:
  // The rates of a slow machine, on which `speed` ranks would be one. Speed 2 alone can read its power.
  std::string rates(double speed, const std::string& device = "cpu") const {
    Rates rates;
    rates.device = device;
    rates.model = "made";
    rates.hosts = {"here"};
    for (const char* kernel :
         {"linear", "linear_backward_input", "linear_backward_weight", "attention", "attention_backward"})
      for (const char* dtype : {"float32", "bfloat16"})
        rates.kernels.push_back({.kernel = kernel, .dtype = dtype, .per_second = speed * 1e9});
    rates.memory_bytes_per_second = speed * 1e10;
    rates.inside_node = LinkRate{1e-6, speed * 1e9, 1};
    if (speed == 2) rates.watts_per_rank = 90;
    const std::filesystem::path path = scratch_ / (device + std::to_string(speed) + ".json");
    std::ofstream(path) << rates_document(rates);
    return "--rates " + path.string() + " ";
  }
  ProgramRun plan(const std::string& arguments) const {
    return run_program(
        "plan configs/xsum-scratch.toml model.preset=110m model.vocab_size=32000 data.directory=none "
        "train.global_batch_sequences=64 train.steps=1000 run.directory=none --cpus-per-task 1 " +
        arguments);
  }
  Json plan_json(const std::string& arguments) const {
    const ProgramRun result = expect_success(plan("--json " + arguments));
    return Json::parse(result.out);
  }

  ScratchDirectory scratch_;
};

TEST_F(PlanRatesCommand, ARunTakesItsStepsAndNodes) {
  const Json slow = plan_json("--device cpu " + rates(1)), fast = plan_json("--device cpu " + rates(2));
  const double step = slow["time"]["step_seconds"];
  // FLOPs of the model over those of a second, and what reads and writes memory.
  const double flops = slow["flops_per_token"].get<double>() * 64 * 1024 / 1e9;
  EXPECT_GT(step, flops);
  EXPECT_LT(step, 1.3 * flops);
  EXPECT_NEAR(fast["time"]["step_seconds"], step / 2, 1e-6 * step);
  EXPECT_NEAR(slow["time"]["tokens_per_second"], 64 * 1024 / step, 1e-3);
  EXPECT_NEAR(slow["time"]["run_seconds"], 1000 * step, 1e-3 * step);
  EXPECT_NEAR(slow["time"]["node_hours"], 1000 * step / 3600, 1e-6 * step);
  EXPECT_EQ(slow["time"]["exposed_seconds"], 0);
  EXPECT_TRUE(slow["energy"]["kwh"].is_null());
  EXPECT_NEAR(fast["energy"]["kwh"], 90 * 1000 * step / 2 / 3.6e6, 1e-9 * step);
  EXPECT_HAS(plan("--device cpu " + rates(2)).out, " kWh, by cpu2.000000.json (here)\n");
  EXPECT_TRUE(plan_json("--device cpu")["time"].is_null());
  const std::string text = plan("--device cpu " + rates(1)).out;
  EXPECT_HAS(text, " node-hours, by cpu1.000000.json (here)\n");
}

TEST_F(PlanRatesCommand, OptionsReplaceSingleRates) {
  const std::string job = "--device cpu --nodes 4 --ntasks-per-node 1 mesh.fsdp=4 ";
  const Json unknown = plan_json(job + rates(1));
  EXPECT_EQ(unknown["time"]["left_out"], Json({"messages between nodes"}));
  const Json slow = plan_json(job + rates(1) + "--between-nodes 100Kbit");
  EXPECT_TRUE(slow["time"]["left_out"].empty());
  const double link = slow["traffic_per_step"]["fsdp"].get<double>() / (1e5 / 8);
  EXPECT_GT(slow["time"]["exposed_seconds"], 0.8 * link);
  EXPECT_LT(slow["time"]["exposed_seconds"], 1.1 * link);
  EXPECT_NEAR(slow["time"]["node_hours"], slow["time"]["run_seconds"].get<double>() * 4 / 3600, 1e-3);
  EXPECT_HAS(slow["time"]["source"].get<std::string>(), "--between-nodes 100Kbit");
  const Json alone = plan_json("--device cpu --rank-flops 1G");
  EXPECT_EQ(alone["time"]["left_out"], Json({"memory"}));
  EXPECT_NEAR(alone["time"]["step_seconds"].get<double>(),
              plan_json("--device cpu --rank-flops 2G")["time"]["step_seconds"].get<double>() * 2, 1e-6);
}

TEST_F(PlanRatesCommand, ADataSheetIsMarked) {
  const std::string job = "--device cuda --rates H100 precision.compute=bfloat16 ";
  const Json planned = plan_json(job);
  EXPECT_HAS(planned["time"]["source"].get<std::string>(),
             "by data sheet: H100 (products at 60% of its peak");
  EXPECT_TRUE(planned["energy"]["kwh"].is_null());
  EXPECT_EQ(plan("--device cuda --rates H1000").exit_code, 65);  // neither a file nor a GPU
}

TEST_F(PlanRatesCommand, ASearchPutsTheShortestStepFirst) {
  const std::string job = "--device cuda --rates H100 --nodes 2 --ntasks-per-node 4 --search --limit 100 ";
  const Json rows = plan_json(job + "--between-nodes 1Gbit")["rows"];
  ASSERT_GT(rows.size(), 5U);
  EXPECT_TRUE(std::ranges::all_of(rows, [](const Json& row) { return row["time"].is_object(); }));
  for (size_t row = 1; row < rows.size(); ++row)
    EXPECT_LE(rows[row - 1]["time"]["step_seconds"], rows[row]["time"]["step_seconds"]) << row;
  // Slow links between nodes favour few bytes there.
  EXPECT_LT(rows[0]["sent_per_step"]["between_nodes"], rows.back()["sent_per_step"]["between_nodes"]);
  EXPECT_TRUE(plan_json("--device cuda --nodes 2 --ntasks-per-node 4 --search")["rows"][0]["time"].is_null());
  const std::string text = plan(job + "--between-nodes 1Gbit").out;
  EXPECT_HAS(text, "Best first: the shortest step, by data sheet: H100");
  EXPECT_HAS(text, "between  step takes\n");
  // The first row takes as long as its plan says.
  const Json& first = rows[0];
  std::string settings = "--device cuda --rates H100 --between-nodes 1Gbit --nodes 2 --ntasks-per-node 4 ";
  for (const char* axis : {"replicate", "pipeline", "fsdp", "tensor"})
    settings += fmt::format("mesh.{}={} ", axis, first["mesh"][axis].get<int>());
  settings += fmt::format("train.micro_batch_sequences={}", first["micro_batch_sequences"].get<int>());
  EXPECT_NEAR(plan_json(settings)["time"]["step_seconds"], first["time"]["step_seconds"], 1e-9);
  // A search with a single candidate compares it with none.
  const Json only = plan_json(settings + " --search")["rows"];
  ASSERT_EQ(only.size(), 1U);
  EXPECT_NEAR(only[0]["time"]["step_seconds"], first["time"]["step_seconds"], 1e-9);
}

TEST_F(PlanRatesCommand, OtherRatesAreRefusedOrNoted) {
  const auto expect_refused = [&](const std::string& arguments, int code, const std::string& what) {
    expect_exit(plan(arguments), code, what);
  };
  expect_refused("--between-nodes 25", 64, "did you mean --between-nodes 25Gbit?");
  expect_refused("--between-nodes 25GB", 64, "--between-nodes 25GB is no bandwidth");
  expect_refused("--between-nodes -1Gbit", 64, "is no bandwidth");
  expect_refused("--rank-flops 0T", 64, "--rank-flops 0T is no number of FLOP/s");
  expect_refused("--rank-flops 400", 64, "did you mean --rank-flops 400T?");
  expect_refused("--device cuda " + rates(1), 65, "has rates of cpu, the plan is for cuda");
  expect_refused("--rates no/such.json", 65, "no/such.json");
  const Json other = plan_json("--device cpu --ntasks-per-node 2 " + rates(1));
  EXPECT_HAS(other["notes"].dump(),
             "measured with 1 rank a node of 1 thread each, this job has 2 of 1: "
             "measure with OMP_NUM_THREADS=1 mpirun -n 2 ripstop doctor");
  EXPECT_EQ(plan_json("--device cpu " + rates(1))["notes"].dump().find("measured with"), std::string::npos);
  const std::string link = "--device cpu --rank-flops 1G --between-nodes 1Gbit ", silent = "has no effect";
  EXPECT_HAS(plan_json(link + "--ntasks-per-node 2")["notes"].dump(), "--between-nodes has no effect: ");
  EXPECT_EQ(plan_json(link + "--nodes 2")["notes"].dump().find(silent), std::string::npos);
  EXPECT_EQ(plan_json("--device cpu --rank-flops 1G")["notes"].dump().find(silent), std::string::npos);
}

}  // namespace
}  // namespace ripstop
