// `ripstop plan` on a data set and beside a run: the run then does what the plan says.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

class PlanCommand : public testing::Test {
 protected:
  void SetUp() override {
    const ProgramRun data = expect_success(
        run_program("prepare --source synthetic --examples 200 --seed 1 --vocab-size 400 --output " +
                    (scratch_ / "data").string()));
    write_bytes(scratch_ / "config.toml",
                "[run]\ndirectory = \"" + run().string() + "\"\ndevice = \"cpu\"\n[data]\ndirectory = \"" +
                    (scratch_ / "data").string() +
                    "\"\nsequence_length = 96\n[model]\npreset = \"debug\"\n[train]\nepochs = 1\n"
                    "global_batch_sequences = 32\n[optimizer]\nlearning_rate = 1e-3\n[precision]\ncompute = "
                    "\"float32\"\n");
  }
  std::filesystem::path run() const { return scratch_ / "run"; }
  std::string config() const { return (scratch_ / "config.toml").string(); }
  ProgramRun plan(const std::string& arguments = "") const {
    return run_program("plan " + config() + " --cpus-per-task 1 " + arguments);
  }
  Json plan_json(const std::string& arguments = "") const {
    const ProgramRun result = expect_success(plan("--json " + arguments));
    return Json::parse(result.out);
  }

  ScratchDirectory scratch_;
};

// The rest of the line of `text` that begins with `begin`; "" if there is none.
std::string line_of(const std::string& text, const std::string& begin) {
  const size_t at = ("\n" + text).find("\n" + begin);
  if (at == std::string::npos) return "";
  const size_t from = text.find_first_not_of(' ', at + begin.size());
  return text.substr(from, text.find('\n', from) - from);
}

TEST_F(PlanCommand, ThePlanIsWhatTheRunDoes) {
  const Json before = plan_json();
  EXPECT_GT(before["data"]["cut_documents"], 0) << before;
  EXPECT_GT(before["data"]["cut_tokens"], 0);
  EXPECT_EQ(before["run"]["epochs"], 1);
  EXPECT_TRUE(before["time"].is_null());  // no speed is known before the run
  EXPECT_TRUE(before["energy"].is_null());
  EXPECT_EQ(before["checkpoint"]["most_on_disk"], 4);

  const std::string text = plan().out;
  const ProgramRun trained = expect_success(run_program("train " + config()));
  for (const char* name : {"data", "epoch", "run", "checkpoint"}) {
    EXPECT_NE(line_of(text, name), "") << text;
    EXPECT_EQ(line_of(text, name), line_of(trained.out, std::string(name) + ":")) << name;
  }
  EXPECT_HAS(line_of(text, "data"), " cut to 96 tokens") << text;

  const MetricsLog log = read_metrics(run() / "metrics.jsonl");
  const DataUse& use = log.starts.at(0).data;
  EXPECT_EQ(before["data"]["examples"], use.examples);
  EXPECT_EQ(before["data"]["cut_documents"], use.cut_documents);
  EXPECT_EQ(before["data"]["cut_tokens"], use.cut_tokens);
  EXPECT_EQ(before["data"]["sequences_per_epoch"], use.epoch_sequences);
  EXPECT_EQ(before["data"]["tokens_per_epoch"], use.epoch_tokens);
  EXPECT_EQ(before["run"]["steps"], log.steps.back().step);
  EXPECT_EQ(before["run"]["tokens"], log.steps.back().tokens_seen);
  // The headers and hashes of the files take a few KiB more.
  const auto planned = before["checkpoint"]["bytes"].get<int64_t>();
  EXPECT_EQ(planned, log.starts.at(0).checkpoint_bytes);
  EXPECT_GE(log.checkpoints.at(0).bytes, planned);
  EXPECT_LT(log.checkpoints.at(0).bytes, planned + 65536);

  // Now the speed of the run is known.
  const Json after = plan_json("train.epochs=3");
  ASSERT_FALSE(after["time"].is_null()) << after;
  EXPECT_GT(after["time"]["tokens_per_second"], 0);
  const int64_t left = 2 * use.epoch_tokens;  // the run has done one of the three epochs
  EXPECT_NEAR(after["time"]["run_seconds"], left / after["time"]["tokens_per_second"].get<double>(), 1e-3);
  EXPECT_NEAR(after["time"]["node_hours"], after["time"]["run_seconds"].get<double>() / 3600, 1e-9);
  EXPECT_TRUE(after["time"]["exposed_seconds"].is_null());
  EXPECT_TRUE(after["energy"]["kwh"].is_null());
  EXPECT_HAS(line_of(plan("train.epochs=3").out, "time"), "left at ");
  EXPECT_TRUE(plan_json("--ntasks-per-node 2")["time"].is_null());  // two ranks have another speed
}

