// Measures the steps of `ripstop train` on random tokens, without data set, logs and checkpoints: writing the
// last checkpoint of a large model takes longer than the measurement.
//   slurm/launch.sh 1 build/cuda/tests/bench/training_bench --model llama2-7b --positions 2048 --sequences 32
// The model is a preset with untied embeddings, or with --layers a part of it. Every sequence is one document
// unless --documents is given; of several numbers, as in 1,8, each is measured in turn. Prints one JSON
// object for each: tokens per second of the median step, seconds of the slowest tenth of the steps, model
// FLOPs by 6 P + 6 L C T (with --lora-rank 4 P + 6 A + 6 L C T), seconds a step of rank 0's communication
// that were not hidden, losses, memory; with --rates or --paced-flops also the planned time of a step, and of
// a paced pipeline the seconds of its stages and messages.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "model/device/range_recorder.h"
#include "parallel/agreement.h"
#include "tests/bench/paced_kernels.h"
#include "tests/bench/rank_bench.h"
#include "train/machine/device_choice.h"
#include "train/machine/rank_speed.h"
#include "train/plan/resolved_run.h"
#include "train/run/kernel_plans.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  RunConfig config;
  std::string device = "auto", dtype = "bfloat16", model = "debug", recompute = "auto";
  int64_t micro_batch = 0, steps = 4, warmup = 2;
  std::vector<int64_t> documents{1};
  bool random_documents = false, unprepared = false, trace = false;
  std::string rates;  ///< --rates
  double paced_flops = 0, paced_memory = 1e12;
};

/// Where the documents of a micro-batch begin: each sequence has `documents` of about equal length, or with
/// `random` up to so many of random lengths.
std::vector<int32_t> document_offsets(const ResolvedRun& run, int64_t documents, bool random,
                                      std::mt19937& generator) {
  const auto positions = static_cast<int32_t>(run.step.sharding.sequence_length);
  std::vector<int32_t> offset{0};
  for (int64_t s = 0; s < run.step.sharding.sequence_count; ++s) {
    const auto begin = static_cast<int32_t>(s * positions);
    std::set<int32_t> cuts{positions};
    if (random) {
      const int64_t cut = std::uniform_int_distribution<int64_t>(0, documents - 1)(generator);
      std::uniform_int_distribution<int32_t> place(1, positions - 1);
      for (int64_t d = 0; d < cut; ++d) cuts.insert(place(generator));
    } else {
      for (int64_t d = 1; d < documents; ++d) cuts.insert(static_cast<int32_t>(d * positions / documents));
    }
    for (const int32_t cut : cuts) offset.push_back(begin + cut);
  }
  return offset;
}

/// Micro-batches of random tokens, `count` of them.
class RandomTokens {
 public:
  RandomTokens(const ResolvedRun& run, int64_t documents, bool random, int64_t data_rank, int64_t count)
      : uniform_(0, static_cast<int32_t>(run.model.vocab_size - 1)),
        generator_(static_cast<uint32_t>(17 + data_rank)) {
    for (int64_t i = 0; i < count; ++i)
      offsets_.push_back(document_offsets(run, documents, random, generator_));
  }

  /// The documents of all micro-batches, for prepare_kernels.
  DocumentCounts documents() const {
    DocumentCounts counts;
    for (const std::vector<int32_t>& offset : offsets_) {
      DocumentSizes sizes{.count = std::ssize(offset) - 1};
      for (size_t d = 1; d < offset.size(); ++d)
        sizes.longest = std::max<int64_t>(sizes.longest, offset[d] - offset[d - 1]);
      ++counts[sizes];
    }
    return counts;
  }

  HostTokens next() {
    const std::vector<int32_t>& offset = offsets_.at(next_++);
    position_.clear();
    for (size_t d = 0; d + 1 < offset.size(); ++d)
      for (int32_t row = offset[d]; row < offset[d + 1]; ++row) position_.push_back(row - offset[d]);
    token_.resize(position_.size());
    target_.resize(position_.size());
    for (auto& id : token_) id = uniform_(generator_);
    for (auto& id : target_) id = uniform_(generator_);
    return {token_, position_, target_, offset};
  }

 private:
  std::uniform_int_distribution<int32_t> uniform_;
  std::mt19937 generator_;
  std::vector<std::vector<int32_t>> offsets_;
  size_t next_ = 0;
  std::vector<int32_t> token_, position_, target_;
};

