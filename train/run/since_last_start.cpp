#include "train/run/since_last_start.h"

#include <set>

#include "train/plan/micro_batch.h"
#include "train/plan/run_speed.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// What decides the cost of a step.
struct Layout {
  MeshSizes mesh;
  int64_t nodes = 0;
  int64_t micro_batch = 0;    // sequences; 0: the log does not tell
  int64_t micro_batches = 0;  // of a data rank in a step
  std::string recompute;
  double idle_share = 0;
  int64_t memory_bytes = 0;
  TrafficBytes sent;

  int64_t sent_bytes() const { return sent.replicate + sent.fsdp + sent.tensor; }
};

int64_t distinct(const std::vector<std::string>& hosts) {
  return static_cast<int64_t>(std::set<std::string>(hosts.begin(), hosts.end()).size());
}

double idle_share(const RunConfig& config, const MeshSizes& mesh, int64_t micro_batch) {
  if (micro_batch == 0) return 0;
  return 1 - static_cast<double>(config.train.global_batch_sequences) /
                 static_cast<double>(computed_sequences(config, mesh, micro_batch));
}

Layout layout_of(const StartEvent& start, const RunConfig& config) {
  const MeshSizes mesh{start.replicate, start.fsdp, start.tensor};
  return {.mesh = mesh,
          .nodes = distinct(start.hosts),
          .micro_batch = start.micro_batch_sequences,
          .micro_batches = start.micro_batches,
          .recompute = start.recompute,
          .idle_share = idle_share(config, mesh, start.micro_batch_sequences),
          .memory_bytes = start.plan.memory.total(),
          .sent = start.plan.traffic_per_step};
}

Layout layout_of(const ResolvedRun& run, const std::vector<std::string>& hosts) {
  const DeviceMesh::AxisBytes& sent = run.plan.traffic_per_step;
  return {.mesh = run.mesh,
          .nodes = distinct(hosts),
          .micro_batch = run.step.sharding.sequence_count,
          .micro_batches = run.micro_batches,
          .recompute = std::string(to_string(run.step.sharding.recompute)),
          .idle_share = run.idle_share,
          .memory_bytes = run.memory().total(),
          .sent = {.replicate = sent.replicate, .fsdp = sent.fsdp, .tensor = sent.tensor}};
}

// What a rank's time brings: tokens that are neither empty nor computed twice.
double useful_share(const Layout& layout, const ResolvedRun& run) {
  double again = 0;
  for (const Recompute mode : kRecomputes)
    if (to_string(mode) == layout.recompute)
      again = recomputed_flops_per_token(run.model, run.step.sharding.sequence_length, mode).causal /
              run.flops_per_token().causal;
  return (1 - layout.idle_share) / (1 + again);
}

std::string speed_text(const LastStart& before, const Layout& was, const Layout& is, const ResolvedRun& run) {
  if (!before.tokens_per_second) return "not known: the last start made no step";
  const std::string measured = fmt::format("{:.0f} tok/s before", *before.tokens_per_second);
  if (was.mesh.tensor != is.mesh.tensor || was.micro_batch == 0)
    return fmt::format("{}; that of this mesh is not known yet", measured);
  const double expected = *before.tokens_per_second * static_cast<double>(is.mesh.ranks()) /
                          static_cast<double>(was.mesh.ranks()) * useful_share(is, run) /
                          useful_share(was, run);
  return fmt::format("{}, about {:.0f} expected if a rank is as fast as before", measured, expected);
}

std::string micro_batch_text(const Layout& layout) {
  if (layout.micro_batch == 0) return "not known";
  return fmt::format("{} in {} a step", counted(layout.micro_batch, "sequence"), layout.micro_batches);
}

}  // namespace

std::optional<LastStart> last_start(const std::filesystem::path& metrics) {
  MetricsLog log;
  try {
    log = read_metrics(metrics);
  } catch (const Error&) {  // no file, or no log: then nothing is known
    return std::nullopt;
  }
  if (log.starts.empty()) return std::nullopt;
  return LastStart{.event = log.starts.back(), .tokens_per_second = median_speed_of_last_start(log)};
}

std::vector<std::string> lines_since(const LastStart& before, const RunConfig& config, const ResolvedRun& run,
                                     const std::vector<std::string>& hosts) {
  const Layout was = layout_of(before.event, config), is = layout_of(run, hosts);
  std::vector<std::string> lines;
  const auto add = [&](const char* name, const std::string& old_text, const std::string& new_text) {
    if (old_text != new_text) lines.push_back(fmt::format("  {:<12} {} -> {}", name, old_text, new_text));
  };
  const auto nodes = [](const Layout& layout) {
    return fmt::format("{} of {} in all", counted(layout.nodes, "node"),
                       counted(layout.mesh.ranks(), "rank"));
  };
  add("nodes", nodes(was), nodes(is));
  add("mesh", was.mesh.to_text(), is.mesh.to_text());
  add("micro-batch", micro_batch_text(was), micro_batch_text(is));
  add("recompute", was.recompute, is.recompute);
  if (lines.empty()) return {};
  const auto percent = [](double share) { return fmt::format("{:.1f}%", 100 * share); };
  if (was.micro_batch > 0) add("idle", percent(was.idle_share), percent(is.idle_share));
  add("memory", bytes_text(was.memory_bytes), bytes_text(is.memory_bytes) + " of the fullest rank");
  add("sent", bytes_text(was.sent_bytes()), bytes_text(is.sent_bytes()) + " a rank and step");
  lines.push_back(fmt::format("  {:<12} {}", "speed", speed_text(before, was, is, run)));
  lines.insert(lines.begin(), "since the last start:");
  lines.push_back(fmt::format("  as before: {} a step, the order of the data, the learning rate",
                              counted(config.train.global_batch_sequences, "sequence")));
  return lines;
}

}  // namespace ripstop