// Several data sets of one tokenizer, of which b has no validation.
class PlanOfSets : public PlanCommand {
 protected:
  void SetUp() override {
    PlanCommand::SetUp();
    for (const auto& [name, seed] : {std::pair{"b", 2}, std::pair{"c", 3}}) {
      expect_success(run_program(
          fmt::format("prepare --source synthetic --examples 60 --seed {} --tokenizer {} --output {}", seed,
                      path("data"), path(name))));
    }
    std::filesystem::remove(scratch_ / "b/validation.h5");
  }
  std::string path(const std::string& name) const { return (scratch_ / name).string(); }
  std::string sets(const std::string& first, const std::string& second, const std::string& more = "") const {
    return fmt::format(" 'data.directories=[\"{}\", \"{}\"]' {}", path(first), path(second), more);
  }
};

// The run then goes on as the plan of a run that exists says.
TEST_F(PlanOfSets, ARunThatExistsGoesOnAsPlanned) {
  // All lines that tell the length of the run in a plan and in a header.
  const auto lengths = [&](const std::string& text, const std::string& end) {
    std::string found;
    for (const char* name : {"data", "epoch", "run", "schedule"})
      for (size_t at = 0; (at = text.find("\n" + std::string(name) + end, at)) != std::string::npos; ++at)
        found += name + (" " + line_of(text.substr(at), name + end)) + "\n";
    return found;
  };
  const auto goes_on_as_planned = [&](const std::string& overrides, const std::string& option = "") {
    const std::string planned = plan(overrides).out;
    const ProgramRun trained = expect_success(run_program("train " + option + config() + overrides));
    const std::string header = lengths("\n" + trained.out, ":");
    EXPECT_EQ(lengths(planned, " "), header);
    return header;
  };
  const std::string both = sets("data", "b", "train.validate_every=100 train.global_batch_sequences=50");
  goes_on_as_planned(both + " train.epochs=1");
  const int64_t steps = read_metrics(run() / "metrics.jsonl").steps.back().step;
  const auto sequences = plan_json(both)["data"]["sequences_per_epoch"].get<int64_t>();
  ASSERT_LT((3 * sequences + 49) / 50, 3 * steps) << "no step is a part of one";
  EXPECT_HAS(goes_on_as_planned(both + " train.epochs=2"),
             fmt::format("run 2 epochs, {} steps, ", 2 * steps));
  EXPECT_HAS(goes_on_as_planned(both + " train.epochs=3"),
             fmt::format("run 3 epochs, {} steps, ", 3 * steps));
  const std::string refused = "note: train will refuse to go on with " + run().string() + ": ";
  EXPECT_EQ(plan(both + " train.epochs=3").out.find(refused), std::string::npos);
  EXPECT_HAS(
      plan(sets("b", "data", "train.epochs=4")).out,
      refused + "the order of data.directories changed: '" + path("data") + "', '" + path("b") + "' -> ");
  EXPECT_HAS(plan(sets("data", "c", "train.epochs=4")).out,
             refused + "the data set in " + path("c") + " is not the one this run began with");
  EXPECT_HAS(plan("train.epochs=4").out, refused + "'" + path("b") + "' is gone from data.directories");

  const std::string drawn =
      sets("data", "b", "train.validate_every=0 run.directory=" + path("drawn") + " data.weights=");
  goes_on_as_planned(drawn + "[9,1] train.steps=3");
  EXPECT_HAS(goes_on_as_planned(drawn + "[1,9] train.steps=6", "--allow-changes "),
             "90% of those after step 3");
  EXPECT_HAS(plan(drawn + "[9,1] train.steps=7").out, "data.weights: [1.0, 9.0] -> [9.0, 1.0]");
  EXPECT_EQ(plan(drawn + "[0.1,0.9] train.steps=7").out.find("will refuse"), std::string::npos);
}