Options parse(int argc, char** argv) {
  Options o;
  RunConfig& c = o.config;
  c.data.sequence_length = 256;
  c.train.global_batch_sequences = 8;
  int64_t fsdp = 0, layers = 0, vocabulary = 0;
  CLI::App app("speed of training steps on random tokens");
  app.add_option("--model", o.model, "preset of the model");
  app.add_option("--positions", c.data.sequence_length, "positions of a sequence")
      ->check(CLI::PositiveNumber);
  app.add_option("--sequences", c.train.global_batch_sequences, "sequences of a step, over all ranks")
      ->check(CLI::PositiveNumber);
  app.add_option("--micro-batch", o.micro_batch, "sequences of a micro-batch; default: as many as fit");
  app.add_option("--layers", layers, "layers of the model; default: all of the preset")
      ->check(CLI::PositiveNumber);
  app.add_option("--vocabulary", vocabulary, "words of the model; default: those of the preset")
      ->check(CLI::PositiveNumber);
  app.add_flag("--deterministic", c.run.deterministic, "sums in a fixed order");
  app.add_option("--documents", o.documents, "documents of each sequence; several numbers take turns")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_flag("--random-documents", o.random_documents,
               "up to --documents of random lengths, others in each micro-batch");
  app.add_flag("--trace", o.trace,
               "record every second step, as run.profile_steps does, and print both times");
  app.add_flag("--unprepared", o.unprepared, "make plans of attention in the steps that need them");
  app.add_option("--rates", o.rates, "file of doctor --output: plan the time of the step beside it");
  app.add_option("--paced-flops", o.paced_flops,
                 "compute nothing, but wait as on a machine of so many FLOP/s; plan with its measured links")
      ->check(CLI::PositiveNumber);
  app.add_option("--paced-memory", o.paced_memory, "and of so many bytes/s")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "timed steps")->check(CLI::PositiveNumber);
  app.add_option("--warmup", o.warmup, "steps before the timed ones");
  app.add_option("--device", o.device)->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--recompute", o.recompute)->check(CLI::IsMember({"auto", "none", "selective", "full"}));
  app.add_option("--fsdp", fsdp, "ranks of the fsdp axis; default: all that are left");
  app.add_option("--tensor", c.mesh.tensor, "ranks of the tensor axis");
  app.add_option("--pipeline", c.mesh.pipeline, "ranks of the pipeline axis");
  app.add_option("--stages-per-rank", c.mesh.pipeline_stages_per_rank, "stages on each of them");
  app.add_option("--replicate", c.mesh.replicate, "ranks of the replicate axis");
  app.add_option("--lora-rank", c.lora.rank, "train adapters of this rank on the targets of attention");
  app.add_option("--lora-dropout", c.lora.dropout, "dropout of their inputs");
  bool all_targets = false;
  app.add_flag("--lora-all", all_targets, "on all seven targets");
  parse_or_exit(app, argc, argv);
  c.lora.alpha = static_cast<double>(2 * c.lora.rank);
  if (all_targets) c.lora.targets.fill(true);
  set_model_of_preset(c, o.model);
  if (layers > 0) c.model.num_hidden_layers = layers;
  if (vocabulary > 0) c.model.vocab_size = vocabulary;
  if (o.micro_batch > 0) c.train.micro_batch_sequences = o.micro_batch;
  if (fsdp > 0) c.mesh.fsdp = fsdp;
  c.run.device = o.device == "cpu"    ? DeviceChoice::kCpu
                 : o.device == "cuda" ? DeviceChoice::kCuda
                                      : DeviceChoice::kAuto;
  c.precision.compute = o.dtype == "float32" ? FloatChoice::kFloat32 : FloatChoice::kBfloat16;
  for (const RecomputeChoice choice :
       {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull})
    if (to_string(choice) == o.recompute) c.train.recompute = choice;
  c.optimizer.learning_rate = 3e-4;
  return o;
}

/// Initial weights. A unit of a size that an earlier one has gets a copy of its weights on the device: to
/// draw 7 billion takes a minute, and steps of equal layers take as long.
void draw_weights(ShardedTransformer& model, const Stream& stream) {
  const std::span<FsdpUnit> units = model.units();
  for (size_t u = 0; u < units.size(); ++u) {
    const auto drawn = std::find_if(units.begin(), units.end(), [&](const FsdpUnit& unit) {
      return unit.layout().shard_elements() == units[u].layout().shard_elements();
    });
    if (&*drawn == &units[u]) {
      model.initialize(1, units.subspan(u, 1));
      continue;
    }
    const auto copy = [&](const Tensor& from, const Tensor& to) {
      if (!to.empty()) copy_bytes(stream, to.data, from.data, to.bytes());
    };
    copy(drawn->master(), units[u].master());
    copy(drawn->compute_copy(), units[u].compute_copy());
    units[u].weights_changed();
  }
}

