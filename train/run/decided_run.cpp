#include "train/run/decided_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "data/dataset/dataset_directory.h"
#include "model/device/cuda_machine.h"
#include "parallel/agreement.h"
#include "parallel/rank_device.h"
#include "train/machine/device_choice.h"
#include "train/machine/equal_ranks.h"
#include "train/plan/plan_text.h"
#include "train/plan/run_length.h"
#include "train/plan/training_data.h"

namespace ripstop {
namespace {

// Where the model's sizes come from, as rank 0 finds it; nullopt without model.pretrained. Collective.
std::optional<PretrainedOrigin> pretrained_origin(const RunConfig& config, Communicator& world) {
  if (config.model.pretrained.empty()) return std::nullopt;
  PretrainedOrigin origin;
  do_on_rank_0(world, [&] { origin = find_pretrained_origin(posix_io(), config); });
  origin.has_begun = of_rank_0(world, origin.has_begun);
  origin.directory = text_of_rank_0(world, origin.directory.string());
  return origin;
}

// Collective.
std::filesystem::path continued_checkpoint(const RunConfig& config, Communicator& world) {
  if (config.run.continue_from.empty()) return {};
  return from_rank_0(world, [&] { return find_continued(posix_io(), config).string(); });
}

// Throws if ranks differ in decisions or data, because they would hang in different collectives. Collective.
void require_equal_decisions(const DecidedRun& run) {
  Communicator& world = run.ranks->world();
  const std::string where = run.host();
  const ShardingOptions& sharding = run.step.sharding;
  // All of this may depend on the processor's bfloat16 arithmetic, in which nodes may differ.
  require_equal(
      world, ExitCode::kResources, "micro-batch",
      fmt::format("{} sequences in {}, recompute {}, {} rows of logits at once", sharding.sequence_count,
                  to_string(sharding.compute), to_string(sharding.recompute), sharding.head_chunk_rows),
      where, "give train.micro_batch_sequences and train.recompute, or use nodes of one kind");
  if (run.mesh.pipeline > 1)
    require_equal(
        world, ExitCode::kResources, "pipeline",
        fmt::format("stages of {} layers, {} ahead, units {}", fmt::join(sharding.stage_layers, ", "),
                    sharding.pipeline_ahead, units_text(sharding.reshard_after_forward)),
        where, "give mesh.pipeline_layers and train.reshard_after_forward, or use nodes of one kind");
  const std::string same_data = fmt::format("make the same {} visible on every node", run.config.data.key());
  require_equal(world, ExitCode::kInputData, "data set", content_hashes(run.datasets), where, same_data);
  require_equal(world, ExitCode::kInputData, "validation set", content_hashes(run.validation), where,
                same_data);
}

// Reads sizes and end tokens of the model in `directory` into `target`. Collective.
void read_pretrained_facts(const std::filesystem::path& directory, Communicator& world,
                           const std::string& where, RunTarget& target) {
  do_and_agree(world, [&] {
    target.pretrained = read_model_sizes(posix_io(), directory);
    target.pretrained_ends = read_model_ends(posix_io(), directory);
  });
  // Ranks with different model sizes would hang in different collectives.
  require_equal(world, ExitCode::kInputData, "the pretrained model",
                fmt::format("{}, eos_token_id {}", fields_text(*target.pretrained), target.pretrained_ends),
                where, kSamePretrainedHint);
}

// The rows by which layers are cut into stages; the verb plan computes the same.
StepRows rows_of_first_epoch(RunConfig config, DataSets datasets) {
  config.train.epochs.reset();
  config.train.steps = 1;
  return rows_of(count_training_data(datasets, config), config.data.sequence_length);
}

}  // namespace

DecidedRun decide_run(const RunConfig& given, MpiWorld& world, StartTimes& times) {
  Communicator& all = world.communicator();
  const std::string& where = world.places()[static_cast<size_t>(all.rank())].host;
  require_equal_programs(all, where);
  require_equal_configs(all, given, where);

  times.enter(&StartupSeconds::data);
  Tokenizer tokenizer(dataset_tokenizer(given.data.first()));
  std::vector<TokenDataset> datasets = open_training_sets(given, tokenizer);
  tokenizer.carry_questions(question_choice(datasets));

  times.enter(&StartupSeconds::memory);
  std::string device_note;
  Device device = choose_device(given.run.device, world, &device_note);
  device.deterministic = given.run.deterministic;
  // The GPUs are examined before any rank uses its GPU.
  const std::vector<std::string> complaints = device_complaints(world, device);
  std::filesystem::path continued = continued_checkpoint(given, all);
  std::optional<PretrainedOrigin> origin = pretrained_origin(given, all);
  RunTarget target = run_target(world, device, datasets.front().header().vocabulary_size);
  if (origin) read_pretrained_facts(origin->directory, all, where, target);
  const RunConfig config = target.with_ends(given);
  if (*config.mesh.pipeline > 1) target.rows = rows_of_first_epoch(config, datasets);
  ResolvedRun resolved = resolve_run(config, target);
  std::ranges::move(tokenizer.notes(), std::back_inserter(resolved.notes));
  if (origin && !origin->has_begun)
    if (std::string note = end_tokens_note(config, target.pretrained_ends, tokenizer); !note.empty())
      resolved.notes.push_back(std::move(note));
  if (!device_note.empty()) resolved.notes.push_back(device_note);
  if (resolved.mesh.pipeline > 1 && device.kind == DeviceKind::kCuda)
    if (std::string note = launch_order_note(look_at_cuda().libraries.front().found); !note.empty())
      resolved.notes.push_back(std::move(note));
  constexpr size_t kMostComplaints = 8;
  for (size_t i = 0; i < std::min(complaints.size(), kMostComplaints); ++i)
    resolved.notes.push_back(complaints[i]);
  if (complaints.size() > kMostComplaints)
    resolved.notes.push_back(fmt::format("{} more such notes on GPUs: ripstop doctor has them all",
                                         complaints.size() - kMostComplaints));
  // The free memory is measured before the mesh, whose communicators allocate device memory.
  const LibraryMemory library_memory(device);

  times.enter(&StartupSeconds::mpi);
  auto ranks = std::make_unique<DeviceMesh>(world, resolved.mesh, config.mesh.allow_tensor_across_nodes,
                                            device, config.mesh.pipeline_stages_per_rank);

  times.enter(&StartupSeconds::data);
  std::vector<ValidationSet> validation;
  do_and_agree(ranks->world(), [&] { validation = open_validation_sets(config, resolved, tokenizer); });
  DecidedRun run{std::move(resolved),   config,         std::move(tokenizer), std::move(datasets),
                 std::move(validation), device,         std::move(target),    std::move(origin),
                 std::move(continued),  library_memory, std::move(ranks)};
  require_equal_decisions(run);
  if (!any_set(run.validation)) plan_without_validations(run, run.target.device);
  return run;
}

}  // namespace ripstop
