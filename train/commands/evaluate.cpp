// ripstop evaluate: loss, perplexity and ROUGE of a trained model on a split.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/dataset_directory.h"
#include "data/hash.h"
#include "data/whole_file.h"
#include "train/commands/commands.h"
#include "train/commands/model_arguments.h"
#include "train/evaluate/rouge.h"
#include "train/evaluate/write_summaries.h"
#include "train/generate/trained_model.h"
#include "train/report/human_text.h"
#include "train/report/progress.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct EvaluateArguments {
  ModelArguments model;
  std::string data;
  std::string split = "test";
  std::string output;
  int64_t limit = 0;
  bool json = false;
};

// The model, the split and the examples to score.
struct Subject {
  TrainedModel trained;
  TokenDataset dataset;
  Tokenizer tokenizer;
  fs::path output;
  int64_t max_new_tokens = 0;
  int64_t examples = 0;  ///< that get a summary
};

// Finds and checks everything before the weights are loaded, which takes long and much memory.
Subject find_subject(Io& io, Communicator& world, const EvaluateArguments& given) {
  TrainedModel trained = given.model.find(io, world);
  const fs::path data = given.data.empty() ? trained.config.data.directory : given.data;
  if (!fs::exists(data / (given.split + ".h5")))
    throw Error(ExitCode::kInputData, fmt::format("{}: there is no {}.h5", data.string(), given.split),
                given.data.empty()
                    ? "the run was trained on data there: give the data's present directory with --data"
                    : "--data is a directory made by ripstop prepare");
  Subject subject{.trained = std::move(trained),
                  .dataset = TokenDataset(data / (given.split + ".h5")),
                  .tokenizer = Tokenizer(data),
                  .output = {}};
  if (subject.dataset.examples() == 0)
    throw Error(ExitCode::kInputData, fmt::format("{}: has no examples", subject.dataset.path().string()),
                "name a split that has some with --split, or another data set with --data");
  const CheckpointState& state = subject.trained.checkpoint.manifest.state;
  require_dataset_tokenizer(subject.dataset, subject.tokenizer);
  // With another tokenizer the same ids mean other pieces, and the loss would mean nothing.
  if (!state.tokenizer_sha256.empty() && state.tokenizer_sha256 != subject.tokenizer.sha256())
    throw Error(ExitCode::kInputData,
                fmt::format("{} was made with another tokenizer than {}", data.string(),
                            subject.trained.checkpoint.directory.string()),
                "prepare it again with --tokenizer " + subject.trained.run.string());
  subject.output = !given.output.empty()
                       ? fs::path(given.output)
                       : subject.trained.run / "evaluation" /
                             fmt::format("{}-{}", step_directory_name(state.step), given.split);
  subject.max_new_tokens = given.model.longest_summary(subject.trained);
  if (subject.dataset.header().kind == ExampleKind::kSummary && subject.dataset.header().with_text)
    subject.examples =
        given.limit > 0 ? std::min(given.limit, subject.dataset.examples()) : subject.dataset.examples();
  return subject;
}

// Everything that a prediction depends on. Predictions of an earlier call are kept only if it is the same.
Json settings_of(const Subject& subject, const InferenceOptions& options) {
  StreamHash weights;
  // The hashes of all files stand for the weights, without reading them again.
  for (const StoredFile& file : subject.trained.checkpoint.manifest.files) weights.update(file.sidecar_hash);
  return {{"step", subject.trained.checkpoint.manifest.state.step},
          {"weights", weights.hex()},
          {"data", subject.dataset.content_hash()},
          {"compute", to_string(options.compute)},
          {"context", options.context},
          {"num_beams", 1},
          {"max_new_tokens", subject.max_new_tokens}};
}

// The loss is on all ranks, the scores on rank 0 alone.
struct Scores {
  LossSum loss;
  RougeMean rouge;
};

// scores.json, and the output of --json. Its keys are a contract with people's scripts.
Json scores_json(const EvaluateArguments& given, const Subject& subject, const Scores& scores) {
  Json document{{"step", subject.trained.checkpoint.manifest.state.step},
                {"split", given.split},
                {"examples", subject.examples > 0 ? subject.examples : subject.dataset.examples()},
                {"targets", scores.loss.target_count},
                {"loss", scores.loss.mean()},
                {"perplexity", std::exp(scores.loss.mean())}};
  for (const auto& [name, score] : named(scores.rouge.mean())) {
    if (scores.rouge.examples() > 0)
      document[name] = {
          {"precision", score.precision}, {"recall", score.recall}, {"fmeasure", score.fmeasure}};
    else
      // null and not 0: nothing was scored.
      document[name] = nullptr;
  }
  document["checkpoint"] = subject.trained.checkpoint.directory.string();
  return document;
}