// The sets that are not validated are named as train names them.
TEST_F(PlanOfSets, ValidationsAreThoseOfTheRun) {
  const std::string both = sets("data", "b", "train.validate_every=100");
  const std::string note =
      "note: train.validate_every: " + path("b/validation.h5") + " has no examples (ripstop prepare ";
  EXPECT_HAS(plan(both).out, note);
  EXPECT_EQ(plan(sets("data", "b")).out.find("validate"), std::string::npos);
  EXPECT_EQ(plan_json(both)["checkpoint"]["most_on_disk"], 5) << "checkpoint.keep, the best and a new one";
  EXPECT_HAS(run_program("train " + config() + both).out, note);

  // Without any set the plan has no memory for validations, as the run has none.
  const std::string none =
      " train.validate_every=1 generation.validate_examples=1 data.directory=" + path("b") +
      " run.directory=" + path("none");
  const Json planned = plan_json(none);
  expect_success(run_program("train " + config() + none));
  EXPECT_HAS(plan(none).out, note);
  EXPECT_EQ(planned["checkpoint"]["most_on_disk"], 4);
  const MemoryUse measured = read_metrics(scratch_ / "none/metrics.jsonl").ends.at(0).measured.memory;
  EXPECT_EQ(planned["memory"]["activations"], measured[MemoryCategory::kActivations]);
  const Json row = plan_json("--search" + none)["rows"][0];
  EXPECT_EQ(row["memory"], plan_json(fmt::format("{} train.micro_batch_sequences={}", none,
                                                 row["micro_batch_sequences"].get<int64_t>()))["memory"]);
}

TEST_F(PlanCommand, WithoutADataSetOnlyWhatIsKnown) {
  const Json steps = plan_json("data.directory=/no/such/data model.vocab_size=400 train.steps=7");
  EXPECT_TRUE(steps["data"].is_null());
  EXPECT_EQ(steps["run"]["steps"], 7);
  EXPECT_EQ(steps["validation"]["at_start"], false);
  EXPECT_EQ(steps["validation"]["stop_after"], 0);
  EXPECT_TRUE(steps["run"]["tokens"].is_null());
  const std::string slip = "data.directory=" + (scratch_ / "dta").string();
  const std::string near = (scratch_ / "data").string() + "?";
  EXPECT_HAS(plan(slip + " model.vocab_size=400").out, "; did you mean data.directory=" + near);
  EXPECT_HAS(plan(slip).err, "did you mean data.directory=" + near);
  const Json epochs = plan_json("data.directory=/no/such/data model.vocab_size=400 checkpoint.keep=0");
  EXPECT_TRUE(epochs["run"]["steps"].is_null());
  EXPECT_TRUE(epochs["checkpoint"]["most_bytes"].is_null());
  EXPECT_GT(epochs["checkpoint"]["bytes"], 0);
}

// plan refuses a data set that train refuses.
TEST_F(PlanCommand, WhatTheDataSetRulesOutIsRefused) {
  expect_exit(plan("data.sequence_length=2"), 64, "nothing to learn");
  expect_exit(plan("schedule.warmup_steps=100000"), 64, "steps that train.epochs come to");
}

