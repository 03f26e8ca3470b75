#include <fmt/ranges.h>

#include <algorithm>

#include "data/dataset/dataset_directory.h"
#include "data/dataset/kept_tokens.h"
#include "data/dataset/sequence_reader.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/process/shell_word.h"
#include "parallel/agreement.h"
#include "parallel/launch_environment.h"
#include "train/commands/commands.h"
#include "train/commands/end_failed.h"
#include "train/commands/model_arguments.h"
#include "train/commands/show_examples.h"
#include "train/config/nearest_name.h"
#include "train/config/run_config.h"
#include "train/evaluate/evaluation_directory.h"
#include "train/evaluate/rouge.h"
#include "train/evaluate/scores.h"
#include "train/evaluate/write_summaries.h"
#include "train/exchange/hugging_face/model_tokenizer.h"
#include "train/generate/loaded_model.h"
#include "train/generate/write_texts.h"
#include "train/plan/training_data.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"
#include "train/report/standard_streams.h"
#include "train/run/stop_signal.h"
#include "train/run/time_limit.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

struct EvaluateArguments {
  ModelArguments model;
  std::string data;
  std::string split = "test";
  std::string output;
  int64_t limit = 0;
  bool json = false;
};

struct Subject {
  TrainedModel trained;
  TokenDataset dataset;
  Tokenizer tokenizer;
  int64_t examples = 0;  ///< number of examples to score, from the start of the split
  /// max_new_tokens is 0 if the split has no texts to compare. Then no summaries are written.
  GenerationSettings generation = {.max_new_tokens = 0};

  bool has_summaries() const { return generation.max_new_tokens > 0; }
  std::string data() const { return dataset.path().parent_path().string(); }
  /// The run's data sets; empty if it was trained on one.
  std::vector<std::string> data_sets() const {
    const std::vector<std::string>& all = trained.config.data.directories;
    return all.size() > 1 ? all : std::vector<std::string>();
  }
  /// The run's data.loss_on; kLast if only last turns have right targets.
  LossOn loss_on() const {
    return dataset.header().why_only_last.empty() ? trained.config.data.loss_on : LossOn::kLast;
  }
};

// Throws Error(kUsage) for a pretrained model without --data or --output. Such a model has no data set, and
// other programs may use its directory, so results must not be written there.
void require_places(const EvaluateArguments& given, const TrainedModel& trained) {
  const char* missing = given.data.empty() ? "--data" : "--output";
  if (trained.stored.is_pretrained() && (given.data.empty() || given.output.empty()))
    throw Error(ExitCode::kUsage,
                fmt::format("{} is a pretrained model, not a run: {} is required",
                            trained.stored.directory().string(), missing),
                "ripstop evaluate MODEL --data DATA --output scores/MODEL, with a data set made by ripstop "
                "prepare --tokenizer MODEL");
}

// "did you mean --data data/xsum?": of the run's data sets with a file `split`, the one whose name is nearest
// to `data`; "" if none is near.
std::string nearest_own_set(const fs::path& data, const std::string& split, const DataSection& own) {
  std::vector<std::string> sets = own.all();
  std::error_code ignored;
  std::erase_if(sets, [&](const fs::path& each) { return !fs::exists(each / split, ignored); });
  const std::vector<std::string> names = short_paths(sets);
  const std::string nearest = nearest_name(short_paths({data.string()}).front(), names);
  if (nearest.empty()) return "";
  return fmt::format(
      "did you mean --data {}?",
      shell_word(sets[static_cast<size_t>(std::ranges::find(names, nearest) - names.begin())]));
}

