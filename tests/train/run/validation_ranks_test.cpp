// Validation during training, on real ranks: every mesh gives the same scores, and a stop request between a
// step and its validation loses nothing.
#include "train/run/validation.h"

#include <map>

#include "tests/expect_error.h"
#include "tests/train/commands/small_dataset.h"
#include "tests/train/shared_directory.h"
#include "tests/train/step/mesh_training.h"
#include "train/checkpoint/manifest.h"
#include "train/generate/write_texts.h"
#include "train/report/metrics.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

constexpr int64_t kValidated = 11;

constexpr const char* kConfig = R"(
[run]
directory = "RUN"
[model]
hidden_size = 32
intermediate_size = 44
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 4
max_position_embeddings = 160
initializer_range = 0.5
[data]
directory = "DATA"
sequence_length = 160
[train]
steps = 6
global_batch_sequences = 4
validate_every = 2
[optimizer]
learning_rate = 1e-3
[precision]
compute = "float32"
[checkpoint]
every_steps = 3
keep_best = "rougeL"
[log]
every_steps = 1
[generation]
max_new_tokens = 60
validate_examples = 11
)";

/// Every mesh of the ranks at hand, and pipelines.
std::vector<MeshSizes> all_meshes() {
  const int64_t ranks = test_world().communicator().size();
  std::vector<MeshSizes> meshes = mesh_training::meshes_of(ranks);
  if (ranks == 2) meshes.push_back({1, 1, 1, 2});
  if (ranks == 4) meshes.insert(meshes.end(), {{1, 2, 1, 2}, {1, 1, 2, 2}, {2, 1, 1, 2}});
  return meshes;
}

class ValidationRanks : public SharedDirectory {
 protected:
  void fill(const std::filesystem::path& directory) override {
    write_bytes(directory / "tokenizer.model", small_model());
    write_small_dataset(directory / "train.h5", 100, 60);
    write_small_dataset(directory / "validation.h5", 0, 13);
    std::filesystem::create_directories(directory / "b");
    write_bytes(directory / "b/tokenizer.model", small_model());
    write_small_dataset(directory / "b/train.h5", 300, 20);
    write_small_dataset(directory / "b/validation.h5", 400, 5);
  }

  RunConfig config(const std::string& run, const MeshSizes& mesh,
                   const std::vector<std::string>& overrides = {}) const {
    std::string text = kConfig;
    text.replace(text.find("RUN"), 3, (directory_ / run).string());
    text.replace(text.find("DATA"), 4, directory_.string());
    text += fmt::format("[mesh]\nreplicate = {}\nfsdp = {}\ntensor = {}\n", mesh.replicate, mesh.fsdp,
                        mesh.tensor);
    RunConfig config = parse_run_config(text, "test", overrides);
    config.mesh.pipeline = mesh.pipeline;
    return config;
  }
  ResolvedRun resolved(const RunConfig& config, int64_t ranks) const {
    return resolve_run(config,
                       run_target(ranks, DeviceKind::kCpu, std::nullopt, tokenizer_.vocabulary_size()));
  }

  /// The scores of the initial weights on a mesh of this world.
  ValidationScores scores_on(const MeshSizes& sizes) const {
    const RunConfig config = this->config("unused", sizes);
    const ResolvedRun run = resolved(config, sizes.ranks());
    DeviceMesh mesh(test_world(), sizes);
    const Stream stream(Device::cpu());
    MemoryLedger ledger;
    const RankPlan plan = plan_rank(run.request(DeviceKind::kCpu), mesh.coordinates());
    TrainingStep step(run.model, run.step, mesh, stream, ledger, plan.arena);
    step.model().initialize(5);
    const std::vector<ValidationSet> sets = open_validation_sets(config, run, tokenizer_);
    Validation validation(sets, config, run, tokenizer_, mesh);
    validation.connect(test_world(), Device::cpu());
    EXPECT_TRUE(validation.any());
    const MemoryUse before = ledger.peak();
    std::map<std::string, std::pair<int64_t, int64_t>> shown;
    const auto report = [&](std::string_view part, int64_t done, int64_t total) {
      shown[std::string(part)] = {done, total};
    };
    const std::optional<ValidationScores> scores = validation.measure(
        step, ledger, [] { return false; }, report);
    for (const char* part : {"sequences", "summaries"}) {
      EXPECT_GT(shown[part].second, 0) << part;
      EXPECT_EQ(shown[part].first, shown[part].second) << part;
    }
    EXPECT_EQ(ledger.peak().total() - before.total(),
              plan_inference(run.model, *run.summaries, run.summaries_mesh(),
                             mesh_coordinates(run.summaries_mesh(), mesh.position()), DeviceKind::kCpu)
                  .memory.total());
    EXPECT_FALSE(validation.measure(
        step, ledger, [&] { return mesh.world().rank() == 0; }, report))
        << "a stop request on one rank ends it";
    return *scores;
  }

