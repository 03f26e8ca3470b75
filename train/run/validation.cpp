#include "train/run/validation.h"

#include <algorithm>
#include <filesystem>

#include "data/dataset/dataset_directory.h"
#include "data/text/json_reader.h"
#include "parallel/agreement.h"
#include "train/evaluate/dataset_loss.h"
#include "train/evaluate/write_summaries.h"
#include "train/generate/write_texts.h"
#include "train/plan/training_data.h"
#include "train/run/kernel_plans.h"

namespace ripstop {
namespace {

// Finds errors at the start that the first validation would meet hours later.
void check_summaries(const TokenDataset& dataset, const RunConfig& config, const ResolvedRun& run) {
  const TokenDatasetHeader& header = dataset.header();
  if (header.kind == ExampleKind::kText || !header.with_text)
    throw Error(ExitCode::kUsage,
                fmt::format("generation.validate_examples: {} has no summaries to compare with",
                            dataset.path().string()),
                "set it to 0; checkpoint.keep_best = \"loss\" needs none");
  // Throws if max_new_tokens leaves no room for begin tokens and separator, equal in all examples.
  const int64_t longest = run.summaries->context - config.generation.max_new_tokens;
  EncodedPrompt prompt = stored_prompt(dataset, 0, longest);
  cut_document(prompt, longest);
}

// The first characters of `text` as UTF-8: a model may write any bytes.
std::string sample_text(std::string text) {
  constexpr size_t kMostBytes = 1000;
  if (size_t end = kMostBytes; text.size() > end) {
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // does not cut a character in two
    text.replace(end, text.npos, "...");
  }
  return JsonReader::Json::parse(text_of_json(text));
}

}  // namespace

ValidationSet open_validation_set(const RunConfig& config, const ResolvedRun& run,
                                  const Tokenizer& tokenizer) {
  if (!config.train.validates()) return {};
  const char* key = config.train.validate_every > 0 ? "validate_every" : "validate_at_start";
  const std::filesystem::path file = std::filesystem::path(config.data.directory) / "validation.h5";
  // A missing file is no error, because the run can train without a validation.
  std::optional<TokenDataset> set;
  if (std::filesystem::exists(file)) set.emplace(file);
  if (!set || set->examples() == 0)
    return {.note = fmt::format("train.{}: {} has no examples, nothing is validated (ripstop prepare "
                                "--validation-fraction 0.05 takes some of train)",
                                key, file.string())};
  require_dataset_tokenizer(*set, tokenizer);
  if (run.summaries) check_summaries(*set, config, run);
  if (!has_targets(*set, config))
    return {.note = fmt::format("train.{}: no example of {} keeps a token whose prediction counts, nothing "
                                "is validated (raise data.sequence_length)",
                                key, file.string())};
  return {.dataset = std::move(set)};
}

Validation::Validation(const ValidationSet& set, const RunConfig& config, const ResolvedRun& run,
                       const Tokenizer& tokenizer, DeviceMesh& mesh)
    : set_(set), config_(config), run_(run), tokenizer_(tokenizer), mesh_(mesh) {}

void Validation::connect(MpiWorld& world, const Device& device) {
  // The fsdp axis of this mesh is 1, because a model that generates has no shards.
  if (any() && run_.summaries)
    writing_mesh_ = std::make_unique<DeviceMesh>(world, run_.summaries_mesh(),
                                                 config_.mesh.allow_tensor_across_nodes, device);
}

std::map<DocumentSizes, int64_t> Validation::documents() const {
  return coming_documents(*set_.dataset, once_through(loader_options(config_, run_, mesh_)), {},
                          kStepsLookedAt);
}

std::optional<ValidationScores> Validation::measure(TrainingStep& step, MemoryLedger& ledger,
                                                    FunctionRef<bool()> stop_requested, ReportPart report) {
  ValidationScores scores;
  has_evaluated_ = true;
  const LossSoFar loss = dataset_loss(
      mesh_.world(), *set_.dataset, loader_options(config_, run_, mesh_), {},
      [&](int64_t count, NextTokens next) { return step.evaluate(count, next, stop_requested); },
      [&](int64_t done, int64_t total) { report("sequences", done, total); });
  scores.loss = loss.sum;
  // A part of the set gives no score. The run validates again when it goes on.
  if (!loss.complete) return std::nullopt;
  if (run_.summaries && !measure_rouge(step, ledger, stop_requested, report, scores)) return std::nullopt;
  return scores;
}

// Returns false if a stop was requested.
bool Validation::measure_rouge(TrainingStep& step, MemoryLedger& ledger, FunctionRef<bool()> stop_requested,
                               ReportPart report, ValidationScores& scores) {
  constexpr size_t kSamples = 3;
  const Stream stream(step.arena().device());
  const InferencePlan plan = plan_inference(run_.model, *run_.summaries, writing_mesh_->sizes(),
                                            writing_mesh_->coordinates(), stream.device().kind);
  InferenceModel writer(run_.model, *run_.summaries, *writing_mesh_, stream, ledger, plan.arena);
  has_summarized_ = true;
  step.model().copy_weights_to(writer.model());
  const int64_t examples = std::min(config_.generation.validate_examples, set_.dataset->examples());
  RougeMean mean;
  bool stop_agreed = false;
  write_summaries(writer, *set_.dataset, tokenizer_, 0, examples, config_.generation,
                  [&](int64_t first, const std::vector<WrittenText>& summaries) {
                    const std::vector<ExampleText> written =
                        checked_text(*set_.dataset, tokenizer_, first, std::ssize(summaries));
                    for (size_t i = 0; i < summaries.size(); ++i) {
                      mean.add(rouge(written[i].summary, summaries[i].text));
                      if (scores.samples.size() < kSamples)
                        scores.samples.push_back({sample_text(written[i].id), sample_text(summaries[i].text),
                                                  sample_text(written[i].summary)});
                    }
                    report("summaries", first + std::ssize(summaries), examples);
                    stop_agreed = any_rank(mesh_.world(), stop_requested());
                    return !stop_agreed;
                  });
  scores.rouge = mean.mean();
  return !stop_agreed;
}

}  // namespace ripstop