/// Measurements of the steps with one number of documents.
struct Measured {
  std::vector<double> seconds, losses;
  std::vector<double> traced_seconds;  ///< of recorded steps, which are not in `seconds`
  AxisSeconds before, after;           ///< the time waited for communication
  KernelPlans plans;
};

Measured measure(TrainingStep& step, DeviceMesh& mesh, const ResolvedRun& run, const Options& options,
                 RangeRecorder& recorder, int64_t documents) {
  Measured m;
  const int64_t steps = options.warmup + options.steps;
  RandomTokens tokens(run, documents, options.random_documents, mesh.data_rank(), steps * run.micro_batches);
  // The same as in train, but for the documents of this rank alone.
  if (!options.unprepared) m.plans = prepare_kernels(step.model(), tokens.documents(), {});
  for (int64_t s = 1; s <= steps; ++s) {
    if (s == options.warmup + 1) m.before = mesh.seconds_waited();
    const bool traced = options.trace && s % 2 == 0;
    if (traced) recorder.start();
    const Clock::time_point begin = Clock::now();
    const StepResult result = step.run(
        run.micro_batches, [&](int64_t) { return tokens.next(); }, options.config.optimizer.learning_rate,
        {s}, [] { return false; });
    m.losses.push_back(result.loss);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (s > options.warmup) (traced ? m.traced_seconds : m.seconds).push_back(seconds);
    if (traced) recorder.stop();
  }
  m.after = mesh.seconds_waited();
  return m;
}

/// A pipeline of paced ranks: the seconds that kernels take for a micro-batch on each rank, of the
/// `step_seconds` of this rank's kernels in a step, and those of a message between stages. Null for other
/// steps. Collective.
nlohmann::ordered_json paced_pipeline(MpiWorld& world, TrainingStep& step, const DeviceMesh& mesh,
                                      const ResolvedRun& run, const std::optional<Rates>& rates,
                                      const PacedKernels* paced, double step_seconds) {
  if (paced == nullptr || run.mesh.pipeline == 1) return nullptr;
  RandomTokens tokens(run, 1, /*random=*/false, mesh.data_rank(), run.micro_batches);
  const double before = paced->seconds();
  step.evaluate(
      run.micro_batches, [&](int64_t) { return tokens.next(); }, [] { return false; });
  const auto each = [&](double seconds) { return seconds / static_cast<double>(run.micro_batches); };
  const double own = each(paced->seconds() - before);
  std::vector<double> forward = of_all_ranks(world.communicator(), own),
                      backward = of_all_ranks(world.communicator(), each(step_seconds) - own);
  for (std::vector<double>* of_ranks : {&forward, &backward}) {
    for (int64_t p = 0; p < run.mesh.pipeline; ++p)
      (*of_ranks)[p] = (*of_ranks)[p * run.mesh.fsdp * run.mesh.tensor];
    of_ranks->resize(run.mesh.pipeline);
  }
  const ShardingOptions& sharding = run.step.sharding;
  const int64_t bytes = sharding.sequence_count * sharding.sequence_length / run.mesh.tensor *
                        run.model.hidden_size * element_bytes(sharding.compute);
  const LinkRate link = rates->between_nodes ? *rates->between_nodes : *rates->inside_node;
  return {{"ranks", run.mesh.pipeline},
          {"micro_batches", run.micro_batches},
          {"ahead", sharding.pipeline_ahead},
          {"forward", forward},
          {"backward", backward},
          {"message", static_cast<double>(bytes) / link.bytes_per_second},
          {"latency", link.latency_seconds}};
}

/// The rates of `--rates`, or of a paced machine: its messages are real, and waiting slows no computing.
std::optional<Rates> rates_of(MpiWorld& world, const Options& options, const Device& device) {
  if (!options.rates.empty()) return read_rates(options.rates);
  if (options.paced_flops == 0) return std::nullopt;
  Rates rates;
  rates.flops_per_second = options.paced_flops;
  rates.memory_bytes_per_second = options.paced_memory;
  const LinkRates links = measure_links(world, world.communicator(), device);
  for (auto [link, found] : {std::pair{&rates.inside_node, links.inside_node},
                             std::pair{&rates.between_nodes, links.between_nodes}}) {
    *link = found;
    if (*link) (*link)->compute_share = 1;
  }
  return rates;
}

/// The planned time of a step, as JSON; null without rates.
nlohmann::ordered_json planned_json(const std::optional<Rates>& rates, const ResolvedRun& run,
                                    DeviceKind kind, int64_t ranks_per_node, int64_t documents) {
  if (!rates) return nullptr;
  const StepTime time = plan_step_time(run.request(kind), *rates, ranks_per_node,
                                       {1, run.step.sharding.sequence_length / documents});
  return {{"seconds", time.seconds}, {"exposed_seconds", time.exposed_seconds}, {"left_out", time.left_out}};
}

