#include "train/run/validation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "data/dataset/dataset_directory.h"
#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "train/evaluate/dataset_loss.h"
#include "train/evaluate/write_summaries.h"
#include "train/generate/write_texts.h"
#include "train/plan/training_data.h"
#include "train/run/kernel_plans.h"

namespace ripstop {
namespace {

// Divides generation.validate_examples among the sets, and finds errors at the start that the first
// validation would meet hours later.
void share_summaries(const RunConfig& config, const ResolvedRun& run, std::vector<ValidationSet>& sets) {
  std::vector<ValidationSet*> writing;
  double weights = 0;
  const TokenDataset* any = nullptr;
  for (ValidationSet& set : sets) {
    if (!set.dataset) continue;
    any = &*set.dataset;
    if (!set.dataset->header().has_references() || set.weight == 0) continue;
    writing.push_back(&set);
    weights += set.weight;
  }
  if (any == nullptr) return;
  if (writing.empty())
    throw Error(ExitCode::kUsage,
                fmt::format("generation.validate_examples: {} has no summaries to compare with",
                            any->path().string()),
                "set it to 0; checkpoint.keep_best = \"loss\" needs none");
  int64_t left = config.generation.validate_examples;
  for (ValidationSet* set : writing) {
    const double share = static_cast<double>(config.generation.validate_examples) * set->weight / weights;
    left -= set->summaries = static_cast<int64_t>(share + 1e-9);
  }
  writing.front()->summaries += left;
  const int64_t longest = run.summaries->context - config.generation.max_new_tokens;
  for (ValidationSet* set : writing) {
    set->summaries = std::min(set->summaries, set->dataset->examples());
    require_room(*set->dataset, longest);
  }
}

// The first characters of `text` as UTF-8: a model may write any bytes.
std::string sample_text(const std::string& text) {
  constexpr size_t kMostBytes = 1000;
  return JsonReader::Json::parse(text_of_json(begin_of(text, kMostBytes)));
}

// Opens set.file, if there is one. `tokenizer`: that of the data set.
void open_validation_set(const RunConfig& config, const Tokenizer& tokenizer, ValidationSet& set) {
  // A missing file is no error, because the run can train without a validation.
  if (std::filesystem::exists(set.file)) set.dataset.emplace(set.file);
  set.has_examples = set.dataset && set.dataset->examples() > 0;
  if (set.has_examples) require_dataset_tokenizer(*set.dataset, tokenizer);
  if (!set.has_examples || !has_targets(*set.dataset, config)) set.dataset.reset();
}

}  // namespace

bool any_set(const std::vector<ValidationSet>& sets) {
  return std::ranges::any_of(sets, [](const ValidationSet& set) { return set.dataset.has_value(); });
}

std::vector<ValidationSet> open_validation_sets(const RunConfig& config, const ResolvedRun& run,
                                                const Tokenizer& tokenizer) {
  const std::vector<std::string> directories = config.data.all();
  std::vector<ValidationSet> sets(directories.size());
  if (!config.train.validates()) return sets;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (i > 0) sets[i].tokenizer.emplace(dataset_tokenizer(directories[i]));
    sets[i].file = std::filesystem::path(directories[i]) / "validation.h5";
    open_validation_set(config, sets[i].tokenizer ? *sets[i].tokenizer : tokenizer, sets[i]);
    if (!config.data.weights.empty()) sets[i].weight = config.data.weights[i];
  }
  if (run.summaries) share_summaries(config, run, sets);
  return sets;
}

std::string validation_note(const RunConfig& config, const std::vector<ValidationSet>& sets) {
  std::vector<std::string> empty, cut;  // files
  for (const ValidationSet& set : sets)
    if (!set.dataset && !set.file.empty()) (set.has_examples ? cut : empty).push_back(set.file.string());
  const size_t count = empty.size() + cut.size();
  if (count == 0) return "";
  std::string causes;
  if (!empty.empty())
    causes =
        fmt::format("{} ha{} no examples (ripstop prepare --validation-fraction 0.05 takes some of train)",
                    fmt::join(empty, ", "), empty.size() == 1 ? "s" : "ve");
  if (!cut.empty())
    causes +=
        fmt::format("{}no example of {} keeps a token whose prediction counts (raise data.sequence_length)",
                    causes.empty() ? "" : "; ", fmt::join(cut, " or "));
  return fmt::format("train.{}: {}: {}",
                     config.train.validate_every > 0 ? "validate_every" : "validate_at_start", causes,
                     count == sets.size() ? "nothing is validated"
                     : count == 1         ? "this set is not validated"
                                          : "these sets are not validated");
}

void plan_without_validations(ResolvedRun& run, DeviceKind device) {
  run.validates = false;
  run.summaries.reset();
  run.summaries_memory = {};
  run.plan = plan_fullest(run.request(device));
}

Validation::Validation(const std::vector<ValidationSet>& sets, const RunConfig& config,
                       const ResolvedRun& run, const Tokenizer& tokenizer, DeviceMesh& mesh)
    : sets_(sets), config_(config), run_(run), tokenizer_(tokenizer), mesh_(mesh) {}

