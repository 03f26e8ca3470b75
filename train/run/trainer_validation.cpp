#include <algorithm>
#include <cmath>

#include "data/text/utf8.h"
#include "parallel/agreement.h"
#include "train/report/human_text.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

// Validations without an improvement after which people are told: one or two are often noise.
constexpr int64_t kValidationsToTell = 3;

// "loss 2.1034  512 targets  rougeL 0.1210".
std::string set_text(const SetScores& scores) {
  if (scores.target_count == 0) return "not validated";
  return fmt::format("loss {:.4f}  {}{}", without_nan_sign(scores.loss),
                     counted(scores.target_count, "target"),
                     scores.rougeL ? fmt::format("  rougeL {:.4f}", *scores.rougeL) : "");
}

// The score by which `keep` chooses; the loss for "none".
std::optional<double> score_of(const ValidationEvent& event, KeepBest keep) {
  return keep == KeepBest::kRougeL ? event.rougeL : event.loss;
}

}  // namespace

// Whether new scores are means over the same data sets, with the same data.weights, as those in `saved`.
bool Trainer::validates_like(const CheckpointState& saved) const {
  const auto validated = words_in(saved.validation_content_hash);
  bool alike = parse_run_config(saved.config, "the checkpoint's config").data.draws_like(run_.config.data);
  const size_t sets = std::min(validated.size(), run_.validation.size());
  for (size_t set = 0; set < sets && run_.validation.size() > 1 && validation_.any(); ++set)
    alike &= (validated[set] == ValidationSet::kNone) == !run_.validation[set].dataset;
  return alike;
}

// Takes the scores of the initial weights from the log, if an earlier start validated them. Collective.
void Trainer::find_start_scores(const MetricsLog& log) {
  if (!run_.config.train.validate_at_start || state_.validated_step > 0) return;
  for (const ValidationEvent& event : log.validations)
    if (event.step == 0) start_scores_ = event;
  start_is_validated_ = all_ranks(mesh_.world(), !leads_ || start_scores_);
}

// Validations are due before step 1 with validate_at_start and, unless validate_every is 0, every
// validate_every steps and after the last step; at most one for each step.
bool Trainer::validation_is_due_at(int64_t step) const {
  const TrainSection& train = run_.config.train;
  if (!validation_.any()) return false;
  if (step == 0) return train.validate_at_start && !start_is_validated_;
  if (train.validate_every == 0 || state_.validated_step == step) return false;
  return step == steps_ || step % train.validate_every == 0;
}

bool Trainer::has_stopped_improving() const {
  const int64_t most = run_.config.train.stop_after_validations;
  // The count has a meaning only for the metric of the best score.
  const bool same_metric = !state_.best || state_.best->metric == to_string(run_.config.checkpoint.keep_best);
  return most > 0 && same_metric && state_.validations_since_best >= most;
}

// Validates. Saves a new best state at once, so that "best" names an existing checkpoint. Also saves
// if the step was saved before its validation, so that a resumed run does not repeat the validation. Returns
// false if a stop was requested; the run then validates when it goes on. Collective.
bool Trainer::validate_and_save() {
  const ProfilerRange range(stream_, "validation");
  const Clock::time_point begin = Clock::now();
  const bool late = saves_->has(state_.step);
  LookIntervals intervals;
  // Uses the deadline of steps, unless summaries may keep one rank busy for longer than a step.
  if (!run_.summaries) world_.set_deadline(deadline_.in_step());
  const std::optional<ValidationScores> scores = validation_.measure(
      *step_, ledger_, [&] { return stop_requested(intervals.look()); },
      [&](std::string_view part, int64_t done, int64_t total) {
        if (log_.live_is_due())
          log_.show(fmt::format("validating step {}: {} {}/{}", state_.step, part, done, total));
      });
  world_.set_deadline(deadline_.outside_steps());
  log_.end_live_line();
  if (!scores) return false;
  const bool better = accept_scores(*scores);
  const double seconds = seconds_since(begin);
  if (time_limit_) time_limit_->took_validation(seconds);
  report_scores(*scores, seconds, better);
  if (better || late) save();
  return true;
}

