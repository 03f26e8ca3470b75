#include "train/commands/plan_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "data/process/shell_word.h"
#include "train/plan/plan_text.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// "1024 ranks (128 nodes of 8), 80.0 GiB each, of which CUDA's libraries take 3.0 GiB".
std::string job_line(const ResolvedRun& run, const RunTarget& target, const SearchedJob& job) {
  std::string text = fmt::format("{} ({} of {})", counted(target.ranks, "rank"), counted(job.nodes, "node"),
                                 job.ranks_per_node);
  if (!target.device_memory_bytes)
    return text + "; --device-memory, as in 80GiB, would leave out what does not fit";
  return text + ", each with " + device_memory_text(run, *target.device_memory_bytes);
}

std::string table_row(const ResolvedRun& run, const RunTarget& target) {
  const SentBytes sent = sent_bytes(run.plan.traffic_per_step, run.mesh, target.ranks_per_node);
  const std::optional<double> share = device_share(run, target);
  return fmt::format("{:>25}  {:>11}  {:>6}  {:>6}  {:>9}  {:>10}  {:>6}  {:>10}  {:>10}\n",
                     axes_text(" x ", [&](MeshAxis axis) { return std::to_string(run.mesh[axis]); }),
                     run.step.sharding.sequence_count, run.micro_batches,
                     fmt::format("{:.1f}%", 100 * run.idle_share), to_string(run.step.sharding.recompute),
                     bytes_text(run.memory().total()), share ? fmt::format("{:.1f}%", 100 * *share) : "-",
                     bytes_text(sent.inside_nodes), bytes_text(sent.between_nodes));
}

// Whether an override is of a size that a search decides.
bool is_searched_key(const std::string& override_text) {
  const std::string key = override_text.substr(0, override_text.find_first_of(" ="));
  return key == "train.micro_batch_sequences" || key == "train.recompute" ||
         std::ranges::any_of(kMeshAxisWords,
                             [&](const char* axis) { return key == "mesh." + std::string(axis); });
}

// The lines for the first row.
std::string lines_to_paste(const ResolvedRun& run, const RunTarget& target, const SearchedJob& job) {
  const std::vector<std::string> options = sbatch_options(job, target);
  return fmt::format(
      "\nThe first one, for {}:\n\n[mesh]\n{}\n\n[train]\n"
      "micro_batch_sequences = {}\nrecompute = \"{}\"\n\n"
      "For a job file of yours:\n\n#SBATCH {}\nsrun ripstop {}\n\n"
      "Or with ripstop's job file:\n\nsbatch {} slurm/train.sbatch {}\n",
      job.config_file,
      axes_text("\n", [&](MeshAxis axis) { return fmt::format("{} = {}", to_string(axis), run.mesh[axis]); }),
      run.step.sharding.sequence_count, to_string(run.step.sharding.recompute),
      fmt::join(options, "\n#SBATCH "), train_words(job), fmt::join(options, " "),
      train_words(job).substr(std::string("train ").size()));
}

}  // namespace

std::vector<std::string> sbatch_options(const SearchedJob& job, const RunTarget& target) {
  std::vector<std::string> options{fmt::format("--nodes={}", job.nodes),
                                   fmt::format("--ntasks-per-node={}", job.ranks_per_node)};
  if (target.device == DeviceKind::kCuda)
    options.push_back(fmt::format("--gpus-per-node={}", job.ranks_per_node));
  if (job.cpus_per_task > 0) options.push_back(fmt::format("--cpus-per-task={}", job.cpus_per_task));
  return options;
}

std::string train_words(const SearchedJob& job) {
  std::string text = "train " + shell_word(job.config_file);
  for (const std::string& word : job.overrides)
    if (!is_searched_key(word)) text += " " + shell_word(word);
  return text;
}

std::string mesh_overrides(const ResolvedRun& run) {
  const auto words = [&](MeshAxis axis) {
    return fmt::format("mesh.{}={}", to_string(axis), run.mesh[axis]);
  };
  return fmt::format("{} train.micro_batch_sequences={} train.recompute={}", axes_text(" ", words),
                     run.step.sharding.sequence_count, to_string(run.step.sharding.recompute));
}

std::optional<double> device_share(const ResolvedRun& run, const RunTarget& target) {
  if (!target.device_memory_bytes) return std::nullopt;
  return static_cast<double>(run.memory().total() + run.library_bytes) /
         static_cast<double>(*target.device_memory_bytes);
}

std::string search_text(const MeshSearch& found, const RunTarget& target, const SearchedJob& job) {
  const auto shown = static_cast<int64_t>(found.rows.size());
  std::string text = fmt::format(
      "{}\n"
      "Best first: the fewest percent lost (idle, or computed again), then the fewest bytes between nodes, "
      "then\n"
      "the fewest in all (up to {:.0f}% more are as few), then the larger micro-batch.\n\n"
      "{:>25}  {:>11}  {:>6}  {:>6}  {:>9}  {:>18}  {:>22}\n"
      "{:>25}  {:>11}  {:>6}  {:>6}  {:>9}  {:>10}  {:>6}  {:>10}  {:>10}\n",
      job_line(found.rows.front(), target, job), 100 * (kAsFewBytes - 1), "", "", "", "", "",
      "the fullest rank", "a rank sends in a step", fmt::format("{}", fmt::join(kMeshAxisWords, " x ")),
      "micro-batch", "a step", "idle", "recompute", "memory", "share", "in a node", "between");
  for (const ResolvedRun& run : found.rows) text += table_row(run, target);
  if (found.fitting > shown)
    text += fmt::format("{} more fit; --limit {} shows all\n", found.fitting - shown, found.fitting);
  return text + lines_to_paste(found.rows.front(), target, job);
}

}  // namespace ripstop
