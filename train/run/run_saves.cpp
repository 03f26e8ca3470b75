#include "train/run/run_saves.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "parallel/agreement.h"
#include "parallel/rank_names.h"
#include "train/report/human_text.h"
#include "train/run/step_clock.h"

namespace ripstop {
namespace {

// The number of failed saves in a row that ends the run. A single failure may have a passing cause, for
// example a disk that is full for a moment.
constexpr int64_t kFailuresInARow = 3;

// The pause between two votes of ranks that wait for disks.
constexpr std::chrono::milliseconds kPiecePause{5};

}  // namespace

RunSaves::RunSaves(SavedRun lent, const Stream& compute, MemoryLedger& ledger,
                   const std::vector<UnitStates>& units, const CheckpointState& state)
    : lent_(lent),
      units_(units.size()),
      most_units_(std::ranges::max(of_all_ranks(mesh().world(), units_))),
      plan_(lent.run.snapshot),
      saved_step_(state.step > 0 && !lent.state_is_unsaved ? state.step : -1),
      committed_best_(state.best) {
  take_copies(compute, plan_.beside_device ? host_ledger_ : ledger, units);
  const bool keeps_all = snapshot_->kept() == std::ssize(snapshot_->shards());
  is_whole_ = all_ranks(mesh().world(), keeps_all);
  writer_.emplace(posix_io(), lent_.run.checkpoints(), mesh().world(), mesh().sizes(),
                  lent_.run.trained_table(), *snapshot_);
}

// The system may refuse pinned memory even though the machine has enough. If the config sets no size, tries
// again with less memory. Collective.
void RunSaves::take_copies(const Stream& compute, MemoryLedger& ledger,
                           const std::vector<UnitStates>& units) {
  const bool may_take_less = plan_.beside_device && plan_.takes_the_rest;
  snapshot_.emplace(compute, ledger, units, mesh().sizes(), mesh().position(),
                    may_take_less ? 0 : plan_.most_bytes);
  if (!may_take_less) return;
  const int64_t wanted = plan_.kept_bytes;
  while (true) {
    bool refused = false;
    try {
      snapshot_->keep(plan_.most_bytes);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kResources) throw;
      refused = true;
    }
    if (!any_rank(mesh().world(), refused)) break;
    limit_copies(plan_, lent_.run.trained_table(), mesh().sizes(), lent_.run.step.adamw.moments,
                 std::min(plan_.most_bytes, plan_.kept_bytes) / 2);
  }
  if (plan_.kept_bytes < wanted)
    lent_.log.warn(
        fmt::format("the system refuses a rank {} of pinned host memory for copies of a save: it has {}, and "
                    "updates of the other units wait until they are written",
                    bytes_text(wanted), bytes_text(plan_.kept_bytes)));
}

// After the deadline of saves, a disk without progress ends the run, like a missing rank.
DiskPatience RunSaves::patience() const {
  return {.seconds = lent_.deadline.outside_steps(), .hosts = mesh().hosts()};
}

void RunSaves::save(const CheckpointState& state, bool in_background) {
  if (begin(state, lent_.run.config.checkpoint.keep, in_background) && !in_background) commit();
}

void RunSaves::save_now(const CheckpointState& state, int64_t keep, bool stops) {
  finish();
  if (saved_step_ == state.step) return;
  do failed_step_ = -1;  // each failed try counts, so that the tries end
  while (!begin(state, keep, /*in_background=*/false, stops) || !commit());
}

// Commits the save under way, if any, and begins the next. Returns false if the next could not begin.
bool RunSaves::begin(const CheckpointState& state, int64_t keep, bool in_background, bool stops) {
  const Clock::time_point since = Clock::now();
  const bool waits = is_under_way();
  finish();
  const double waited = waits ? seconds_since(since) : 0;
  const RecordedRange range(lent_.recorder, "begin save");
  SavePolicy policy{
      .keep = keep, .in_background = in_background, .patience = patience(), .recorder = lent_.recorder};
  if (lent_.directory) {
    policy.watch = [this] { lent_.directory->check_owner(); };
    policy.check_owner = [this] { lent_.directory->check_still_owned(); };
  }
  const Clock::time_point begin = Clock::now();
  lent_.log.show(
      fmt::format("saving step {}{}", state.step, stops ? "; a second Ctrl-C ends the run without it" : ""));
  try {
    do_and_agree(mesh().world(), [&] {
      if (!lent_.directory) return;
      lent_.directory->check_still_owned();
      lent_.log.sync();
    });
    writer_->begin(state, policy);
  } catch (const Error& error) {
    take_failure(error, state);
    return false;
  }
  under_way_ = UnderWay{.state = state, .in_background = in_background};
  is_held_ = true;
  if (in_background) lent_.log.end_live_line();
  under_way_->begin_seconds = under_way_->stood_seconds = seconds_since(begin);
  lent_.log.write(SaveEvent{.step = state.step, .state = SaveState::kBegun, .waited_seconds = waited});
  return true;
}