  /// Trains. After step `after` a stop is requested on rank 0. The trainer notices it in the validation of
  /// that step if there is one, else in the next step.
  ExitCode train(const std::string& run, const MeshSizes& mesh, int64_t after,
                 const std::vector<std::string>& overrides = {}) const {
    int64_t last_step = -1;
    const auto say = [&](const std::string& line) {
      if (line.rfind("step ", 0) == 0 && line.find('/') != std::string::npos)
        last_step = std::stoll(line.substr(5));
    };
    return Trainer::make({.config = config(run, mesh, overrides),
                          .argv = {},
                          .say = say,
                          .stop_requested = [&] { return after > 0 && last_step == after; }},
                         test_world())
        ->run();
  }
  MetricsLog metrics(const std::string& run) const {
    return read_metrics(directory_ / run / "metrics.jsonl");
  }
  CheckpointState state(const std::string& run, int64_t step) const {
    Io io;
    return read_manifest(io, directory_ / run / "checkpoints" / step_directory_name(step)).state;
  }

  Tokenizer tokenizer_{small_model(), "small"};
};

/// The scores of an unsharded model that writes one summary at a time.
RougeScores scores_of_one_rank(const ResolvedRun& run, const Tokenizer& tokenizer,
                               const TokenDataset& dataset, const GenerationSettings& settings) {
  DeviceMesh mesh = DeviceMesh::planned({1, 1, 1}, {});
  const Stream stream(Device::cpu());
  MemoryLedger ledger;
  InferenceOptions options = *run.summaries;
  options.slots = 1;
  const InferencePlan plan = plan_inference(run.model, options, {1, 1, 1}, {}, DeviceKind::kCpu);
  InferenceModel model(run.model, options, mesh, stream, ledger, plan.arena);
  model.model().initialize(5);
  RougeMean mean;
  int64_t next = 0;
  write_texts(
      model, tokenizer, settings,
      [&]() -> std::optional<DocumentPrompt> {
        if (next == kValidated) return std::nullopt;
        const int64_t example = next++;
        return DocumentPrompt{stored_prompt(dataset, example, 100), example};
      },
      [&](const WrittenText& written) {
        mean.add(rouge(dataset.text(mean.examples(), 1).front().summary, written.text));
      });
  return mean.mean();
}

TEST_F(ValidationRanks, ScoresDoNotDependOnTheMesh) {
  const RunConfig config = this->config("unused", {1, 1, 1});
  const RougeScores expected = scores_of_one_rank(
      resolved(config, 1), tokenizer_, TokenDataset(directory_ / "validation.h5"), config.generation);
  EXPECT_GT(expected.rouge1.fmeasure, 0);
  double first_loss = 0;
  for (const MeshSizes& mesh : all_meshes()) {
    SCOPED_TRACE(mesh.to_text());
    const ValidationScores scores = scores_on(mesh);
    ASSERT_TRUE(scores.rouge);
    EXPECT_EQ(scores.rouge->rouge1.fmeasure, expected.rouge1.fmeasure);
    EXPECT_EQ(scores.rouge->rouge_l.recall, expected.rouge_l.recall);
    if (first_loss == 0) first_loss = scores.loss;
    EXPECT_NEAR(scores.loss, first_loss, 1e-5 * first_loss);
  }
}

