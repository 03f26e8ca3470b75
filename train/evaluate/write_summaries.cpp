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

void write_summaries(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                     int64_t begin, int64_t end, const GenerationSettings& settings, TakeSummaries take) {
  DeviceMesh& mesh = model.model().mesh();
  const int64_t replicas = mesh.data_ranks();
  const int64_t at_once = replicas * model.options().slots * kExamplesPerSlot;
  for (int64_t first = begin; first < end; first += at_once) {
    const int64_t last = std::min(first + at_once, end);
    // Replica r takes the examples first + r, first + r + replicas, ... Neighbours in a data set are alike,
    // so replicas get about equal work.
    int64_t next = first + mesh.data_rank();
    std::vector<WrittenText> own;
    write_texts(
        model, tokenizer, settings,
        [&]() -> std::optional<DocumentPrompt> {
          if (next >= last) return std::nullopt;
          const int64_t example = next;
          next += replicas;
          const int64_t longest = model.options().context - settings.max_new_tokens;
          return DocumentPrompt{stored_prompt(dataset, example, longest), example};
        },
        [&](WrittenText written) { own.push_back(std::move(written)); });
    // take() must agree on all ranks: ranks that went on would wait in the next gather for those that ended.
    if (!take(first, gather_written(mesh.world(), mesh.sizes().tensor, own))) return;
  }
}

bool write_predictions(InferenceModel& model, const TokenDataset& dataset, const Tokenizer& tokenizer,
                       int64_t examples, const GenerationSettings& settings, PredictionFile* file,
                       FunctionRef<bool()> stop_requested, ReportShare report) {
  // Only rank 0 knows how many predictions the file has.
  const int64_t begin = least_of_all_ranks(model.model().mesh().world(),
                                           file != nullptr ? std::min(file->count(), examples) : examples);
  report(begin, examples);
  bool complete = true;
  write_summaries(
      model, dataset, tokenizer, begin, examples, settings,
      [&](int64_t first, const std::vector<WrittenText>& summaries) {
        if (file != nullptr) {
          std::vector<ExampleText> written = checked_text(dataset, tokenizer, first, std::ssize(summaries));
          for (size_t i = 0; i < summaries.size(); ++i)
            file->append({std::move(written[i].id), summaries[i].text, std::move(written[i].summary),
                          std::move(written[i].document), summaries[i].at_limit});
        }
        const int64_t done = first + std::ssize(summaries);
        report(done, examples);
        const bool stops = least_of_all_ranks(model.model().mesh().world(), stop_requested() ? 0 : 1) == 0;
        complete = done >= examples || !stops;
        return complete;
      });
  return complete;
}

}  // namespace ripstop