// Returns true if the scores are the best so far and the config keeps the best checkpoint. Initial weights
// are not saved, so their scores are never the best.
bool Trainer::accept_scores(const ValidationScores& scores) {
  if (state_.step == 0) {
    start_is_validated_ = true;
    return false;
  }
  state_.validated_step = state_.step;
  const KeepBest keep = run_.config.checkpoint.keep_best;
  // With "none" the count of validations stays as it is, for a later start with a metric.
  if (keep == KeepBest::kNone) return false;
  const bool by_rouge = keep == KeepBest::kRougeL;
  const double value = by_rouge ? scores.rouge->rouge_l.fmeasure : scores.loss;
  const auto beats = [&](const BestSoFar& best) {
    // A best score by another metric (keep_best was changed) does not count.
    return best.metric != to_string(keep) || (by_rouge ? value > best.value : value < best.value);
  };
  const bool better =
      scores.target_count > 0 && std::isfinite(value) && (!state_.best || beats(*state_.best));
  if (better)
    state_.best = BestSoFar{.metric = std::string(to_string(keep)), .value = value, .step = state_.step};
  state_.validations_since_best = better ? 0 : state_.validations_since_best + 1;
  return better;
}

void Trainer::report_scores(const ValidationScores& scores, double seconds, bool better) {
  if (!leads_) return;
  ValidationEvent event;
  event.step = state_.step;
  event.loss = scores.loss;
  event.target_count = scores.target_count;
  event.seconds = seconds;
  event.best = better;
  std::string rouge;
  if (scores.rouge) {
    event.rouge1 = scores.rouge->rouge1.fmeasure;
    event.rouge2 = scores.rouge->rouge2.fmeasure;
    event.rougeL = scores.rouge->rouge_l.fmeasure;
    event.samples = scores.samples;
    rouge = fmt::format("  rouge1 {:.4f}  rouge2 {:.4f}  rougeL {:.4f}", *event.rouge1, *event.rouge2,
                        *event.rougeL);
  }
  if (!scores.sets.empty()) event.sets = scores.sets;
  log_.write(event);
  const int64_t most = run_.config.train.stop_after_validations;
  std::string note = better ? "  best" : "";
  if (state_.step == 0) note = "  initial weights";
  if (most > 0 && state_.validations_since_best > 0)
    note = fmt::format("  {} of {} without improvement", state_.validations_since_best, most);
  log_.say(fmt::format("validation at step {}  loss {:.4f}  perplexity {}  {}{}  {:.1f}s{}", state_.step,
                       without_nan_sign(event.loss), perplexity_text(event.loss),
                       counted(event.target_count, "target"), rouge, event.seconds, note));
  for (size_t set = 0; set < scores.sets.size(); ++set)
    log_.say(fmt::format("  {}  {}", run_.config.data.directories[set], set_text(scores.sets[set])));
  compare_with_start(event);
  // With stop_after_validations, the validation's line counts those without an improvement.
  if (most == 0 && state_.validations_since_best == kValidationsToTell && state_.best)
    log_.warn(fmt::format("the validation has not improved since step {}: {} {:.4f}", state_.best->step,
                          state_.best->metric, state_.best->value));
}

// At the first validation after step 1, says whether training has improved on the initial weights.
void Trainer::compare_with_start(const ValidationEvent& event) {
  if (event.step == 0) {
    start_scores_ = event;
    return;
  }
  const KeepBest keep = run_.config.checkpoint.keep_best;
  const std::optional<double> now = score_of(event, keep);
  const std::optional<double> before = start_scores_ ? score_of(*start_scores_, keep) : std::nullopt;
  start_scores_.reset();
  if (!now || !before) return;
  const bool by_rouge = keep == KeepBest::kRougeL;
  const std::string change = fmt::format("{} {:.4f} -> {:.4f}", by_rouge ? "rougeL" : "loss",
                                         without_nan_sign(*before), without_nan_sign(*now));
  if (by_rouge ? *now > *before : *now < *before)
    log_.say("better than before step 1: " + change);
  else
    log_.warn(
        fmt::format("the validation at step {} is no better than that before step 1: {}; if the next ones "
                    "are not either, begin a new run with a lower optimizer.learning_rate",
                    event.step, change));
}

}  // namespace ripstop