// Losses of each set are those of one rank, whatever the mesh; texts are divided by the weights.
TEST_F(ValidationRanks, SetsHaveTheirOwnScoresOnEveryMesh) {
  const auto of_sets = [&](const std::string& name, const MeshSizes& mesh) {
    RunConfig config = this->config(name, mesh, {"train.steps=2", "checkpoint.keep_best=\"loss\""});
    config.data.directory.clear();
    config.data.directories = {directory_.string(), (directory_ / "b").string()};
    config.data.weights = {3, 1};
    return config;
  };
  std::vector<double> first;
  for (const MeshSizes& mesh : mesh_training::meshes_of(test_world().communicator().size())) {
    SCOPED_TRACE(mesh.to_text());
    const std::string name = fmt::format("sets{}", mesh.to_text());
    ASSERT_EQ(Trainer::make({.config = of_sets(name, mesh), .argv = {}, .say = {}, .stop_requested = {}},
                            test_world())
                  ->run(),
              ExitCode::kOk);
    if (test_world().communicator().rank() > 0) continue;
    const MetricsLog log = metrics(name);
    std::vector<double> found;
    for (const StepMetrics& step : log.steps) {
      int64_t tokens = 0;
      for (const SetStep& set : step.sets.value()) {
        found.push_back(set.tokens > 0 ? set.loss : 0);
        tokens += set.tokens;
      }
      EXPECT_EQ(tokens, step.tokens);
    }
    const ValidationEvent& scores = log.validations.at(0);
    const SetScores &a = scores.sets.value().at(0), &b = scores.sets->at(1);
    EXPECT_NEAR(scores.loss, 0.75 * a.loss + 0.25 * b.loss, 1e-12);
    EXPECT_NEAR(*scores.rouge1, 0.75 * *a.rouge1 + 0.25 * *b.rouge1, 1e-12);
    EXPECT_FALSE(scores.samples->empty());
    for (const SetScores* set : {&a, &b}) found.push_back(set->loss), found.push_back(*set->rougeL);
    if (first.empty()) first = found;
    for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(found.at(i), first[i], 1e-5 * first[i]) << i;
  }
  const RunConfig alone = of_sets("unused", {1, 1, 1});
  const std::vector<ValidationSet> sets = open_validation_sets(alone, resolved(alone, 1), tokenizer_);
  EXPECT_EQ(sets.at(0).summaries, 9) << "8 and the remainder of 11";
  EXPECT_EQ(sets.at(1).summaries, 2);
}

// On every mesh, with one and two stages on each rank of a pipeline. Every pair of values of the other three
// settings occurs.
TEST_F(ValidationRanks, WeightsAreHandedOverWhole) {
  for (const MeshSizes& sizes : all_meshes())
    for (const int64_t stages_per_rank : {1, 2})
      for (const bool tied : {false, true})
        for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
          if (stages_per_rank > 1 && sizes.pipeline == 1) continue;
          const bool reshard = tied == (compute == DType::kFloat32);
          SCOPED_TRACE(fmt::format("{}, {} stages a rank{} {} {}", sizes.to_text(), stages_per_rank,
                                   tied ? ", tied" : "", to_string(compute), reshard));
          RunConfig config = this->config("unused", sizes, {"model.num_hidden_layers=4"});
          config.mesh.pipeline_stages_per_rank = stages_per_rank;
          ResolvedRun run = resolved(config, sizes.ranks());
          run.model.tie_word_embeddings = tied;
          run.step.sharding.compute = run.summaries->compute = compute;
          run.step.sharding.reshard_after_forward = reshard;
          DeviceMesh mesh(test_world(), sizes, /*allow_tensor_across_nodes=*/false, Device::cpu(),
                          stages_per_rank);
          DeviceMesh whole_mesh(test_world(), run.summaries_mesh());
          const Stream stream(Device::cpu());
          MemoryLedger ledger;
          const RankPlan plan = plan_rank(run.request(DeviceKind::kCpu), mesh.coordinates());
          TrainingStep step(run.model, run.step, mesh, stream, ledger, plan.arena);
          const auto make = [&] {
            const InferencePlan writer = plan_inference(run.model, *run.summaries, whole_mesh.sizes(),
                                                        whole_mesh.coordinates(), DeviceKind::kCpu);
            return std::make_unique<InferenceModel>(run.model, *run.summaries, whole_mesh, stream, ledger,
                                                    writer.arena);
          };
          const auto copied = make(), expected = make();
          for (const uint64_t seed : {5, 6}) {  // the second time, weights that stayed unsharded are old
            step.model().initialize(seed);
            expected->model().initialize(seed);
            step.model().copy_weights_to(copied->model());
            for (size_t u = 0; u < expected->model().units().size(); ++u) {
              const auto bytes = [&](InferenceModel& model) {
                const FsdpUnit& unit = model.model().units()[u];
                const Tensor& t = unit.compute_copy().empty() ? unit.master() : unit.compute_copy();
                return std::string(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
              };
              ASSERT_EQ(bytes(*copied), bytes(*expected)) << "unit " << u << " seed " << seed;
            }
          }
        }
}