// The split's file. Throws, with a hint, if it does not exist.
fs::path find_split(const EvaluateArguments& given, const TrainedModel& trained) {
  require_places(given, trained);
  const fs::path data = given.data.empty() ? fs::path(trained.config.data.first()) : fs::path(given.data);
  const fs::path file = data / (given.split + ".h5");
  std::error_code error;
  // If the system cannot tell, returns the path, so that opening the file throws with the reason.
  if (fs::exists(file, error) || error) return file;
  std::string hint = "--data is a directory made by ripstop prepare";
  if (const std::string others = splits_with_examples(data); !others.empty())
    hint = "name a split that is there with --split: " + others;
  else if (std::string near = hint_for_absent(data, "--data ", file.filename().string()); !near.empty())
    hint = near;
  else if (near = nearest_own_set(data, file.filename().string(), trained.config.data); !near.empty())
    hint = near;
  else if (trained.state().data_content_hash.empty())
    hint = "the model was not trained on a data set: give one with --data";
  else if (given.data.empty())
    hint = "the run was trained on data there: give the data's present directory with --data";
  throw Error(ExitCode::kInputData, fmt::format("{}: there is no {}.h5", data.string(), given.split), hint);
}

// Finds model, split and settings, but does not load the weights, which takes time and memory. Collective.
Subject find_subject(Io& io, Communicator& world, const EvaluateArguments& given) {
  TrainedModel trained = given.model.find(io, world, /*reads_generation_file=*/false);
  const fs::path file = find_split(given, trained);
  Subject subject{.trained = std::move(trained),
                  .dataset = TokenDataset(file),
                  .tokenizer = Tokenizer(file.parent_path())};
  const TokenDataset& dataset = subject.dataset;
  if (dataset.examples() == 0)
    throw Error(ExitCode::kInputData, fmt::format("{}: has no examples", dataset.path().string()),
                "name a split that has some with --split, or another data set with --data");
  const CheckpointState& state = subject.trained.state();
  require_dataset_tokenizer(subject.dataset, subject.tokenizer);
  std::vector<std::string> notes = {
      compare_tokenizers({.model = subject.trained.stored.directory(),
                          .model_sha256 = state.tokenizer_sha256,
                          .model_ids = state.model.vocab_size,
                          .user = "the data set " + file.parent_path().string()},
                         subject.tokenizer)};
  const bool writes_texts = dataset.header().has_references();
  subject.examples = given.limit > 0 ? std::min(given.limit, dataset.examples()) : dataset.examples();
  if (writes_texts) {
    subject.generation = subject.trained.config.generation.that_count();
    notes.push_back(short_summaries_note(dataset, subject.generation.max_new_tokens));
  }
  print_notes(world, std::move(notes), subject.tokenizer, subject.trained, writes_texts);
  return subject;
}

// The settings that tell this evaluation from others. Collective.
EvaluationSettings settings_of(Communicator& world, const EvaluateArguments& given, const Subject& subject,
                               const InferenceOptions& options) {
  return {.step = subject.trained.state().step,
          .split = given.split,
          .examples = subject.examples,
          .weights = subject.trained.stored.weights_hash(world),
          .data = subject.dataset.content_hash(),
          .compute = std::string(to_string(options.compute)),
          .context = options.context,
          .generation = subject.generation};
}

// Whether the data set is the run's first, perhaps moved.
bool is_own_data(const EvaluateArguments& given, const TrainedModel& trained) {
  std::error_code error;
  if (given.data.empty() || fs::equivalent(given.data, trained.config.data.first(), error)) return true;
  const fs::path train = fs::path(given.data) / "train.h5";
  const std::string& own = trained.state().data_content_hash;
  return fs::exists(train, error) && TokenDataset(train).content_hash() == own.substr(0, own.find(' '));
}

// "step_00001000-test", with a suffix for each setting that is not the run's.
std::string default_name(const EvaluateArguments& given, const Subject& subject,
                         const EvaluationSettings& settings) {
  const StoredModel& stored = subject.trained.stored;
  EvaluationSettings usual = settings;
  usual.examples = subject.dataset.examples();
  if (subject.has_summaries())
    usual.generation = parse_run_config(stored.state().config, stored.directory().string()).generation;
  if (!is_own_data(given, subject.trained)) usual.data = "";
  return evaluation_name(settings, usual);
}

