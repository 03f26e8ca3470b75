#include "train/generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ripstop {
namespace {

float penalized(float sum, int64_t length, double length_penalty) {
  return sum / static_cast<float>(std::pow(static_cast<double>(length), length_penalty));
}

}  // namespace

BeamSearch::BeamSearch(const GenerateOptions& options, NumberedPrompt prompt)
    : options_(options), prompt_(std::ssize(prompt.tokens)) {
  beams_.push_back({.tokens = std::move(prompt.tokens)});
}

void BeamSearch::add_rows(int64_t slot, std::vector<SlotTokens>& rows) const {
  if (length_ == 0) {
    rows.push_back({.slot = slot, .tokens = beams_.front().tokens});
    return;
  }
  for (int64_t b = 0; b < std::ssize(beams_); ++b) {
    const Beam& beam = beams_[static_cast<size_t>(b)];
    rows.push_back({.slot = slot,
                    .first_position = prompt_ + length_ - 1,
                    .tokens = std::span(beam.tokens).last(1),
                    .beam = b,
                    .prompt = prompt_,
                    .places = beam.places});
  }
}

bool BeamSearch::accept(std::span<const LogitRow> next) {
  const std::vector<Candidate> candidates = best_candidates(next);
  ++length_;
  const int64_t beams = options_.settings.num_beams;
  for (int64_t i = 0; i < std::min(beams, std::ssize(candidates)); ++i) {
    const Candidate& candidate = candidates[static_cast<size_t>(i)];
    if (!ends(candidate)) continue;
    std::vector<int32_t> tokens = beams_[candidate.beam].tokens;
    const bool ended = options_.ends(candidate.id);
    if (!ended) tokens.push_back(candidate.id);
    keep(std::move(tokens), ended, candidate.score);
  }
  if (candidates.empty()) {
    // All ids are banned, so the beams end as they were before this step.
    --length_;
    for (Beam& beam : beams_) keep(std::move(beam.tokens), false, beam.score);
    return true;
  }
  continue_with(candidates);
  return beams_.empty() || !can_improve();
}

// The num_beams * (1 + end tokens) best continuations. Each beam has at most one continuation for each end
// token, so num_beams continuations go on, unless bans leave too few.
std::vector<BeamSearch::Candidate> BeamSearch::best_candidates(std::span<const LogitRow> next) const {
  const int64_t count = (1 + std::ssize(options_.end_tokens)) * options_.settings.num_beams;
  std::vector<Candidate> all;
  for (size_t b = 0; b < beams_.size(); ++b) {
    const PartialText text{beams_[b].tokens, prompt_};
    const std::vector<int32_t> banned = options_.banned(text);
    for (const ScoredToken& token : best_tokens(next[b].of_ids(options_.ids), banned, count))
      all.push_back({b, token.id, next[b].log_probability(token.id) + beams_[b].score});
  }
  // The stable sort keeps ties in the order of beam and logit.
  std::ranges::stable_sort(all, std::ranges::greater(), &Candidate::score);
  if (std::ssize(all) > count) all.resize(static_cast<size_t>(count));
  return all;
}

bool BeamSearch::ends(const Candidate& candidate) const {
  return options_.ends(candidate.id) || length_ == options_.settings.max_new_tokens;
}

// Keeps the text if it is one of the best num_beams that have ended.
void BeamSearch::keep(std::vector<int32_t> tokens, bool ended, float sum) {
  const float score = penalized(sum, std::max<int64_t>(length_, 1), options_.settings.length_penalty);
  const auto place =
      std::find_if(ended_.begin(), ended_.end(), [&](const EndedText& other) { return score > other.score; });
  ended_.insert(place, {std::move(tokens), ended, score});
  if (std::ssize(ended_) > options_.settings.num_beams) ended_.pop_back();
}

void BeamSearch::continue_with(const std::vector<Candidate>& candidates) {
  std::vector<Beam> beams;
  for (const Candidate& candidate : candidates) {
    if (ends(candidate) || std::ssize(beams) == options_.settings.num_beams) continue;
    Beam beam = beams_[candidate.beam];
    const int64_t place = prompt_ + (length_ - 1) * options_.settings.num_beams + std::ssize(beams);
    beam.tokens.push_back(candidate.id);
    beam.places.push_back(static_cast<int32_t>(place));
    beam.score = candidate.score;
    beams.push_back(std::move(beam));
  }
  beams_ = std::move(beams);
}

// Whether, by settings.early_stopping, the best beam could still become one of the best texts.
bool BeamSearch::can_improve() const {
  const GenerationSettings& settings = options_.settings;
  if (std::ssize(ended_) < settings.num_beams) return true;
  if (settings.early_stopping == EarlyStopping::kTrue) return false;
  const bool longest = settings.early_stopping == EarlyStopping::kNever && settings.length_penalty > 0;
  const int64_t length = longest ? settings.max_new_tokens : length_;
  return penalized(beams_.front().score, length, settings.length_penalty) > ended_.back().score;
}

Continuation BeamSearch::take() {
  EndedText& best = ended_.front();
  best.tokens.erase(best.tokens.begin(), best.tokens.begin() + prompt_);
  return {std::move(best.tokens), best.ended};
}

}  // namespace ripstop