// An error on one rank comes at once on all, not after the deadline of a collective.
TEST_F(ValidationRanks, ARankWithoutTheSetIsRefused) {
  Communicator& world = test_world().communicator();
  RunConfig config = this->config("differs", mesh_training::meshes_of(world.size()).front());
  if (world.rank() == 1) {
    std::filesystem::create_directories(directory_ / "elsewhere");
    for (const char* file : {"train.h5", "tokenizer.model"})
      std::filesystem::copy(directory_ / file, directory_ / "elsewhere" / file);
    config.data.directory = (directory_ / "elsewhere").string();
  }
  const auto make = [&] {
    Trainer::make({.config = config, .argv = {}, .say = {}, .stop_requested = {}}, test_world());
  };
  if (world.size() == 1) return make();  // one rank differs from nobody
  EXPECT_HAS(error_of(make).what(), "differs between ranks");
}

// Stops the run in the validation of step 2, before the validation of step 4, and before that of the last
// step.
TEST_F(ValidationRanks, AStopLosesNoValidation) {
  const MeshSizes mesh = mesh_training::meshes_of(test_world().communicator().size()).back();
  ASSERT_EQ(train("unbroken", mesh, 0), ExitCode::kOk);
  ASSERT_EQ(train("stopped", mesh, 2), ExitCode::kRequeue);
  EXPECT_EQ(state("stopped", 2).validated_step, 0);
  ASSERT_EQ(train("stopped", mesh, 3), ExitCode::kRequeue);
  EXPECT_EQ(metrics("stopped").validations.size(), 1U) << "saved first, as time may be short";
  EXPECT_EQ(state("stopped", 4).validated_step, 2);
  ASSERT_EQ(train("stopped", mesh, 5), ExitCode::kRequeue) << "the validation of the last step is to come";
  ASSERT_EQ(train("stopped", mesh, 0), ExitCode::kOk);
  EXPECT_EQ(state("stopped", 6).validated_step, 6);
  ASSERT_EQ(train("stopped", mesh, 0), ExitCode::kOk) << "there is nothing left to do";

  const MetricsLog unbroken = metrics("unbroken"), stopped = metrics("stopped");
  ASSERT_EQ(unbroken.validations.size(), 3U);
  ASSERT_EQ(stopped.validations.size(), 3U);
  for (size_t v = 0; v < 3; ++v) {
    EXPECT_EQ(stopped.validations[v].step, unbroken.validations[v].step);
    EXPECT_EQ(stopped.validations[v].loss, unbroken.validations[v].loss);
    EXPECT_EQ(stopped.validations[v].rougeL, unbroken.validations[v].rougeL);
    EXPECT_EQ(stopped.validations[v].best, unbroken.validations[v].best);
    ASSERT_TRUE(unbroken.validations[v].rougeL);
  }
  ASSERT_EQ(stopped.steps.size(), 6U);
  for (size_t s = 0; s < 6; ++s) EXPECT_EQ(stopped.steps[s].loss, unbroken.steps[s].loss);
  const CheckpointState end = state("unbroken", 6);
  ASSERT_TRUE(end.best);
  EXPECT_EQ(end.best->metric, "rougeL");
  EXPECT_EQ(end.best, state("stopped", 6).best);
  EXPECT_EQ(state("stopped", end.best->step).best->step, end.best->step) << "the best is kept";
}

// Stages with different numbers of units wait together for saves that copy nothing, and any mesh goes on
// where another stopped.
TEST_F(ValidationRanks, ARunGoesOnWithAndWithoutAPipeline) {
  const std::vector<std::string> overrides = {"model.num_hidden_layers=3", "checkpoint.snapshot_mib=0",
                                              "checkpoint.every_steps=1"};
  const MeshSizes last = all_meshes().back(), first = all_meshes().front();
  ASSERT_EQ(train("plain", first, 0, overrides), ExitCode::kOk);
  ASSERT_EQ(train("staged", last, 2, overrides), ExitCode::kRequeue);
  ASSERT_EQ(train("staged", first, 4, overrides), ExitCode::kRequeue);
  ASSERT_EQ(train("staged", last, 0, overrides), ExitCode::kOk);
  const MetricsLog plain = metrics("plain"), staged = metrics("staged");
  ASSERT_EQ(staged.steps.size(), 6U);
  for (size_t s = 0; s < 6; ++s)
    EXPECT_NEAR(staged.steps[s].loss, plain.steps[s].loss, 1e-5 * plain.steps[s].loss) << s;
  ASSERT_EQ(staged.validations.size(), 3U);
  for (size_t v = 0; v < 3; ++v)
    EXPECT_NEAR(staged.validations[v].loss, plain.validations[v].loss, 1e-5 * plain.validations[v].loss);
}