// The output directory and its files. Only rank 0 has an Output.
struct Output {
  fs::path directory;
  std::optional<EvaluationClaim> claim;
  std::optional<PredictionFile> predictions;
  std::string note;    ///< a note for people: how many summaries there are already; or ""
  std::string scores;  ///< the text of scores.jsonl; "" without summaries
};

// Throws Error(kInputData) if no conversation, cut to `context` tokens, keeps a target.
void refuse_without_targets(const Subject& subject, int64_t context) {
  if (subject.dataset.header().kind != ExampleKind::kConversation) return;
  const SequenceReader reader(subject.dataset, context, subject.loss_on(), subject.examples);
  if (reader.without_targets() == subject.examples)
    throw Error(ExitCode::kInputData,
                fmt::format("{}: none of the {} keeps a token whose prediction counts in {} tokens",
                            subject.dataset.path().string(), counted(subject.examples, "example"), context),
                "no answer fits, or all have weight 0");
}

// Opens the output. Call it before the weights are loaded, so that a refusal comes at once.
void open_output(const EvaluateArguments& given, const Subject& subject, const InferenceOptions& options,
                 const EvaluationSettings& settings, Output& output) {
  const fs::path all = subject.trained.run / "evaluation";
  output.directory =
      given.output.empty() ? all / default_name(given, subject, settings) : fs::path(given.output);
  refuse_without_targets(subject, options.context);
  if (subject.has_summaries())
    require_room(subject.dataset, options.context - subject.generation.max_new_tokens);
  try {
    output.claim.emplace(output.directory, settings,
                         [](const std::string& note) { print_to(stderr, "note: {}\n", note); });
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStorage || !given.output.empty()) throw;
    throw Error(error.code(), error.what(),
                "where the run cannot be written, --output DIR takes the results");
  }
  if (!subject.has_summaries()) return;

  PredictionFile& file = output.predictions.emplace(output.directory);
  if (!file.note().empty()) print_to(stderr, "warning: {}\n", file.note());
  const int64_t own = std::min(file.count(), subject.examples);
  if (own > 0) output.note = fmt::format("summaries there already: {} of {}", own, subject.examples);
  // Evaluations of a pretrained model have no common folder to search.
  const FoundPredictions found = subject.trained.stored.is_pretrained()
                                     ? FoundPredictions{}
                                     : find_predictions(all, output.directory, settings);
  while (file.count() < std::min(std::ssize(found.predictions), subject.examples))
    file.append(found.predictions[static_cast<size_t>(file.count())]);
  if (file.count() > own)
    output.note = fmt::format("summaries there already: {} of {}, from {}", file.count(), subject.examples,
                              found.directory.string());
}

// Why the split gets a loss, but no summaries; for people.
std::string why_no_rouge(const TokenDataset& dataset) {
  const std::string file = dataset.path().string();
  if (dataset.header().kind == ExampleKind::kText) return file + " has running text, no summaries";
  return file + " holds no texts; prepare stores those of validation and test alone";
}

// A function that shows the progress of a part of the work, unless an earlier start has done all of it.
auto share_shown(Progress* progress, const char* what, const char* unit) {
  return [=, first = int64_t{-1}](int64_t done, int64_t total) mutable {
    if (progress == nullptr || (first < 0 && done == total)) return;
    if (first < 0) first = done;
    progress->update(what, unit, done, total, /*already=*/first);
    if (done == total) progress->finish();
  };
}

// Says whether to stop: after a signal or, on rank 0, shortly before the job's end.
class Stop {
 public:
  explicit Stop(const std::optional<Deadline>& deadline) {
    if (deadline) limit_.emplace(*deadline, /*save_seconds=*/0.0);
  }
  bool requested() {
    const double next_seconds = intervals_.look();
    if (signal_.requested()) return true;
    return time_is_up_ = limit_ && limit_->is_up(next_seconds);
  }
  const StopSignal& signal() const { return signal_; }
  std::string limit_text() const { return limit_ ? limit_->text() : ""; }
  const char* cause() const { return time_is_up_ ? "before its time limit" : "on a signal"; }

