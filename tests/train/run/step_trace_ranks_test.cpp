// Traces of whole runs on real ranks: every event of every rank's file, the steps' times, what collectives
// send, and that losses stay the same.
#include "train/run/step_trace.h"

#include <nlohmann/json.hpp>

#include <map>
#include <regex>
#include <set>

#include "tests/expect_has.h"
#include "tests/train/commands/small_dataset.h"
#include "tests/train/shared_directory.h"
#include "tests/train/step/mesh_training.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

constexpr const char* kTracedRun = R"(
[run]
directory = "RUN"
device = "cpu"
[model]
hidden_size = 32
intermediate_size = 44
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 4
max_position_embeddings = 160
[data]
directory = "DATA"
sequence_length = 160
[train]
steps = 4
global_batch_sequences = 4
validate_every = 3
[optimizer]
learning_rate = 1e-3
[checkpoint]
every_steps = 2
[log]
every_steps = 1
)";

// Every name that a trace of a training run has.
const std::regex kKnownNames(
    "step [0-9]+|micro-batch [0-9]+|wait for (data|save)|sums and update|update|validation|sum of pieces|"
    "(begin|commit) save|save of step [0-9]+( \\(goes on\\))?|"
    "(vocabulary|embedding|head|layers\\.[0-9]+) (forward|backward|forward and backward|reduce)|"
    "(attention|mlp|embedding|head) (forward|forward again|backward|forward and backward)|"
    "(wait )?(world|replicate|pipeline|fsdp|tensor) "
    "(all_gather|send|receive|reduce_scatter|all_reduce|exchange|broadcast|all_gather_text|barrier)");

class StepTraceRanks : public SharedDirectory {
 protected:
  void fill(const std::filesystem::path& directory) override {
    write_bytes(directory / "tokenizer.model", small_model());
    write_small_dataset(directory / "train.h5", 100, 60);
    write_small_dataset(directory / "validation.h5", 0, 8);
  }
  std::filesystem::path trace_of(const std::string& run) const { return directory_ / run / kTraceFolder; }

  ExitCode train(const std::string& run, const MeshSizes& mesh, const std::string& profile_steps,
                 int64_t stop_after = 0) {
    std::string text = kTracedRun;
    text.replace(text.find("RUN"), 3, (directory_ / run).string());
    text.replace(text.find("DATA"), 4, directory_.string());
    text += fmt::format("[mesh]\nreplicate = {}\nfsdp = {}\ntensor = {}\n", mesh.replicate, mesh.fsdp,
                        mesh.tensor);
    said_.clear();
    bool stops = false;
    const auto say = [&](const std::string& line) {
      said_ += line + "\n";
      stops = stops || (stop_after > 0 && line.starts_with(fmt::format("step {}/", stop_after)));
    };
    const std::vector<std::string> overrides{"run.profile_steps=\"" + profile_steps + "\""};
    return Trainer::make({.config = parse_run_config(text, "test", overrides),
                          .argv = {},
                          .say = say,
                          .stop_requested = [&] { return stops; }},
                         test_world())
        ->run();
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> result;
    for (const StepMetrics& step : metrics(run).steps) result.push_back(step.loss);
    return result;
  }
  MetricsLog metrics(const std::string& run) const {
    return read_metrics(directory_ / run / "metrics.jsonl");
  }

  std::string said_;
};