// The planned memory of a resumed start covers only its own steps and validations, to the byte.
TEST_F(ValidationRanks, ThePlanOfEachStartIsItsPeak) {
  for (size_t n = 0; const MeshSizes& mesh : mesh_training::meshes_of(test_world().communicator().size())) {
    const char* recompute = n++ % 2 == 0 ? "none" : "full";
    SCOPED_TRACE(fmt::format("{}, recompute {}", mesh.to_text(), recompute));
    const std::string run = fmt::format("planned{}{}{}{}", mesh.replicate, mesh.fsdp, mesh.tensor, recompute);
    const std::vector<std::string> overrides = {"train.validate_every=0", "train.validate_at_start=true",
                                                "checkpoint.keep_best=loss", "train.steps=4",
                                                fmt::format("train.recompute={}", recompute)};
    ASSERT_EQ(train(run, mesh, 2, overrides), ExitCode::kRequeue);
    ASSERT_EQ(train(run, mesh, 0, overrides), ExitCode::kOk) << "without a validation";
    ASSERT_EQ(train(run, mesh, 0, overrides), ExitCode::kOk) << "there is nothing left to do";
    ASSERT_EQ(train(run + "never", mesh, 0,
                    {"train.validate_every=0", "generation.validate_examples=0", "checkpoint.keep_best=loss",
                     "train.steps=2", overrides.back()}),
              ExitCode::kOk);
    std::vector<EndEvent> ends = metrics(run).ends;
    ASSERT_EQ(ends.size(), 3U);
    ends.push_back(metrics(run + "never").ends.at(0));
    for (size_t i = 0; i < ends.size(); ++i)
      EXPECT_EQ(ends[i].planned.memory, ends[i].measured.memory)
          << "start " << i << ": " << ends[i].planned.memory.total() << " planned, "
          << ends[i].measured.memory.total() << " measured";
    EXPECT_GT(ends[0].measured.memory.total(), ends[1].measured.memory.total()) << "it wrote summaries";
    EXPECT_GT(ends[1].measured.memory.total(), ends[2].measured.memory.total()) << "it made steps";
  }
}

// A run that overfits three texts: its validations get worse by far more than meshes differ.
TEST_F(ValidationRanks, AnotherMeshStopsAfterAsManyValidations) {
  const std::filesystem::path few = directory_ / "few";
  if (test_world().communicator().rank() == 0) {
    write_bytes(few / "tokenizer.model", small_model());
    write_small_dataset(few / "train.h5", 100, 3);
    write_small_dataset(few / "validation.h5", 0, 13);
  }
  test_world().communicator().barrier();
  const std::vector<MeshSizes> meshes = mesh_training::meshes_of(test_world().communicator().size());
  const std::vector<std::string> overrides = {
      "data.directory=" + few.string(), "train.steps=20",
      "train.validate_every=2",         "train.stop_after_validations=3",
      "train.validate_at_start=true",   "checkpoint.keep_best=loss",
      "generation.validate_examples=0", "optimizer.learning_rate=3e-2"};
  ASSERT_EQ(train("unbroken_early", meshes.front(), 0, overrides), ExitCode::kOk);
  const MetricsLog unbroken = metrics("unbroken_early");
  const int64_t end = unbroken.steps.back().step;
  ASSERT_LT(end, 20);
  ASSERT_EQ(unbroken.ends.back().reason, EndReason::kNoImprovement);
  // One validation without improvement is counted on one mesh, the others on another.
  ASSERT_EQ(train("broken_early", meshes.front(), end - 3, overrides), ExitCode::kRequeue);
  ASSERT_EQ(train("broken_early", meshes.back(), 0, overrides), ExitCode::kOk);
  const MetricsLog broken = metrics("broken_early");
  EXPECT_EQ(broken.steps.back().step, end);
  EXPECT_EQ(broken.ends.back().reason, EndReason::kNoImprovement);
  EXPECT_EQ(broken.validations.size(), unbroken.validations.size()) << "that before step 1 is made once";
  EXPECT_EQ(state("broken_early", end).validations_since_best, 3);
  EXPECT_EQ(state("broken_early", end).best->step, state("unbroken_early", end).best->step);
  // Validations by another metric do not count.
  std::vector<std::string> by_rouge = overrides;
  by_rouge.insert(by_rouge.end(), {"checkpoint.keep_best=rougeL", "generation.validate_examples=2"});
  ASSERT_EQ(train("broken_early", meshes.back(), 0, by_rouge), ExitCode::kOk);
  EXPECT_GE(metrics("broken_early").steps.back().step, end + 2);
}

}  // namespace
}  // namespace ripstop