// Waits until all ranks have written the save under way. Returns false if the save failed.
bool RunSaves::commit() {
  const Clock::time_point since = Clock::now();
  const UnderWay save = *std::exchange(under_way_, std::nullopt);
  const RecordedRange range(lent_.recorder, "commit save");
  RunLog& log = lent_.log;
  if (save.in_background && writer_->is_writing())
    log.show(fmt::format("waiting until step {} is saved", save.state.step));
  SaveReport report;
  try {
    report = writer_->commit(save.still);
  } catch (const Error& error) {
    take_failure(error, save.state);
    return false;
  }
  is_held_ = false;
  saved_step_ = save.state.step;
  committed_best_ = save.state.best;
  failures_ = 0;
  log.end_live_line();
  for (const std::string& text : report.warnings) log.warn(text);
  const double waited = save.stood_seconds + seconds_since(since);
  // The time since the save began would be too long: a background save may be written long before the end of
  // the step that commits it.
  const double seconds = std::max(save.begin_seconds + report.seconds, waited);
  if (lent_.time_limit) lent_.time_limit->took_save(seconds);
  log.write(CheckpointEvent{.step = save.state.step,
                            .path = report.directory.string(),
                            .bytes = report.bytes,
                            .seconds = seconds,
                            .waited_seconds = waited});
  log.say(fmt::format("checkpoint {}  {}  {:.1f}s{}", report.directory.string(), bytes_text(report.bytes),
                      seconds, save.in_background ? fmt::format(", training waited {:.1f}s", waited) : ""));
  return true;
}

void RunSaves::after_step(const StepResult& step) {
  is_held_ = false;
  if (!under_way_) return;
  if (step.sum.saving_ranks == 0)
    commit();
  else if (step.sum.still_disks > 0 && !under_way_->is_told)
    tell_of_still_disks();
}

SaveWork RunSaves::work(double step_seconds) {
  if (!under_way_ || !writer_->is_writing()) return SaveWork::kNone;
  const Clock::time_point before = std::exchange(under_way_->looked_at, Clock::now());
  // The time since the last look at the disk counts as time without progress, but only up to kShort seconds
  // or kMostSteps steps, whichever is longer: beyond that, this process was stopped or busy.
  constexpr double kShort = 1, kMostSteps = 2;
  const double passed = std::min(std::chrono::duration<double>(under_way_->looked_at - before).count(),
                                 std::max(kShort, kMostSteps * step_seconds));
  DiskStillness& still = under_way_->still;
  if (const int64_t now = writer_->progress(); std::exchange(still.progress, now) != now)
    still.seconds = 0;
  else
    still.seconds += passed;
  return still.seconds > lent_.deadline.outside_steps() ? SaveWork::kStands : SaveWork::kWrites;
}

// Warns and does not throw, because training needs no disk until the next save. Collective.
void RunSaves::tell_of_still_disks() {
  std::vector<int64_t> ranks;
  const double most = lent_.deadline.outside_steps();
  const std::vector<int64_t> stands =
      of_all_ranks(mesh().world(), under_way_->still.seconds > most ? int64_t{1} : 0);
  for (size_t r = 0; r < stands.size(); ++r)
    if (stands[r] == 1) ranks.push_back(static_cast<int64_t>(r));
  under_way_->is_told = true;
  lent_.log.warn(fmt::format(
      "{} wrote nothing for {:.0f} s in the save of step {}: the storage there does not answer; "
      "training goes on, and if it does not answer by then, the run ends when the next save is due",
      ranks_and_hosts(ranks, mesh().hosts()), most, under_way_->state.step));
}

void RunSaves::take_failure(const Error& error, const CheckpointState& state) {
  is_held_ = false;
  lent_.log.end_live_line();
  if (error.code() != ExitCode::kStorage) throw error;
  // check_still_owned() would read files, but the disk may have failed.
  do_and_agree(mesh().world(), [&] {
    if (lent_.directory) lent_.directory->check_owner();
  });
  for (CheckpointState* each : lent_.states)
    if (each->best && each->best->step == state.step) each->best = committed_best_;
  lent_.log.write(SaveEvent{.step = state.step, .state = SaveState::kFailed});
  // One step may be saved twice, for a validation and because a save is due, but its failures count once.
  if (std::exchange(failed_step_, state.step) != state.step) ++failures_;
  if (failures_ >= kFailuresInARow)
    throw Error(error.code(),
                fmt::format("{} saves in a row failed, the last with: {}", failures_, error.what()),
                error.hint());
  lent_.log.warn(fmt::format("step {} was not saved: {}{}{}; {}", state.step, error.what(),
                             error.hint().empty() ? "" : ": ", error.hint(),
                             saved_step_ > 0
                                 ? fmt::format("the newest checkpoint is that of step {}", saved_step_)
                                 : "there is no checkpoint yet"));
}

// If all ranks have copies of all their arrays, each rank waits alone, for a moment. Otherwise a wait may be
// as long as a write to a slow disk, so all ranks wait together: ranks in the next step's collectives would
// take a waiting rank for dead.
void RunSaves::await(size_t unit) {
  if (!is_held_) return;
  const RecordedRange range(lent_.recorder, "wait for save");
  const Clock::time_point since = Clock::now();
  const double in_collectives = mesh().seconds_waited_in_all();
  if (is_whole_) {
    snapshot_->wait_for(unit);
  } else {
    DiskVotes votes(mesh().world(), patience());
    while (!votes.all_done(snapshot_->is_free(unit), writer_->progress())) {
      if (lent_.directory) lent_.directory->check_owner();
      std::this_thread::sleep_for(kPiecePause);
    }
  }
  const double waited = seconds_since(since);
  wait_seconds_ += waited;
  alone_seconds_ += waited - (mesh().seconds_waited_in_all() - in_collectives);
  if (under_way_) under_way_->stood_seconds += waited;
}

}  // namespace ripstop
