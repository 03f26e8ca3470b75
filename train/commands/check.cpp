#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "parallel/agreement.h"
#include "parallel/mpi_world.h"
#include "train/check/mesh_check.h"
#include "train/commands/check_report.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/end_failed.h"
#include "train/machine/device_choice.h"
#include "train/machine/equal_ranks.h"
#include "train/machine/peak_flops.h"
#include "train/plan/pretrained_sizes.h"
#include "train/plan/resolved_run.h"
#include "train/report/human_text.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

// The vocabulary size that is assumed if none is known.
constexpr int64_t kUsualVocabulary = 32000;

struct CheckArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  int64_t minutes = 5;
  bool small = false;
  bool json = false;
};

struct CheckedRun {
  RunConfig config;
  Device device;
  RunTarget target;
  ResolvedRun run;
  std::vector<std::string> notes;
};

// The vocabulary size of the first data set; 0 if its train.h5 is not found. Collective.
int64_t dataset_vocabulary(const RunConfig& config, Communicator& world) {
  return from_rank_0(world, [&]() -> int64_t {
    const std::filesystem::path file = std::filesystem::path(config.data.first()) / "train.h5";
    std::error_code error;
    return std::filesystem::exists(file, error) ? TokenDataset(file).header().vocabulary_size : 0;
  });
}

// Loads the config, and throws if programs or configs differ between ranks. Collective.
RunConfig agreed_config(const CheckArguments& given, MpiWorld& world) {
  const RunConfig config = load_run_config(given.config_file, given.overrides);
  Communicator& all = world.communicator();
  const std::string& where = world.places()[static_cast<size_t>(all.rank())].host;
  require_equal_programs(all, where);
  require_equal_configs(all, config, where);
  return config;
}

// Resolves the run as train would with these ranks. If the vocabulary is not known, assumes kUsualVocabulary
// and adds a note. Collective.
CheckedRun resolve(const CheckArguments& given, MpiWorld& world) {
  Communicator& all = world.communicator();
  CheckedRun checked;
  RunConfig& config = checked.config = agreed_config(given, world);
  std::string device_note;
  checked.device = choose_device(config.run.device, world, &device_note);
  checked.device.deterministic = config.run.deterministic;
  if (!device_note.empty()) checked.notes.push_back(device_note);
  const int64_t vocabulary = dataset_vocabulary(config, all);
  if (config.model.pretrained.empty() && config.model.vocab_size == 0 && vocabulary == 0) {
    config.model.vocab_size = kUsualVocabulary;
    checked.notes.push_back(fmt::format("no data set at {} '{}' says how many ids there are: {} are assumed",
                                        config.data.key(), config.data.first(), kUsualVocabulary));
  }
  checked.target = run_target(world, checked.device, vocabulary);
  do_and_agree(all, [&] { read_pretrained_for_plan(config, checked.target); });
  config = checked.target.with_ends(config);
  checked.run = resolve_run(config, checked.target);
  for (const std::string& note : checked.run.notes) checked.notes.push_back(note);
  return checked;
}

// Throws if the checked model or its batches differ between ranks: collectives would hang. Collective.
void require_equal_settings(const CheckSettings& settings, MpiWorld& world) {
  Communicator& all = world.communicator();
  const ShardingOptions& sharding = settings.step.sharding;
  require_equal(all, ExitCode::kResources, "the checked model",
                fmt::format("{}, {} of {} in {}, recompute {}, {}", fields_text(settings.model),
                            counted(sharding.sequence_count, "sequence"), sharding.sequence_length,
                            to_string(sharding.compute), to_string(sharding.recompute),
                            sharding.lora.any() ? adapters_text(sharding.lora) : "no adapters"),
                world.places()[static_cast<size_t>(all.rank())].host,
                "use nodes of one kind, and make the same files visible on all of them");
}

// The limits that memory and --minutes set on what one rank may compute alone. Collective.
CheckLimits limits_of(const CheckArguments& given, const CheckedRun& checked, MpiWorld& world) {
  // Rough estimates: the share of its peak FLOP/s that a rank reaches; the FLOP/s of a rank of unknown peak.
  constexpr double kUsualShare = 0.3;
  constexpr double kUnknownFlops = 1e13;
  CheckLimits limits{.memory_bytes = checked.target.device_memory_bytes,
                     .flops = 0,
                     .flops_text = counted(given.minutes, "minute"),
                     .small = given.small};
  if (given.small) return limits;
  const std::optional<PeakFlops> peak =
      find_peak_flops(world, checked.device, checked.run.step.sharding.compute);
  const double per_second =
      peak ? kUsualShare * peak->per_second / static_cast<double>(checked.target.ranks) : kUnknownFlops;
  limits.flops = 60 * static_cast<double>(given.minutes) * per_second;
  return limits;
}

