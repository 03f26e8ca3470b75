// The saves of a run: beside training, between steps, and what happens if one fails.
#include <algorithm>
#include <filesystem>
#include <thread>

#include "parallel/agreement.h"
#include "parallel/rank_names.h"
#include "train/report/human_text.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

// One may be bad luck, as a disk that is full for a moment. Several in a row are not.
constexpr int64_t kFailuresInARow = 3;

// How long ranks that wait for each other's disks sleep between two votes.
constexpr std::chrono::milliseconds kPiecePause{5};

}  // namespace

// Before any save. Without saves beside training the snapshot keeps no copies.
void Trainer::prepare_saves() {
  const std::vector<UnitStates> states = live_states(step_->model(), step_->optimizer());
  take_snapshot_memory(states);
  const bool keeps_all = snapshot_->kept() == std::ssize(snapshot_->shards());
  snapshot_is_whole_ = least_of_all_ranks(mesh_.world(), keeps_all ? 1 : 0) == 1;
  writer_.emplace(io_, std::filesystem::path(options_.config.run.directory) / "checkpoints", mesh_.world(),
                  mesh_.sizes(), *snapshot_);
  committed_best_ = state_.best;
}

// A system may refuse pinned memory though the machine has as much. If no limit is given, fewer copies do.
void Trainer::take_snapshot_memory(const std::vector<UnitStates>& states) {
  SnapshotPlan& plan = resolved_.snapshot;
  const bool may_take_less = plan.beside_device && plan.takes_the_rest;
  snapshot_.emplace(stream_, plan.beside_device ? host_ledger_ : ledger_, states, mesh_.sizes(),
                    mesh_.position(), may_take_less ? 0 : plan.most_bytes);
  if (!may_take_less) return;
  const int64_t wanted = plan.kept_bytes;
  while (true) {
    bool refused = false;
    try {
      snapshot_->keep(plan.most_bytes);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kResources) throw;
      refused = true;
    }
    if (least_of_all_ranks(mesh_.world(), refused ? 0 : 1) == 1) break;
    limit_copies(plan, resolved_.trained_table(), mesh_.sizes(), resolved_.step.adamw.moments,
                 std::min(plan.most_bytes, plan.kept_bytes) / 2);
  }
  if (plan.kept_bytes < wanted)
    warn(
        fmt::format("the system refuses a rank {} of pinned host memory for copies of a save: it has {}, and "
                    "updates of the other units wait until they are written",
                    bytes_text(wanted), bytes_text(plan.kept_bytes)));
}

// A disk that does nothing is a rank that does not come: it ends the run after the deadline of saves.
DiskPatience Trainer::disk_patience() const {
  return {.seconds = deadline_.outside_steps(), .hosts = mesh_.hosts()};
}

// Saves when a checkpoint is due. Training goes on meanwhile if it has steps left.
void Trainer::save() {
  const bool in_background =
      options_.config.checkpoint.asynchronous && state_.step < steps_ && !has_stopped_improving();
  if (begin_save(state_, options_.config.checkpoint.keep, in_background) && !in_background) finish_save();
}

// Saves before the run ends: there are no later steps with which it could go on after a failure, so it tries
// again until three saves in a row have failed, which throws.
void Trainer::save_now(const CheckpointState& state, int64_t keep) {
  if (saving_) finish_save();
  if (saved_step_ == state.step) return;
  while (!begin_save(state, keep, /*in_background=*/false) || !finish_save()) continue;
}

// Waits for the save under way, if there is one, and begins the next. False if that failed.
bool Trainer::begin_save(const CheckpointState& state, int64_t keep, bool in_background) {
  const Clock::time_point since = Clock::now();
  double waited = 0;
  if (saving_) {
    finish_save();
    waited = seconds_since(since);
  }
  SavePolicy policy{.keep = keep, .in_background = in_background, .patience = disk_patience()};
  if (leads_) {
    policy.watch = [this] { directory_->check_owner(); };
    policy.check_owner = [this] { directory_->check_still_owned(); };
  }
  const Clock::time_point begin = Clock::now();
  show(fmt::format("saving step {}{}", state.step,
                   stop_agreed_ ? "; a second Ctrl-C ends the run without it" : ""));
  try {
    do_and_agree(mesh_.world(), [&] {
      if (!leads_) return;
      directory_->check_still_owned();
      sync_log();
    });
    writer_->begin(state, policy);
  } catch (const Error& error) {
    take_failed_save(error, state);
    return false;
  }
  saving_ = SaveUnderWay{.state = state, .in_background = in_background};
  is_held_ = true;
  if (in_background) end_live_line();
  saving_->begin_seconds = saving_->stood_seconds = seconds_since(begin);
  if (leads_) log(SaveEvent{.step = state.step, .state = SaveState::kBegun, .waited_seconds = waited});
  return true;
}