void Validation::connect(MpiWorld& world, const Device& device) {
  // The fsdp axis of this mesh is 1, because a model that generates has no shards.
  if (any() && run_.summaries)
    writing_mesh_ = std::make_unique<DeviceMesh>(world, run_.summaries_mesh(),
                                                 config_.mesh.allow_tensor_across_nodes, device);
}

std::map<DocumentSizes, int64_t> Validation::documents() const {
  std::map<DocumentSizes, int64_t> documents;
  for (const ValidationSet& set : sets_)
    if (set.dataset)
      for (const auto& [sizes, batches] : coming_documents(
               *set.dataset, once_through(loader_options(config_, run_, mesh_)), {}, kStepsLookedAt))
        documents[sizes] += batches;
  return documents;
}

std::optional<ValidationScores> Validation::measure(TrainingStep& step, MemoryLedger& ledger,
                                                    FunctionRef<bool()> stop_requested, ReportPart report) {
  ValidationScores scores;
  has_evaluated_ = true;
  // An incomplete validation gives no scores. The run validates again when it goes on.
  if (!measure_loss(step, stop_requested, report, scores)) return std::nullopt;
  if (run_.summaries && !measure_rouge(step, ledger, stop_requested, report, scores)) return std::nullopt;
  if (sets_.size() == 1) scores.sets.clear();
  return scores;
}

// Returns false if a stop was requested.
bool Validation::measure_loss(TrainingStep& step, FunctionRef<bool()> stop_requested, ReportPart report,
                              ValidationScores& scores) {
  LossSum all;
  double weighted = 0, weights = 0;
  for (const ValidationSet& set : sets_) {
    SetScores& of_set = scores.sets.emplace_back();
    if (!set.dataset) continue;
    const LossSoFar loss = dataset_loss(
        mesh_.world(), *set.dataset, loader_options(config_, run_, mesh_), {},
        [&](int64_t count, NextTokens next) { return step.evaluate(count, next, stop_requested); },
        [&](int64_t done, int64_t total) { report("sequences", done, total); });
    if (!loss.complete) return false;
    of_set.loss = loss.sum.mean();
    of_set.target_count = loss.sum.target_count;
    all.loss += loss.sum.loss;
    all.target_count += loss.sum.target_count;
    if (set.weight > 0) weighted += set.weight * of_set.loss;  // 0 x infinity would be NaN
    weights += set.weight;
  }
  scores.target_count = all.target_count;
  // If all validated sets have weight 0, all targets count alike.
  scores.loss = config_.data.weights.empty() || weights == 0 ? all.mean() : weighted / weights;
  return true;
}

// Returns false if a stop was requested.
bool Validation::measure_rouge(TrainingStep& step, MemoryLedger& ledger, FunctionRef<bool()> stop_requested,
                               ReportPart report, ValidationScores& scores) {
  const Stream stream(step.arena().device());
  const InferencePlan plan = plan_inference(run_.model, *run_.summaries, writing_mesh_->sizes(),
                                            writing_mesh_->coordinates(), stream.device().kind);
  InferenceModel writer(run_.model, *run_.summaries, *writing_mesh_, stream, ledger, plan.arena);
  has_summarized_ = true;
  step.model().copy_weights_to(writer.model());
  RougeMean all, mean;
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (sets_[i].summaries == 0) continue;
    mean = {};
    if (!summarize(writer, sets_[i], stop_requested, report, scores, mean)) return false;
    const RougeScores of_set = mean.mean();
    scores.sets[i].rouge1 = of_set.rouge1.fmeasure;
    scores.sets[i].rouge2 = of_set.rouge2.fmeasure;
    scores.sets[i].rougeL = of_set.rouge_l.fmeasure;
    // Without weights all summaries count alike.
    const double summaries = static_cast<double>(mean.examples());
    all.add(of_set, config_.data.weights.empty() ? summaries : sets_[i].weight);
  }
  scores.rouge = sets_.size() == 1 ? mean.mean() : all.mean();  // a mean of one mean rounds again
  return true;
}

// Returns false if a stop was requested.
bool Validation::summarize(InferenceModel& writer, const ValidationSet& set,
                           FunctionRef<bool()> stop_requested, ReportPart report, ValidationScores& scores,
                           RougeMean& mean) {
  constexpr size_t kSamples = 3;
  const Tokenizer& tokenizer = set.tokenizer ? *set.tokenizer : tokenizer_;
  return write_summaries(
      writer, *set.dataset, tokenizer, 0, set.summaries, config_.generation,
      [&](int64_t first, const std::vector<WrittenText>& summaries) {
        const std::vector<ExampleText> written =
            checked_text(*set.dataset, tokenizer, first, std::ssize(summaries));
        for (size_t i = 0; i < summaries.size(); ++i) {
          mean.add(rouge(written[i].summary, summaries[i].text));
          if (scores.samples.size() < kSamples)
            scores.samples.push_back({sample_text(written[i].id), sample_text(summaries[i].text),
                                      sample_text(written[i].summary)});
        }
        report("summaries", first + std::ssize(summaries), set.summaries);
      },
      stop_requested);
}

}  // namespace ripstop