// Checks the ranks along each axis as a mesh of their own. Collective.
std::vector<AxisCheck> check_axes_alone(const DeviceMesh& mesh, const CheckSettings& settings,
                                        const Device& device, const CheckLimits& limits) {
  std::vector<AxisCheck> axes;
  for (const MeshAxis axis : kMeshAxes) {
    const int64_t ranks = mesh.sizes()[axis];
    // An axis with all ranks is the whole mesh, which is checked already.
    if (ranks == 1 || ranks == mesh.ranks()) continue;
    AxisCheck check{.axis = axis, .ranks = ranks, .holds = {}};
    DeviceMesh alone = mesh.along(axis, settings.step.sharding.stages_per_rank);
    if (!limits.memory_bytes || check_bytes(settings, alone.sizes()) <= *limits.memory_bytes) {
      const bool holds = check_mesh(alone, settings, device).holds();
      // Each group of ranks along the axis has a verdict; all verdicts must hold.
      check.holds = all_ranks(mesh.world(), holds);
    }
    axes.push_back(check);
  }
  return axes;
}

// A note for each axis along which rank 0 sent more or fewer bytes than planned.
std::vector<std::string> traffic_notes(const CheckReport& report) {
  std::vector<std::string> notes;
  for (const MeshAxis axis : kMeshAxes) {
    const int64_t bytes = report.verdict.sent[axis];
    int64_t planned = 0;
    for (const SentByOperation& each : report.sent)
      if (each.axis == to_string(axis)) planned += each.bytes;
    if (bytes != planned)
      notes.push_back(fmt::format("rank 0 sent {} bytes along {} in the last step, {} were planned", bytes,
                                  to_string(axis), planned));
  }
  return notes;
}

CheckReport examine_mesh(const CheckArguments& given, MpiWorld& world) {
  CheckedRun checked = resolve(given, world);
  const CheckLimits limits = limits_of(given, checked, world);
  const CheckSettings settings =
      choose_check(checked.run, checked.device.kind, static_cast<uint64_t>(checked.config.run.seed), limits);
  require_equal_settings(settings, world);
  // Sets a long deadline, because ranks that compute alone may finish at very different times.
  world.set_deadline(std::max<double>(600, 120 * static_cast<double>(given.minutes)));
  DeviceMesh mesh(world, checked.run.mesh, checked.config.mesh.allow_tensor_across_nodes, checked.device,
                  checked.config.mesh.pipeline_stages_per_rank);
  CheckReport report{.config_file = given.config_file,
                     .settings = settings,
                     .verdict = check_mesh(mesh, settings, checked.device),
                     .sent = sent_by_operation(settings.request(mesh.sizes()), mesh.coordinates()),
                     .axes_alone = {},
                     .notes = std::move(checked.notes)};
  for (const std::string& note : report.verdict.notes) report.notes.push_back(note);
  for (std::string& note : traffic_notes(report)) report.notes.push_back(std::move(note));
  if (!report.verdict.holds()) report.axes_alone = check_axes_alone(mesh, settings, checked.device, limits);
  return report;
}

ExitCode run_check(const CheckArguments& given) {
  MpiWorld world(world_options("check"));
  return world.run([&] {
    const CheckReport report = examine_mesh(given, world);
    if (world.communicator().rank() == 0)
      print_out("{}\n", given.json ? check_document(report) : check_text(report));
    if (report.verdict.holds()) return ExitCode::kOk;
    throw Error(ExitCode::kNumerics,
                fmt::format("{} does not compute what one rank computes: {}", report.verdict.mesh.to_text(),
                            report.verdict.complaint()),
                suspects_text(report));
  });
}

}  // namespace

void add_check(CommandLine& line) {
  Verb verb = line.verb("check", "whether this mesh of ranks computes what one rank computes");
  verb.add_details(
      "Takes two optimizer steps of two micro-batches (two for each rank of a pipeline) of the config's "
      "model on "
      "the mesh that is started, and the same on\neach rank alone, and compares loss, gradients and updated "
      "weights. If the model is too "
      "large for one rank, one of\nthe same shape takes its place. Needs no data set and writes nothing. "
      "Ends "
      "with 77 if something differs.");
  const auto given = std::make_shared<CheckArguments>();
  verb.path("CONFIG", given->config_file, "TOML file").required();
  verb.option("overrides", given->overrides, "section.key=value, stronger than the file");
  verb.flag("--small", given->small, "a small model of the same shape at once; takes seconds");
  verb.option("--minutes", given->minutes,
              "the longest that one rank may compute alone, estimated; a smaller model is taken if it would "
              "be more")
      .range(1, 1440)
      .show_default();
  verb.flag("--json", given->json, "one JSON document");
  verb.set_example(
      "srun ripstop check configs/xsum-scratch.toml mesh.tensor=8\n"
      "  slurm/launch.sh 4 ripstop check configs/quickstart.toml");
  verb.set_action([given] { return run_check(*given); });
}

}  // namespace ripstop