 private:
  const StopSignal signal_{StopFor::kCheckpoint};
  std::optional<TimeLimit> limit_;
  LookIntervals intervals_;
  bool time_is_up_ = false;
};

// Measures the loss, from where an earlier start of the same evaluation stopped. Only rank 0 returns the sum
// over all sequences. Collective.
LossSoFar measure_loss(InferenceModel& model, const Subject& subject, const Output* output, Stop& stop,
                       ReportShare report) {
  Communicator& world = model.model().mesh().world();
  LossSoFar begin;
  do_and_agree(world, [&] {
    if (output != nullptr) begin = read_partial_loss(output->directory);
  });
  begin.sequences = of_rank_0(world, begin.sequences);
  begin.complete = of_rank_0(world, begin.complete);
  LossSoFar loss = dataset_loss(
      model, subject.dataset, subject.examples, subject.loss_on(), begin, [&] { return stop.requested(); },
      report);
  // Only rank 0 writes, because only its sum includes the stored sum.
  do_and_agree(world, [&] {
    if (output != nullptr && (!loss.complete || subject.has_summaries()))
      write_partial_loss(output->directory, loss);
  });
  return loss;
}

// Measures loss and ROUGE. Only rank 0 returns the scores of all examples. Returns nullopt on all ranks after
// a stop. `output`: null on ranks other than 0. Collective.
std::optional<EvaluationScores> measure(InferenceModel& model, const EvaluateArguments& given,
                                        const Subject& subject, Output* output, Stop& stop) {
  const bool speaks = output != nullptr;
  const InferenceOptions& options = model.options();
  EvaluationScores scores{.step = subject.trained.state().step,
                          .checkpoint = subject.trained.stored.directory().string(),
                          .split = given.split,
                          .data = subject.data(),
                          .data_sets = subject.data_sets(),
                          .examples = subject.examples,
                          .split_examples = subject.dataset.examples(),
                          .cuts = count_cuts(subject.dataset, subject.examples, subject.loss_on(),
                                             options.context, subject.generation.max_new_tokens)};
  std::FILE* const stream = given.json ? stderr : stdout;
  if (const std::string text =
          cuts_text(scores.cuts, subject.examples, options.context, subject.generation.max_new_tokens);
      speaks && !text.empty())
    print_to(stream, "{}\n", text);
  Progress progress(stream);
  auto sequences = share_shown(speaks ? &progress : nullptr, "loss", "sequence");
  const LossSoFar loss = measure_loss(model, subject, output, stop, sequences);
  if (!loss.complete) return std::nullopt;
  scores.loss = loss.sum;
  if (!subject.has_summaries()) {
    scores.no_rouge = why_no_rouge(subject.dataset);
    return scores;
  }
  if (speaks && !output->note.empty()) print_to(stream, "{}\n", output->note);
  auto summaries = share_shown(speaks ? &progress : nullptr, "summaries", "example");
  if (!write_predictions(
          model, subject.dataset, subject.tokenizer, subject.examples, subject.generation,
          speaks ? &*output->predictions : nullptr, [&] { return stop.requested(); }, summaries))
    return std::nullopt;
  if (!speaks) return scores;
  output->scores = score_predictions(
      std::span(output->predictions->predictions()).first(static_cast<size_t>(subject.examples)), scores);
  if (const std::string note = scores.rouge.note(); !note.empty()) print_to(stderr, "note: {}\n", note);
  return scores;
}

// Says which data set of several is scored.
void say_which_data(const EvaluateArguments& given, const Subject& subject) {
  std::vector<std::string> others = subject.data_sets();
  if (others.empty()) return;
  std::string text = subject.data();
  if (given.data.empty()) {
    others.erase(others.begin());
    text += fmt::format(", the first of the run's {}: --data chooses {}",
                        counted(std::ssize(others) + 1, "data set"), fmt::join(others, " or "));
  }
  print_to(given.json ? stderr : stdout, "scores {}\n", text);
}