// Checks every event: members, names, that times of a track ascend, and that its ranges nest.
void check_events(const Json& trace, const std::set<int64_t>& pids) {
  const std::set<std::string> categories{"range", "wait", "collective", "save"};
  std::set<std::pair<int64_t, int64_t>> named;
  std::set<int64_t> processes;
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> ends;  // of the ranges that are open
  std::map<std::pair<int64_t, int64_t>, int64_t> last;
  for (const Json& event : trace.at("traceEvents")) {
    const auto pid = event.at("pid").get<int64_t>(), tid = event.at("tid").get<int64_t>();
    const auto name = event.at("name").get<std::string>();
    ASSERT_TRUE(pids.contains(pid)) << event;
    if (event.at("ph") == "M") {
      if (name == "process_name") processes.insert(pid);
      if (name == "thread_name") named.insert({pid, tid});
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    ASSERT_TRUE(named.contains(std::pair(pid, tid))) << event;
    ASSERT_TRUE(std::regex_match(name, kKnownNames)) << event;
    const auto category = event.at("cat").get<std::string>();
    ASSERT_TRUE(categories.contains(category)) << event;
    ASSERT_EQ(category == "collective", event.contains("args")) << event;
    ASSERT_EQ(tid == 0, category == "range" || category == "wait") << event;
    const auto ts = event.at("ts").get<int64_t>(), end = ts + event.at("dur").get<int64_t>();
    ASSERT_GE(ts, 0);
    ASSERT_GE(end, ts);
    int64_t& before = last[std::pair(pid, tid)];
    ASSERT_GE(ts, before) << event;
    before = ts;
    std::vector<int64_t>& open = ends[std::pair(pid, tid)];
    while (!open.empty() && open.back() <= ts) open.pop_back();
    ASSERT_TRUE(open.empty() || end <= open.back()) << event;
    ASSERT_TRUE(open.empty() || tid == 0) << "only ranges of the main thread nest: " << event;
    open.push_back(end);
  }
  EXPECT_EQ(processes, pids);
}

std::map<std::string, const Json*> by_name(const Json& trace) {
  std::map<std::string, const Json*> result;
  for (const Json& event : trace.at("traceEvents")) result.emplace(event.at("name"), &event);
  return result;
}

// Bytes that the collectives which begin in `step` send along each axis.
AxisBytes sent_in(const Json& trace, const Json& step) {
  AxisBytes sent;
  const int64_t begin = step.at("ts"), end = begin + step.at("dur").get<int64_t>();
  for (const Json& event : trace.at("traceEvents"))
    if (event.value("cat", "") == "collective" && event.at("ts") >= begin && event.at("ts") < end)
      for (const MeshAxis axis : kMeshAxes)
        if (event.at("args").at("axis") == to_string(axis))
          sent[axis] += event.at("args").at("bytes").get<int64_t>();
  return sent;
}

TEST_F(StepTraceRanks, EveryRankWritesItsStepsOnEveryMesh) {
  Communicator& world = test_world().communicator();
  for (const MeshSizes& mesh : mesh_training::meshes_of(world.size())) {
    if (world.size() == 4 && mesh.fsdp != 2) continue;  // fewer ranks have the others
    SCOPED_TRACE(mesh.to_text());
    const std::string run = fmt::format("traced {}", mesh.to_text()), plain = "plain " + mesh.to_text();
    ASSERT_EQ(train(run, mesh, "2-4"), ExitCode::kOk);
    ASSERT_EQ(train(plain, mesh, ""), ExitCode::kOk);
    if (world.rank() > 0) continue;
    EXPECT_EQ(losses(run), losses(plain)) << "bit for bit";
    EXPECT_FALSE(std::filesystem::exists(trace_of(plain)));
    std::set<int64_t> pids;
    for (int64_t rank = 0; rank < world.size(); ++rank) {
      const Json trace = Json::parse(read_bytes(trace_of(run) / trace_file_name(rank)));
      check_events(trace, {rank});
      pids.insert(rank);
      const auto events = by_name(trace);
      for (const char* name : {"step 2", "step 3", "step 4", "validation", "layers.1 backward", "update",
                               "wait for data", "save of step 2"})
        EXPECT_TRUE(events.contains(name) || events.contains(std::string(name) + " (goes on)")) << name;
      EXPECT_FALSE(events.contains("step 1"));
      if (rank > 0) continue;
      const MetricsLog log = metrics(run);
      for (const StepMetrics& step : log.steps) {
        if (step.step == 1) continue;
        EXPECT_NEAR((*events.at(fmt::format("step {}", step.step)))["dur"].get<double>(),
                    1e6 * step.step_seconds, 1.01)
            << "the same calls of the clock, in whole microseconds";
      }
      EXPECT_EQ(sent_in(trace, *events.at("step 4")), log.ends.back().measured.traffic_per_step);
    }
    const MergedTraces merged = merge_traces(posix_io(), trace_of(run), directory_ / "merged.json");
    EXPECT_EQ(merged.ranks, world.size());
    EXPECT_EQ(merged.facts.clock_error_us, 0) << "one node has one clock";
    EXPECT_TRUE(merged.problems.empty());
    check_events(Json::parse(read_bytes(directory_ / "merged.json")), pids);
  }
}

// A stop inside the steps writes what there is; the next start replaces it by the rest. A trace that cannot
// be written is a warning.
TEST_F(StepTraceRanks, StopsResumesAndDisks) {
  Communicator& world = test_world().communicator();
  const MeshSizes mesh{.fsdp = world.size()};
  const auto steps = [&] {
    const Json facts =
        Json::parse(read_bytes(trace_of("stopped") / trace_file_name(world.rank())))["otherData"];
    return facts["first_step"].dump() + "-" + facts["last_step"].dump();
  };
  ASSERT_EQ(train("stopped", mesh, "2-4", /*stop_after=*/2), ExitCode::kRequeue);
  EXPECT_EQ(steps(), "2-3");
  ASSERT_EQ(train("stopped", mesh, "2-4"), ExitCode::kOk);
  EXPECT_EQ(steps(), "4-4");
  world.barrier();
  ASSERT_EQ(train("blocked", mesh, "3-4", /*stop_after=*/1), ExitCode::kRequeue);
  if (world.rank() == 0) write_bytes(directory_ / "blocked" / kTraceFolder, "a file in its way");
  world.barrier();
  ASSERT_EQ(train("blocked", mesh, "3-4"), ExitCode::kOk);
  if (world.rank() > 0) return;
  EXPECT_HAS(said_, "warning: the trace of rank 0 was not written");
}

}  // namespace
}  // namespace ripstop