void print_scores(const EvaluateArguments& given, const Subject& subject, const Scores& scores) {
  fmt::print("loss {:.4f}, perplexity {:.3f} over {} of {}\n", scores.loss.mean(),
             std::exp(scores.loss.mean()), counted(scores.loss.target_count, "target"),
             counted(subject.dataset.examples(), given.split + " example"));
  if (scores.rouge.examples() > 0)
    fmt::print("{}means over {}\n", rouge_table(scores.rouge.mean()),
               counted(scores.rouge.examples(), "example"));
  else
    fmt::print("no ROUGE: {} holds no texts of summaries\n", subject.dataset.path().string());
  fmt::print("{} holds {}scores.json\n", subject.output.string(),
             scores.rouge.examples() > 0 ? "predictions.jsonl and " : "");
}

// Shows the progress of a part of the work on rank 0. It goes to standard error if standard output is JSON
// for a program.
class RankProgress {
 public:
  RankProgress(bool speaks, bool json, const char* what, const char* unit)
      : speaks_(speaks), stream_(json ? stderr : stdout), what_(what), unit_(unit) {}
  void operator()(int64_t done, int64_t total) {
    if (!speaks_) return;
    // Made at the first call, so that its clock does not count what came before.
    if (!progress_) progress_.emplace(stream_, what_, unit_, total, done);
    if (done < total)
      progress_->update(done);
    else
      progress_->finish(done);
  }

 private:
  bool speaks_;
  std::FILE* stream_;
  const char* what_;
  const char* unit_;
  std::optional<Progress> progress_;
};

Scores measure(InferenceModel& model, const Subject& subject, bool json) {
  const bool speaks = model.model().mesh().world().rank() == 0;
  Scores scores;
  RankProgress sequences(speaks, json, "loss", "sequence");
  scores.loss = dataset_loss(model, subject.dataset, subject.trained.config.data.loss_on, sequences);
  if (subject.examples == 0) return scores;

  std::optional<PredictionFile> file;
  // Only rank 0 keeps the file, so the others learn from it how many summaries are there already.
  if (speaks) {
    file.emplace(subject.output, settings_of(subject, model.options()).dump(2) + "\n");
    if (file->count() > 0)
      fmt::print(json ? stderr : stdout, "{} of {} summaries are there already\n",
                 std::min(file->count(), subject.examples), subject.examples);
  }
  RankProgress summaries(speaks, json, "summaries", "example");
  write_predictions(model, subject.dataset, subject.tokenizer, subject.examples, subject.max_new_tokens,
                    file ? &*file : nullptr, summaries);
  if (!speaks) return scores;
  for (int64_t i = 0; i < subject.examples; ++i) {
    const Prediction& prediction = file->predictions()[static_cast<size_t>(i)];
    scores.rouge.add(rouge(prediction.reference, prediction.summary));
  }
  return scores;
}

void evaluate(MpiWorld& world, const EvaluateArguments& given) {
  PosixIo io;
  const Subject subject = find_subject(io, world.communicator(), given);
  const Device device = inference_device(world, subject.trained);
  LoadedModel model(io, world, subject.trained,
                    inference_options(subject.trained, device,
                                      std::clamp<int64_t>(subject.examples, 1, given.model.batch_size),
                                      subject.examples > 0 ? subject.max_new_tokens : 0),
                    device);
  const bool speaks = model.mesh().world().rank() == 0;
  if (speaks && !given.json)
    fmt::print("{} on {}, {}\n", subject.trained.checkpoint.directory.string(),
               model.mesh().sizes().to_text(), to_string(model.model().options().compute));
  const Scores scores = measure(model.model(), subject, given.json);
  if (!speaks) return;
  const Json document = scores_json(given, subject, scores);
  // A split without summaries writes no predictions, so the directory may not exist yet.
  fs::create_directories(subject.output);
  write_whole_file(subject.output / "scores.json", document.dump(2) + "\n");
  if (given.json)
    fmt::print("{}\n", document.dump(2));
  else
    print_scores(given, subject, scores);
}

}  // namespace

void add_evaluate(CommandLine& line) {
  Verb verb = line.verb("evaluate", "loss, perplexity and ROUGE of a trained model on a split");
  const auto given = std::make_shared<EvaluateArguments>();
  given->model.add_to(verb, 32);
  verb.option("--data", given->data, "directory made by prepare; default: the one trained on");
  verb.option("--split", given->split, "train, validation or test")
      .choices({"train", "validation", "test"})
      .show_default();
  verb.option("--limit", given->limit, "write summaries of so many examples only; the loss is of all")
      .positive();
  verb.option("--output", given->output, "directory; default: RUN/evaluation/step_N-SPLIT");
  verb.flag("--json", given->json, "one JSON document");
  verb.set_example("srun -n 4 ripstop evaluate runs/xsum --checkpoint best --split test");
  verb.set_action([given] {
    MpiWorld world;
    return world.run([&] {
      evaluate(world, *given);
      return ExitCode::kOk;
    });
  });
}

}  // namespace ripstop