// After a stop, tells people which part is done and how to go on.
void say_stopped(const EvaluateArguments& given, const Subject& subject, const Output& output,
                 const Stop& stop) {
  std::string part = "the loss is not done";
  if (output.predictions && output.predictions->count() > 0)
    part = fmt::format("summaries so far: {} of {}", output.predictions->count(), subject.examples);
  print_to(given.json ? stderr : stdout, "stopped {}; {}, in {}: run the same command again to go on\n",
           stop.cause(), part, output.directory.string());
}

ExitCode evaluate(MpiWorld& world, const EvaluateArguments& given, Stop& stop) {
  Io io;
  // A stop ends the process at once, because hashing a base takes minutes, and nothing is written yet.
  std::optional<StopEndsProcess> while_reading(std::in_place, stop.signal());
  const Subject subject = find_subject(io, world.communicator(), given);
  const Device device = given.model.choose_rank_device(world, subject.trained);
  const InferenceOptions options =
      inference_options(subject.trained, device,
                        subject.has_summaries() ? std::min(subject.examples, given.model.batch_size) : 1,
                        subject.generation, subject.tokenizer.vocabulary_size());
  std::optional<Output> output;
  const EvaluationSettings settings = settings_of(world.communicator(), given, subject, options);
  while_reading.reset();
  do_on_rank_0(world.communicator(),
               [&] { open_output(given, subject, options, settings, output.emplace()); });
  LoadedModel model(io, world, subject.trained, options, device);
  if (output) say_which_data(given, subject);
  if (output && !given.json)
    print_to(stdout, "{} on {}, {}\n", subject.trained.stored.directory().string(),
             model.mesh().sizes().to_text(), to_string(model.model().options().compute));
  if (output && !given.json && !stop.limit_text().empty())
    print_to(stdout, "time limit: {}\n", stop.limit_text());
  const std::optional<EvaluationScores> scores =
      measure(model.model(), given, subject, output ? &*output : nullptr, stop);
  if (!scores && output) say_stopped(given, subject, *output, stop);
  if (!scores) return ExitCode::kRequeue;
  if (!output) return ExitCode::kOk;
  if (output->predictions) write_whole_file(output->directory / kScoreRowsFile, output->scores);
  write_whole_file(output->directory / kScoresFile, to_json(*scores));
  std::error_code ignored;
  fs::remove(output->directory / kPartialLossFile, ignored);
  if (given.json)
    print_out("{}", to_json(*scores));
  else
    print_to(stdout, "{}{} holds {}scores.json\n", to_text(*scores), output->directory.string(),
             output->predictions ? "predictions.jsonl, scores.jsonl and " : "");
  return ExitCode::kOk;
}

}  // namespace

void add_evaluate(CommandLine& line) {
  Verb verb = line.verb("evaluate", "loss, perplexity and ROUGE of a trained model on a split");
  const auto given = std::make_shared<EvaluateArguments>();
  given->model.add_to(verb, 32);
  verb.path("--data", given->data, "directory made by prepare; default: the one trained on");
  verb.option("--split", given->split,
              "train, validation (val, dev) or test (eval); train has no texts, so a loss, but no ROUGE")
      .choices(split_words())
      .show_default();
  verb.option("--limit", given->limit,
              "score the first so many examples of the split only: loss, perplexity and ROUGE")
      .positive();
  verb.path("--output", given->output,
            "a directory of its own, or that of the same evaluation, which then goes on; default: "
            "RUN/evaluation/step_N-SPLIT, with a suffix for each setting that is not the run's, as in "
            "-limit5");
  verb.flag("--json", given->json, "one JSON document");
  verb.set_example("srun -n 4 ripstop evaluate runs/xsum --checkpoint best --split test");
  verb.set_action([given] {
    given->split = split_name(given->split);
    std::vector<std::string> notes;
    Stop stop(launch_rank() == 0 ? find_deadline(notes) : std::nullopt);
    for (const std::string& note : notes) print_to(stderr, "note: {}\n", note);
    MpiWorld world(world_options("evaluate"));
    return world.run([&] { return evaluate(world, *given, stop); });
  });
}

}  // namespace ripstop