// Waits until all ranks have written the save under way, and commits it. False if it failed: then all ranks
// know, and training goes on with the checkpoints before it, unless too many have failed.
bool Trainer::finish_save() {
  const Clock::time_point since = Clock::now();
  const SaveUnderWay save = *std::exchange(saving_, std::nullopt);
  if (save.in_background && writer_->is_writing())
    show(fmt::format("waiting until step {} is saved", save.state.step));
  SaveReport report;
  try {
    report = writer_->commit(save.still);
  } catch (const Error& error) {
    take_failed_save(error, save.state);
    return false;
  }
  is_held_ = false;
  saved_step_ = save.state.step;
  committed_best_ = save.state.best;
  failed_saves_ = 0;
  end_live_line();
  if (!leads_) return true;
  for (const std::string& text : report.warnings) warn(text);
  const double waited = save.stood_seconds + seconds_since(since);
  // Not until now: a save beside training is written before the end of the step that commits it.
  const double seconds = std::max(save.begin_seconds + report.seconds, waited);
  if (time_limit_) time_limit_->took_save(seconds);
  log(CheckpointEvent{.step = save.state.step,
                      .path = report.directory.string(),
                      .bytes = report.bytes,
                      .seconds = seconds,
                      .waited_seconds = waited});
  say(fmt::format("checkpoint {}  {}  {:.1f}s{}", report.directory.string(), bytes_text(report.bytes),
                  seconds, save.in_background ? fmt::format(", training waited {:.1f}s", waited) : ""));
  return true;
}

bool Trainer::can_be_destroyed() {
  constexpr std::chrono::seconds kPatience{3};
  if (directory_ && directory_->is_stuck()) return false;
  return !writer_ || writer_->ends_within(kPatience);
}

// After each step: all ranks saw in the step's sums whether any of them was still writing.
void Trainer::commit_if_written() {
  if (!saving_) return;
  if (all_have_written_) {
    finish_save();
  } else if (a_disk_stands_ && !saving_->is_told) {
    tell_of_still_disks();
  }
}

// Once in a step.
SaveWork Trainer::save_work() {
  if (!saving_ || !writer_->is_writing()) return SaveWork::kNone;
  const Clock::time_point before = std::exchange(saving_->looked_at, Clock::now());
  // If it took longer, this process was stopped, or did something else: the disk is not to blame for that.
  constexpr double kShort = 1, kMostSteps = 2;
  const double passed = std::min(std::chrono::duration<double>(saving_->looked_at - before).count(),
                                 std::max(kShort, kMostSteps * smoothed_step_seconds_));
  DiskStillness& still = saving_->still;
  if (const int64_t now = writer_->progress(); std::exchange(still.progress, now) != now)
    still.seconds = 0;
  else
    still.seconds += passed;
  return still.seconds > deadline_.outside_steps() ? SaveWork::kStands : SaveWork::kWrites;
}

// Collective. Training needs no disk until the next save, and that of a rank may come back before.
void Trainer::tell_of_still_disks() {
  std::vector<int64_t> ranks;
  const double most = deadline_.outside_steps();
  const std::vector<int64_t> stands = all_gather_number(mesh_.world(), saving_->still.seconds > most ? 1 : 0);
  for (size_t r = 0; r < stands.size(); ++r)
    if (stands[r] == 1) ranks.push_back(static_cast<int64_t>(r));
  saving_->is_told = true;
  warn(fmt::format(
      "{} wrote nothing for {:.0f} s in the save of step {}: the storage there does not answer; "
      "training goes on, and if it does not answer by then, the run ends when the next save is due",
      ranks_and_hosts(ranks, mesh_.hosts()), most, saving_->state.step));
}

// A save failed on all ranks alike. The last good checkpoint stays, and training goes on; but not if this
// process no longer owns the run, and not after several in a row.
void Trainer::take_failed_save(const Error& error, const CheckpointState& state) {
  is_held_ = false;
  end_live_line();
  if (error.code() != ExitCode::kStorage) throw error;
  // Without a look at files, which may be what has failed.
  do_and_agree(mesh_.world(), [&] {
    if (leads_) directory_->check_owner();
  });
  // "best" must name a checkpoint that exists.
  for (CheckpointState* each : {&state_, &updated_})
    if (each->best && each->best->step == state.step) each->best = committed_best_;
  if (leads_) log(SaveEvent{.step = state.step, .state = SaveState::kFailed});
  if (++failed_saves_ >= kFailuresInARow)
    throw Error(error.code(),
                fmt::format("{} saves in a row failed, the last with: {}", failed_saves_, error.what()),
                error.hint());
  warn(fmt::format("step {} was not saved: {}{}{}; {}", state.step, error.what(),
                   error.hint().empty() ? "" : ": ", error.hint(),
                   saved_step_ > 0 ? fmt::format("the newest checkpoint is that of step {}", saved_step_)
                                   : "there is no checkpoint yet"));
}

// Before the update of a unit: the save under way may still read it. Copies are made in a moment. What is
// read as it is written may take as long as a disk takes, so ranks wait together: one that waited in the
// next step's collectives would take the others for dead.
void Trainer::await_snapshot(size_t unit) {
  if (!is_held_) return;
  const Clock::time_point since = Clock::now();
  const double in_collectives = mesh_.seconds_waited_in_all();
  if (snapshot_is_whole_) {
    snapshot_->wait_for(unit);
  } else {
    DiskVotes votes(mesh_.world(), disk_patience());
    while (!votes.all_done(snapshot_->is_free(unit), writer_->progress())) {
      if (leads_) directory_->check_owner();
      std::this_thread::sleep_for(kPiecePause);
    }
  }
  const double waited = seconds_since(since);
  save_wait_seconds_ += waited;
  save_alone_seconds_ += waited - (mesh_.seconds_waited_in_all() - in_collectives);
  if (saving_) saving_->stood_seconds += waited;
}

}  // namespace ripstop