void report(const ResolvedRun& run, const Options& options, DeviceMesh& mesh, const Device& device,
            const MemoryLedger& ledger, int64_t documents, const Measured& m,
            const nlohmann::ordered_json& planned, const nlohmann::ordered_json& pipeline) {
  const RunConfig& config = options.config;
  std::vector<double> seconds = m.seconds;
  AxisSeconds exposed = m.after - m.before;
  for (const MeshAxis axis : kMeshAxes) exposed[axis] /= static_cast<double>(options.steps);
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const int64_t rows =
      run.micro_batches * mesh.data_ranks() * run.step.sharding.sequence_count * config.data.sequence_length;
  const double rate = static_cast<double>(rows) / median;
  const auto slow = std::max<ptrdiff_t>(std::ssize(seconds) / 10, 1);
  const double slowest =
      std::accumulate(seconds.end() - slow, seconds.end(), 0.0) / static_cast<double>(slow);
  const double flops = run.flops_per_token().causal;
  const nlohmann::ordered_json json{{"model", options.model},
                                    {"device", to_string(device)},
                                    {"mesh", run.mesh.to_text()},
                                    {"lora_rank", config.lora.rank},
                                    {"trained_parameters", run.trained_parameters()},
                                    {"dtype", to_string(run.step.sharding.compute)},
                                    {"positions", config.data.sequence_length},
                                    {"documents_per_pack", documents},
                                    {"random_documents", options.random_documents},
                                    {"micro_batch", run.step.sharding.sequence_count},
                                    {"micro_batches", run.micro_batches},
                                    {"recompute", to_string(run.step.sharding.recompute)},
                                    {"tokens_per_step", rows},
                                    {"step_seconds", median},
                                    {"planned", planned},
                                    {"pipeline", pipeline},
                                    {"slowest_tenth_seconds", slowest},
                                    {"all_step_seconds", seconds},
                                    {"all_traced_step_seconds", m.traced_seconds},
                                    {"kernel_plans", m.plans.count},
                                    {"kernel_plans_seconds", m.plans.seconds},
                                    {"tokens_per_second", rate},
                                    {"model_gflops", rate * flops * 1e-9},
                                    {"exposed_seconds", exposed},
                                    {"loss", m.losses.back()},
                                    {"losses", m.losses},
                                    {"activation_bytes", ledger.peak()[MemoryCategory::kActivations]},
                                    {"peak_bytes", ledger.peak().total()}};
  fmt::print("{}\n", json.dump());
  std::fflush(stdout);
}

ExitCode bench(MpiWorld& world, const Options& options) {
  Device device = choose_device(options.config.run.device, world);
  device.deterministic = options.config.run.deterministic;
  const ResolvedRun run = resolve_run(options.config, run_target(world, device, /*dataset_vocabulary=*/0));
  DeviceMesh mesh(world, run.mesh, /*allow_tensor_across_nodes=*/false, device,
                  run.step.sharding.stages_per_rank);
  const std::optional<Rates> rates = rates_of(world, options, device);
  std::optional<PacedKernels> paced;
  if (options.paced_flops > 0) paced.emplace(*rates);
  Stream stream(device, /*urgent=*/false, paced ? &*paced : nullptr);
  RangeRecorder recorder;
  if (options.trace) {
    world.record_into(&recorder);
    stream.record_into(&recorder);
  }
  MemoryLedger ledger;
  const RankPlan plan = plan_rank(run.request(device.kind), mesh.coordinates());
  TrainingStep step(run.model, run.step, mesh, stream, ledger, plan.arena);
  draw_weights(step.model(), stream);
  for (const int64_t documents : options.documents) {
    const double before = paced ? paced->seconds() : 0;
    const Measured measured = measure(step, mesh, run, options, recorder, documents);
    const double paced_seconds =
        ((paced ? paced->seconds() : 0) - before) / static_cast<double>(options.warmup + options.steps);
    const nlohmann::ordered_json pipeline =
        paced_pipeline(world, step, mesh, run, rates, paced ? &*paced : nullptr, paced_seconds);
    if (world.communicator().rank() == 0)
      report(run, options, mesh, device, ledger, documents, measured,
             planned_json(rates, run, device.kind, world.ranks_here(), documents), pipeline);
  }
  world.record_into(nullptr);
  return ExitCode::kOk;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  return ripstop::main_of_ranks(argc, argv, ripstop::parse, ripstop::bench);
}
