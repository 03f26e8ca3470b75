#include "data/dataset/kept_tokens.h"

#include <algorithm>

#include "model/core/error.h"

namespace ripstop {
namespace {

KeptTokens keep_first(int64_t count, bool has_targets = true) {
  return {{TokenRange{0, count}}, has_targets};
}

/// The parts of an example that stay: [0, head) and [begin, end).
struct LastTurns {
  int64_t head = 0, begin = 0, end = 0;
  size_t span = 0;  ///< the first span of [begin, end)
  int64_t count() const { return head + end - begin; }
};

/// Drops the oldest turns behind the head, up to a turn of the user each time, while the rest is too long.
LastTurns last_turns(const TokenDataset& dataset, int64_t example, int64_t end, int64_t longest) {
  const auto spans = dataset.spans(example);
  const int64_t head = dataset.head(example);
  LastTurns turns{head, head, end};
  for (size_t k = 1; k < spans.size() && turns.count() > longest; ++k)
    if (spans[k].cut_begin < spans[k].cut_end)
      turns = {.head = head, .begin = spans[k - 1].target_end, .end = end, .span = k};
  return turns;
}

/// Whether `loss_on` applies to files of `kind`.
bool is_word_for(ExampleKind kind, LossOn loss_on) {
  if (loss_on == LossOn::kAuto || loss_on == LossOn::kAll) return true;
  return (loss_on != LossOn::kSummary) == (kind == ExampleKind::kConversation);
}

}  // namespace

LossOn resolve_loss_on(const TokenDatasetHeader& header, LossOn loss_on, const std::string& name) {
  const bool chat = header.kind == ExampleKind::kConversation;
  if (loss_on == LossOn::kAuto || !is_word_for(header.kind, loss_on) || (chat && loss_on == LossOn::kAll))
    loss_on = chat ? LossOn::kAssistant : LossOn::kSummary;
  if (chat && loss_on != LossOn::kLast && !header.why_only_last.empty())
    throw Error(
        ExitCode::kUsage,
        fmt::format("the loss cannot be on all turns of the assistant of {}: {}", name, header.why_only_last),
        "data.loss_on=last counts the last turn of each conversation");
  return loss_on;
}

void require_loss_on(std::span<const TokenDataset> datasets, LossOn loss_on) {
  for (const TokenDataset& dataset : datasets)
    if (is_word_for(dataset.header().kind, loss_on)) return;
  const bool chat = loss_on == LossOn::kSummary;
  throw Error(ExitCode::kUsage,
              fmt::format("data.loss_on is \"{}\", but {} has {}conversations",
                          chat                       ? "summary"
                          : loss_on == LossOn::kLast ? "last"
                                                     : "assistant",
                          datasets.front().path().string(), chat ? "" : "no "),
              chat ? "\"assistant\" counts all turns of the assistant, \"last\" the last alone"
                   : "\"summary\" counts summaries, \"all\" every token");
}

std::string loss_on_note(const TokenDatasetHeader& header, LossOn loss_on) {
  if (loss_on != LossOn::kAll || header.kind != ExampleKind::kConversation) return "";
  return "data.loss_on \"all\" counts all turns of the assistant in conversations, as \"assistant\" does: "
         "system and user turns never count";
}

KeptTokens keep_tokens(const TokenDataset& dataset, int64_t example, int64_t longest, LossOn loss_on) {
  const int64_t count = dataset.example_end(example) - dataset.example_begin(example);
  const ExampleKind kind = dataset.header().kind;
  if (count <= longest || kind == ExampleKind::kText) return keep_first(count);
  const auto spans = dataset.spans(example);
  LastTurns turns;
  if (loss_on == LossOn::kLast) {
    turns = last_turns(dataset, example, spans.back().target_end, longest);
  } else {
    for (size_t k = spans.size(); k-- > 0;)
      if (spans[k].target_end <= longest) return keep_first(spans[k].target_end);
    turns.end = spans.front().target_end;
  }
  const int64_t surplus = std::max<int64_t>(turns.count() - longest, 0);
  const TargetSpan& first = spans[turns.span];
  const int64_t cut = std::min<int64_t>(surplus, first.cut_end - first.cut_begin);
  if (cut < surplus && kind == ExampleKind::kConversation) return keep_first(2, /*has_targets=*/false);
  // If the tokens before the document already fill `longest`, no cut of the document helps: only they stay.
  KeptTokens kept = keep_first(longest);
  if (longest > first.cut_begin || cut == surplus)
    kept.parts = {TokenRange{0, turns.head},
                  {turns.begin, first.cut_end - cut},
                  {first.cut_end, turns.end - (surplus - cut)}};
  kept.cut_text = cut;
  kept.cut_summary = surplus - cut;
  return kept;
}

KeptTokens keep_prompt(const TokenDataset& dataset, int64_t example, int64_t longest) {
  const LastTurns turns = last_turns(dataset, example, dataset.spans(example).back().target_begin, longest);
  return {{TokenRange{0, turns.head}, {turns.begin, turns.end}}};
}

std::vector<TokenRange> kept_targets(const TokenDataset& dataset, int64_t example, const KeptTokens& kept,
                                     LossOn loss_on) {
  if (!kept.has_targets) return {};
  if (loss_on == LossOn::kAll) return {{1, kept.count()}};
  auto spans = dataset.spans(example);
  if (loss_on == LossOn::kLast) spans = spans.last(1);
  std::vector<TokenRange> targets;
  int64_t before = 0;
  for (const TokenRange& part : kept.parts) {
    for (const TargetSpan& span : spans) {
      // The first kept token is no target, because no token before it predicts it.
      const int64_t begin = std::max<int64_t>({span.target_begin, part.begin, part.begin + 1 - before});
      const int64_t end = std::min<int64_t>(span.target_end, part.end);
      if (begin < end) targets.push_back({before + begin - part.begin, before + end - part.begin});
    }
    before += part.size();
  }
  return targets;
}

std::vector<int32_t> read_kept(const TokenDataset& dataset, int64_t example, const KeptTokens& kept) {
  std::vector<int32_t> tokens(static_cast<size_t>(kept.count()));
  const int64_t begin = dataset.example_begin(example);
  int32_t* to = tokens.data();
  for (const TokenRange& part : kept.parts) {
    dataset.read_tokens(begin + part.begin, begin + part.end, to);
    to += part.size();
  }
  return tokens;
}

std::vector<CutPlace> cut_places(const TokenDataset& dataset, int64_t example, const KeptTokens& kept) {
  const int64_t begin = dataset.example_begin(example), count = dataset.example_end(example) - begin;
  std::vector<CutPlace> places;
  int64_t at = 0, end = 0;
  const auto add = [&](int64_t to) {
    if (end < to) places.push_back({at, to - end, dataset.turns(begin + end, begin + to)});
  };
  for (const TokenRange& part : kept.parts) {
    if (part.size() == 0) continue;
    add(part.begin);
    at += part.size();
    end = part.end;
  }
  add(count);
  return places;
}

int64_t kept_place(const KeptTokens& kept, int64_t place) {
  int64_t before = 0;
  for (const TokenRange& part : kept.parts) before += std::clamp(place - part.begin, int64_t{0}, part.size());
  return before;
}

}  // namespace ripstop
