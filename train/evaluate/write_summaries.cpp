#include "train/evaluate/write_summaries.h"

#include <algorithm>

#include "data/dataset/dataset_directory.h"
#include "parallel/agreement.h"

namespace ripstop {
namespace {

// Examples for each slot between two gathers of the texts. More would lose more work in an interruption;
// fewer would make replicas wait for the slowest replica more often.
constexpr int64_t kExamplesPerSlot = 4;

}  // namespace

bool write_summaries(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                     int64_t begin, int64_t end, const GenerationSettings& settings, TakeSummaries take,
                     FunctionRef<bool()> stop_requested) {
  const int64_t longest = model.options().context - settings.max_new_tokens;
  const int64_t at_once = model.model().mesh().data_ranks() * model.options().slots * kExamplesPerSlot;
  for (int64_t first = begin; first < end; first += at_once) {
    // Deals in turn: neighbours in a data set are alike, so replicas get about equal work.
    const std::vector<WrittenText> written =
        write_dealt_texts(model, tokenizer, settings, std::min(at_once, end - first), [&](int64_t i) {
          return DocumentPrompt{stored_prompt(dataset, first + i, longest), first + i};
        });
    do_and_agree(model.model().mesh().world(), [&] { take(first, written); });
    if (any_rank(model.model().mesh().world(), stop_requested())) return false;
  }
  return true;
}

bool write_predictions(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                       int64_t examples, const GenerationSettings& settings, PredictionFile* file,
                       FunctionRef<bool()> stop_requested, ReportShare report) {
  // Only rank 0 knows how many predictions the file has.
  const int64_t begin = least_of_all_ranks(model.model().mesh().world(),
                                           file != nullptr ? std::min(file->count(), examples) : examples);
  report(begin, examples);
  int64_t done = begin;
  const bool stopped = !write_summaries(
      model, dataset, tokenizer, begin, examples, settings,
      [&](int64_t first, const std::vector<WrittenText>& summaries) {
        if (file != nullptr) {
          std::vector<ExampleText> written = checked_text(dataset, tokenizer, first, std::ssize(summaries));
          for (size_t i = 0; i < summaries.size(); ++i)
            file->append({std::move(written[i].id), summaries[i].text, std::move(written[i].summary),
                          std::move(written[i].document), summaries[i].at_limit});
        }
        done = first + std::ssize(summaries);
        report(done, examples);
      },
      stop_requested);
  return !stopped || done >= examples;
}

}  // namespace ripstop
