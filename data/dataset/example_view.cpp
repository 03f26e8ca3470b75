#include "data/dataset/example_view.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "data/dataset/pack_plan.h"
#include "data/dataset/sequence_reader.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

ExampleView view_item(const TokenDataset& dataset, const SequenceReader& reader, const PackItem& item) {
  ItemTokens tokens = reader.read(item);
  ExampleView view;
  view.example = item.example;
  view.token = std::move(tokens.token);
  view.targets = std::move(tokens.targets);
  view.document = std::ssize(view.token);
  if (dataset.header().kind == ExampleKind::kText) return view;
  const KeptTokens kept = reader.kept(item);
  view.cuts = cut_places(dataset, item.example, kept);
  const int64_t begin = dataset.example_begin(item.example), end = dataset.example_end(item.example);
  view.turns = dataset.turns(begin, end);
  view.document = end - begin;
  view.cut_document = view.document - kept.count();
  if (dataset.header().kind == ExampleKind::kConversation) return view;
  const TargetSpan& span = dataset.spans(item.example).front();
  view.document = span.cut_end;
  view.separator = span.target_begin - span.cut_end;
  view.summary = span.target_end - span.target_begin;
  view.cut_document = kept.cut_text;
  view.cut_summary = kept.cut_summary;
  return view;
}

}  // namespace

int64_t ExampleView::target_count() const {
  int64_t count = 0;
  for (const TokenRange& range : targets) count += range.size();
  return count;
}

int64_t ExampleView::cut_turns() const {
  int64_t count = 0;
  for (const CutPlace& cut : cuts) count += cut.turns;
  return count;
}

std::vector<ExampleView> view_examples(const TokenDataset& dataset, const std::vector<int64_t>& examples,
                                       const ExampleViewOptions& options) {
  const int64_t length =
      options.sequence_length > 0 ? options.sequence_length : std::numeric_limits<int32_t>::max();
  const SequenceReader reader(dataset, length, options.loss_on);
  std::vector<ExampleView> views;
  for (const int64_t example : examples) {
    RIPSTOP_CHECK(example >= 0 && example < dataset.examples(), "example {} of {}", example,
                  dataset.examples());
    const PackPlan plan(reader.rows().subspan(static_cast<size_t>(example), 1),
                        {.sequence_length = length, .pack = false, .shuffle = false});
    for (int64_t piece = 0; piece < plan.sequences(); ++piece) {
      PackItem item = plan.sequence(piece).front();
      item.example = example;
      views.push_back(view_item(dataset, reader, item));
      views.back().piece = piece;
      views.back().pieces = plan.sequences();
    }
  }
  return views;
}

std::vector<int64_t> draw_examples(int64_t count, int64_t wanted, uint64_t seed) {
  std::vector<int64_t> drawn = keyed_permutation(count, seed);
  drawn.resize(static_cast<size_t>(std::min(count, wanted)));
  return drawn;
}

}  // namespace ripstop