// train refuses the tokenizer (65). plan needs none, so it prints a note.
TEST_F(PlanCommand, AnotherTokenizerIsANote) {
  EXPECT_EQ(plan().out.find("train will refuse the data set"), std::string::npos);
  const ProgramRun other = expect_success(
      run_program("prepare --source synthetic --examples 200 --seed 1 --vocab-size 380 --output " +
                  (scratch_ / "other").string()));
  std::filesystem::copy_file(scratch_ / "other/tokenizer.model", scratch_ / "data/tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  const ProgramRun noted = expect_success(plan());
  EXPECT_HAS(noted.out, "note: train will refuse the data set: ");
  EXPECT_EQ(run_program("train " + config()).exit_code, 65);
  std::filesystem::remove(scratch_ / "data/tokenizer.model");
  EXPECT_HAS(plan().out, "note: train will refuse the data set: ");
}

TEST_F(PlanCommand, APlanThatIsTooLargeSaysWhatWouldFit) {
  const Json one = plan_json();
  EXPECT_TRUE(one["fits"].is_null());  // no memory was given
  EXPECT_EQ(one["recompute"], "none");
  EXPECT_HAS(plan().out, "\nrecompute       none\n");
  EXPECT_EQ(one["reshard_after_forward"], true);
  const std::string stages = "--nodes 2 --ntasks-per-node 2 mesh.pipeline=2 ";
  EXPECT_EQ(plan_json(stages)["reshard_after_forward"], false) << "with a pipeline they are kept";
  EXPECT_HAS(plan(stages).out, "; units kept whole after forward\n");
  EXPECT_EQ(plan_json(stages + "--search")["rows"][0]["reshard_after_forward"], false);
  EXPECT_HAS(plan(stages + "--search").out, "recompute = \"none\"\nreshard_after_forward = false\n\n");
  EXPECT_HAS(plan_json(stages + "mesh.pipeline_stages_per_rank=1 --search")["command"].get<std::string>(),
             " mesh.pipeline_stages_per_rank=1 ");
  const Json full = plan_json("train.recompute=full");
  EXPECT_EQ(full["recompute"], "full");
  EXPECT_GT(full["recomputed_share"], 0.1);
  EXPECT_EQ(full["flops_per_token"], one["flops_per_token"]);
  EXPECT_HAS(plan("train.recompute=full").out,
             fmt::format("\nrecompute       full ({:.1f}% more operations than none)\n",
                         100 * full["recomputed_share"].get<double>()));
  // The copies of a save take the memory that is left.
  const int64_t need = one["memory"]["total"].get<int64_t>() - one["memory"]["snapshot"].get<int64_t>();
  const std::string memory = "--device-memory " + std::to_string((need - 1) / 1024) + "KiB";
  EXPECT_EQ(plan_json("--device-memory 80GiB")["fits"], true);

  const ProgramRun large =
      plan("--json train.micro_batch_sequences=32 train.recompute=none --ntasks-per-node 1 " + memory);
  expect_exit(large, 78, "these fit: ");
  const Json document = Json::parse(large.out);
  EXPECT_EQ(document["fits"], false);
  EXPECT_EQ(document["refused"]["micro_batch_sequences"], 32);
  EXPECT_GT(document["refused"]["bytes"], document["device_memory"]);
  const Json& other = document["would_fit"]["same_ranks"].at(0);
  EXPECT_EQ(document["would_fit"]["least"]["bytes"], document["would_fit"]["device_memory"]);
  // The hint is right: that plan fits.
  EXPECT_EQ(
      plan(fmt::format("train.micro_batch_sequences={} train.recompute={} ",
                       other["micro_batch_sequences"].get<int64_t>(), other["recompute"].get<std::string>()) +
           memory)
          .exit_code,
      0);
}

// Moments in bfloat16 halve the optimizer's memory, and a checkpoint has 8 bytes a weight, not 12.
TEST_F(PlanCommand, Bfloat16MomentsAreInThePlan) {
  const Json exact = plan_json(), rounded = plan_json("optimizer.moments=bfloat16");
  EXPECT_EQ(exact["moments"], "float32");
  EXPECT_EQ(rounded["moments"], "bfloat16");
  const int64_t saved = exact["memory"]["optimizer"].get<int64_t>() / 2;
  EXPECT_EQ(rounded["memory"]["optimizer"], saved);
  // The copies of a save have the moments' dtype, too.
  const auto without_copies = [](const Json& plan) {
    return plan["memory"]["total"].get<int64_t>() - plan["memory"]["snapshot"].get<int64_t>();
  };
  EXPECT_EQ(without_copies(rounded), without_copies(exact) - saved);
  EXPECT_EQ(rounded["memory"]["snapshot"], exact["memory"]["snapshot"].get<int64_t>() * 2 / 3);
  EXPECT_EQ(rounded["checkpoint"]["bytes"], exact["checkpoint"]["bytes"].get<int64_t>() * 2 / 3);
  EXPECT_EQ(plan().out.find("optimizer.moments"), std::string::npos);
  EXPECT_HAS(plan("optimizer.moments=bfloat16").out, " with optimizer.moments = \"bfloat16\"\n");
  // Exactly the memory of the run with bfloat16 moments.
  const std::string memory =
      fmt::format(" --search --device-memory {}KiB", rounded["memory"]["total"].get<int64_t>() / 1024 + 1);
  const Json found = plan_json("optimizer.moments=bfloat16" + memory);
  EXPECT_EQ(found["rows"][0]["moments"], "bfloat16");
  EXPECT_LE(found["rows"][0]["memory"]["total"], rounded["memory"]["total"]);

  expect_success(run_program("train " + config() + " optimizer.moments=bfloat16"));
  const MetricsLog log = read_metrics(run() / "metrics.jsonl");
  EXPECT_EQ(log.ends.at(0).measured.memory[MemoryCategory::kOptimizer], saved);
  EXPECT_EQ(log.ends.at(0).measured.memory, log.ends.at(0).planned.memory);
  const ProgramRun inspected = run_program("checkpoint inspect " + run().string());
  EXPECT_HAS(inspected.out, "  moments     bfloat16\n");
  EXPECT_EQ(Json::parse(run_program("checkpoint inspect --json " + run().string()).out)["moments"],
            "bfloat16");
  EXPECT_EQ(run_program("checkpoint verify " + run().string()).exit_code, 0);
}

// Options of a job of 6 ranks, with a memory that some meshes and micro-batches exceed.
class PlanSearch : public PlanCommand {
 protected:
  void SetUp() override {
    PlanCommand::SetUp();
    const Json all = search(" --limit 1000");
    ASSERT_GT(all["fitting"], 10) << all;
    EXPECT_TRUE(all["fits"].is_null());
    EXPECT_TRUE(all["rows"][0]["device_share"].is_null());
    int64_t least = all["rows"][0]["memory"]["total"], most = least;
    for (const Json& row : all["rows"]) {
      least = std::min(least, row["memory"]["total"].get<int64_t>());
      most = std::max(most, row["memory"]["total"].get<int64_t>());
    }
    job_ += fmt::format(" --device-memory {}KiB", (least + most) / 2 / 1024);
    fitting_of_any_memory_ = all["fitting"];
  }
  Json search(const std::string& more) const { return plan_json(job_ + " --search" + more); }
  // The plan of the mesh and micro-batch of a row.
  Json plan_of(const Json& row) const {
    return plan_json(
        fmt::format("{} mesh.replicate={} mesh.fsdp={} mesh.tensor={} train.micro_batch_sequences={}", job_,
                    row["mesh"]["replicate"].get<int64_t>(), row["mesh"]["fsdp"].get<int64_t>(),
                    row["mesh"]["tensor"].get<int64_t>(), row["micro_batch_sequences"].get<int64_t>()));
  }

  std::string job_ = "--nodes 3 --ntasks-per-node 2 --device cpu";
  int64_t fitting_of_any_memory_ = 0;
};

// The keys that a row of a search shares with a plan.
Json shared_keys(const Json& row) {
  Json shared;
  for (const char* key :
       {"mesh", "micro_batch_sequences", "micro_batches_per_step", "idle_share", "recompute",
        "recomputed_share", "reshard_after_forward", "memory", "traffic_per_step"})
    shared[key] = row.at(key);
  return shared;
}

TEST_F(PlanSearch, RowsAreWhatPlanSays) {
  const Json found = search("");
  EXPECT_EQ(found["fits"], true);
  EXPECT_LT(found["fitting"], fitting_of_any_memory_);
  const Json& rows = found["rows"];
  ASSERT_GT(rows.size(), 3U) << found;
  ASSERT_LE(rows.size(), 10U);
  for (const Json& row : rows) {
    EXPECT_EQ(shared_keys(row), shared_keys(plan_of(row)));
    EXPECT_LE(row["device_share"], 1.0);
    const Json& traffic = row["traffic_per_step"];
    EXPECT_EQ(row["sent_per_step"]["inside_nodes"].get<int64_t>() +
                  row["sent_per_step"]["between_nodes"].get<int64_t>(),
              traffic["replicate"].get<int64_t>() + traffic["fsdp"].get<int64_t>() +
                  traffic["tensor"].get<int64_t>());
  }
  // Two rows differ, so the comparison can fail.
  EXPECT_NE(shared_keys(rows[0]), shared_keys(plan_of(rows[1])));
}

TEST_F(PlanSearch, TheTableHasRowsAndLinesToPaste) {
  const Json found = search("");
  const Json& best = found["rows"][0];
  const ProgramRun shown =
      expect_success(plan(job_ + " --search train.global_batch_sequences=32 'log.every_steps=3'"));
  const std::string mesh =
      fmt::format("{} x {} x {} ", best["mesh"]["replicate"].get<int64_t>(),
                  best["mesh"]["fsdp"].get<int64_t>(), best["mesh"]["tensor"].get<int64_t>());
  EXPECT_HAS(shown.out, "6 ranks (3 nodes of 2), each with ");
  EXPECT_HAS(shown.out, mesh);
  EXPECT_HAS(
      shown.out,
      fmt::format("\n[mesh]\nreplicate = {}\nfsdp = {}\ntensor = {}\n\n[train]\n"
                  "micro_batch_sequences = {}\nrecompute = \"none\"\n",
                  best["mesh"]["replicate"].get<int64_t>(), best["mesh"]["fsdp"].get<int64_t>(),
                  best["mesh"]["tensor"].get<int64_t>(), best["micro_batch_sequences"].get<int64_t>()));
  EXPECT_HAS(
      shown.out,
      "\n#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=2\n#SBATCH --cpus-per-task=1\nsrun ripstop train " +
          config() + " train.global_batch_sequences=32 log.every_steps=3\n");
  EXPECT_HAS(shown.out,
             "\nsbatch --nodes=3 --ntasks-per-node=2 --cpus-per-task=1 slurm/train.sbatch " + config() + " ");
  const ProgramRun two = plan(job_ + " --search --limit 2");
  EXPECT_HAS(two.out, fmt::format("\n{} more fit; --limit {} shows all\n",
                                  found["fitting"].get<int64_t>() - 2, found["fitting"].get<int64_t>()));
  // The command of the document gives the best row.
  const std::string command = found["command"];
  ASSERT_EQ(command.rfind("ripstop train " + config() + " ", 0), 0U) << command;
  const ProgramRun same =
      expect_success(run_program("plan " + command.substr(std::string("ripstop train ").size()) + " " + job_ +
                                 " --cpus-per-task 1 --json"));
  EXPECT_EQ(shared_keys(best), shared_keys(Json::parse(same.out)));
}

// A search ignores sizes in the file, which may be of another job, and keeps sizes on the command line.
TEST_F(PlanSearch, OnlyTheCommandLineRestrictsIt) {
  const Json free = search(" --limit 1000");
  write_bytes(scratch_ / "config.toml", read_bytes(scratch_ / "config.toml") +
                                            "[mesh]\nreplicate = 3\nfsdp = 5\ntensor = 2\npipeline = 2\n");
  std::string with_mode = read_bytes(scratch_ / "config.toml");
  const size_t train = with_mode.find("[train]\n");
  ASSERT_NE(train, std::string::npos);
  write_bytes(scratch_ / "config.toml", with_mode.insert(train + 8, "recompute = \"full\"\n"));
  EXPECT_EQ(search(" --limit 1000")["rows"], free["rows"]);
  const Json pairs = search(" --limit 1000 mesh.tensor=2"), twos = search(" train.micro_batch_sequences=2");
  for (const Json& row : pairs["rows"]) EXPECT_EQ(row["mesh"]["tensor"], 2);
  for (const Json& row : twos["rows"]) EXPECT_EQ(row["micro_batch_sequences"], 2);
  const Json cut = search(" --limit 1000 mesh.pipeline_stages_per_rank=1");
  ASSERT_FALSE(cut["rows"].empty());
  for (const Json& row : cut["rows"])
    EXPECT_EQ(row["mesh"]["pipeline"], 2) << "the cut is that of a pipeline";
  const Json full = search(" --limit 1000 train.recompute=full");
  for (const Json& row : full["rows"]) EXPECT_EQ(row["recompute"], "full");
  EXPECT_HAS(full["command"].get<std::string>(), " train.recompute=full");
  // Nodes of 3 ranks cannot hold tensor groups of 2: ignored in the file, refused on the command line.
  const std::string threes = "--nodes 2 --ntasks-per-node 3 --device cpu --search";
  const Json ones = plan_json(threes);
  for (const Json& row : ones["rows"]) EXPECT_EQ(row["mesh"]["tensor"], 1);
  expect_exit(plan(threes + " mesh.tensor=2"), 78, "mesh.tensor = 2 does not divide the 3 ranks of a node");
  expect_exit(plan(job_ + " --search mesh.fsdp=5"), 78, "needs 5 ranks, got 6");
}

TEST_F(PlanSearch, NothingFitsIsRefusedWithWhatWould) {
  const ProgramRun nothing = plan("--nodes 3 --ntasks-per-node 2 --search --json --device-memory 1MiB");
  expect_exit(nothing, 78, "with 6 ranks as now, ");
  const Json document = Json::parse(nothing.out);
  EXPECT_EQ(document["fits"], false);
  EXPECT_EQ(document["would_fit"]["least"]["ranks"], 6);
  EXPECT_LE(document["would_fit"]["least"]["mesh"]["tensor"], 2);
  // The given micro-batch is too large: the hint names smaller ones.
  expect_exit(plan(job_ + " --search train.micro_batch_sequences=32"), 78, "these fit: ");
  expect_exit(plan("--limit 3"), 64, "did you mean --search --limit?");
}

}  // namespace
}  // namespace ripstop
