#include "train/run/run_directory.h"

#include <algorithm>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/process/shell_word.h"
#include "model/core/error.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/find_run.h"
#include "train/report/event_file.h"
#include "train/run/step_deadline.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// A larger file is no config.
constexpr int64_t kMostConfigBytes = int64_t{1} << 20;
constexpr const char* kCheckpoints = "checkpoints";

// The longest wait for the file system, as a share of the deadline of saves. Less than 1, so that this rank,
// which knows the reason, reports before the other ranks.
constexpr double kShareOfDeadline = 0.9;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The directory whose LOCK covers the target of the link `run`/checkpoints; nullopt: no link to a folder.
std::optional<fs::path> owner_of_linked_folder(Io& io, const fs::path& run) {
  std::error_code error;
  const fs::path own = fs::weakly_canonical(run, error) / kCheckpoints;
  const fs::path real = fs::weakly_canonical(run / kCheckpoints, error);
  // Ignores a broken link, which is refused later, when the folder is made.
  if (error || real == own || !is_folder(real)) return std::nullopt;
  return real.filename() == kCheckpoints && is_run(io, real.parent_path()) ? real.parent_path() : real;
}

// Whether `config_file` is the config.toml of a run whose directory is not run.directory.
bool is_of_another_run(Io& io, const fs::path& config_file, const RunConfig& config) {
  const fs::path beside = fs::absolute(config_file).parent_path();
  std::error_code ignored;
  return config_file.filename() == "config.toml" && !fs::equivalent(beside, config.run.directory, ignored) &&
         is_run(io, beside);
}

}  // namespace

void check_can_hold_run(Io& io, const fs::path& directory) {
  std::error_code ignored;
  for (fs::path at = directory; !at.empty() && !is_folder(at); at = at.parent_path()) {
    if (!fs::exists(at, ignored)) continue;
    throw Error(
        ExitCode::kUsage,
        at == directory
            ? fmt::format("run.directory {} is a file, expected a directory or a new name",
                          directory.string())
            : fmt::format("run.directory {} cannot be made: {} is a file", directory.string(), at.string()),
        fmt::format("give another name, such as {}",
                    shell_word("run.directory=" + (at.parent_path() / "run").string())));
  }
  if (is_run(io, directory)) return;
  const std::string names = entries_in_the_way(io, directory);
  if (names.empty()) return;
  throw Error(ExitCode::kUsage,
              fmt::format("run.directory {} is not a run directory, and has {}", directory.string(), names),
              fmt::format("give a run a directory of its own, such as {}; job scripts, logs and "
                          "notes may lie there",
                          shell_word("run.directory=" + (directory / "run").lexically_normal().string())));
}

void check_names_own_directory(Io& io, const fs::path& config_file, const RunConfig& config) {
  if (!is_of_another_run(io, config_file, config)) return;
  const std::string directory = folder_of(config_file).string();
  throw Error(
      ExitCode::kUsage,
      fmt::format("{} is the config of the run in {}, but names run.directory {}: the run was copied or "
                  "moved, or the path is relative to another directory",
                  config_file.string(), directory, config.run.directory),
      fmt::format("add {} to go on there, or {} to train in that one",
                  shell_word("run.directory=" + directory),
                  shell_word("run.directory=" + config.run.directory)));
}

std::string note_of_other_directory(Io& io, const fs::path& config_file, const RunConfig& config) {
  if (!is_of_another_run(io, config_file, config) || path_exists(io, config.run.directory)) return "";
  return fmt::format("{} is the config of the run in {}, which stays as it is: a new run begins in {}",
                     config_file.string(), folder_of(config_file).string(), config.run.directory);
}

RunDirectory::RunDirectory(Io& io, const RunConfig& config, const Tokenizer& tokenizer,
                           const std::string& prompt_template, const RunLockWait& wait, bool allow_changes)
    : io_(io),
      path_(config.run.directory),
      config_(config),
      tokenizer_(tokenizer.files().carried),
      prompt_template_(prompt_template),
      wait_(wait),
      lock_times_{.answer_seconds =
                      kShareOfDeadline * StepDeadline(config.run.deadline_seconds).outside_steps()} {
  check_can_hold_run(io, path_);
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) fail_storage(path_, "make the directory", error.value());
  lock(path_);  // before the files are read, because another process may be writing them
  check_metrics_file(path_ / "metrics.jsonl");
  const fs::path config_file = path_ / "config.toml";
  if (path_exists(io, config_file)) {
    // A start that the log lacks may have died before it wrote config.toml, so its changes are added here.
    const fs::path metrics = path_ / "metrics.jsonl";
    int64_t logged = 0;  // the last takeover in the log
    if (path_exists(io, metrics))
      for (const StartEvent& start : read_log_ends(metrics, last_takeover_steps(io, path_)).starts)
        logged = std::max(logged, start.takeover);
    RunConfig old = with_changes(
        parse_run_config(read_whole_file(io, config_file, kMostConfigBytes), config_file.string()),
        Takeovers::read(io, checkpoints()).changes_after(logged));
    const bool has_weights = !list_checkpoints(io, checkpoints()).empty();
    // check_resumable() compares data.weights, after the data sets, because other sets explain other weights.
    if (has_weights) old.data.weights = config.data.weights;
    for (const ConfigDifference& difference : check_resume(old, config, has_weights, allow_changes))
      notes_.push_back(difference.text());
  }
  if (has_tokenizer(path_)) check_tokenizer(tokenizer);
}

void RunDirectory::check_tokenizer(const Tokenizer& tokenizer) const {
  const fs::path file = path_ / tokenizer_file_name(path_);
  const auto& [name, bytes] = tokenizer_.front();
  if (file.filename() == name &&
      (read_whole_file(io_, file, kMostTokenizerBytes) == bytes ||
       // Another version of Hugging Face's tokenizers may have saved the same tokenizer in other bytes.
       (!tokenizer.is_sentencepiece() && Tokenizer(file).sha256() == tokenizer.sha256())))
    return;
  throw Error(ExitCode::kUsage,
              fmt::format("{} is not the data set's tokenizer, with which this run began", file.string()),
              "a new run is a new directory");
}

void RunDirectory::lock(const fs::path& directory) {
  locks_.push_back(std::make_unique<RunLock>(io_, directory, lock_times_, wait_));
  if (!locks_.back()->takeover().empty()) notes_.push_back(locks_.back()->takeover());
}

void RunDirectory::prepare_checkpoints() {
  try {
    if (const std::optional<fs::path> owner = owner_of_linked_folder(io_, path_)) lock(*owner);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} is a link: {}", checkpoints().string(), error.what()),
                error.hint());
  }
  prepare_checkpoint_directory(io_, checkpoints());
  for (const ListedCheckpoint& checkpoint : list_checkpoints(io_, checkpoints()))
    if (checkpoint.manifest || checkpoint.is_unreadable) newest_step_ = checkpoint.step;
}

void RunDirectory::require_progress(int64_t newest_step) const {
  constexpr int64_t kMostRestarts = 3;
  const Takeovers takeovers = Takeovers::read(io_, checkpoints());
  const int64_t restarts = takeovers.restarts_from(newest_step);
  if (restarts < kMostRestarts) return;
  throw Error(ExitCode::kCommunication,
              fmt::format("{}: {} restarts of job {} in a row went on from step {} and committed no new step",
                          path_.string(), restarts, takeovers.all().back().job, newest_step),
              "the log says why each of them ended; if it was the time limit, give more time or a smaller "
              "checkpoint.every_steps; a new sbatch counts from 0");
}

int64_t RunDirectory::take_over(int64_t step, const std::vector<ConfigDifference>& changes) {
  check_still_owned();
  Takeovers takeovers = Takeovers::read(io_, checkpoints());
  if (!takeovers.problem().empty())
    notes_.push_back(fmt::format("{}: it is written anew, and takeovers before this one protect nothing",
                                 takeovers.problem()));
  // Checkpoints copied from another folder may have higher takeover numbers than takeovers.json.
  int64_t greatest = 0;
  for (const ListedCheckpoint& checkpoint : list_checkpoints(io_, checkpoints()))
    if (checkpoint.manifest) greatest = std::max(greatest, checkpoint.manifest->state.takeover);
  const Takeover taken = takeovers.add(step, greatest, changes);
  takeovers.write(io_, checkpoints());
  takeover_ = taken;
  // Checks again, because another start may have recorded the same number meanwhile.
  check_still_owned();
  return takeover_.number;
}

void RunDirectory::check_owner() const {
  for (const auto& lock : locks_) lock->check_owner();
}

bool RunDirectory::may_write() const {
  return std::all_of(locks_.begin(), locks_.end(), [](const auto& lock) { return lock->may_write(); });
}

bool RunDirectory::ends_within(std::chrono::milliseconds most) {
  return (!metrics_ || metrics_->ends_within(most)) &&
         std::none_of(locks_.begin(), locks_.end(), [](const auto& lock) { return lock->is_stuck(); });
}

void RunDirectory::check_still_owned() const {
  for (const auto& lock : locks_) lock->check_still_owned();
  if (takeover_.number == 0) return;
  Takeovers takeovers = Takeovers::read(io_, checkpoints());
  if (takeovers.newest_number() > takeover_.number)
    locks_.front()->lose(
        fmt::format("this run was taken over: takeover {} by {} came after this one, which is {}",
                    takeovers.newest_number(), takeovers.all().back().owner, takeover_.number));
  if (takeovers.newest_number() == takeover_.number) return;
  // This takeover is missing: takeovers.json was removed, damaged, or overwritten by a start that had read it
  // earlier.
  takeovers.restore(takeover_);
  takeovers.write(io_, checkpoints());
}

MetricsFile& RunDirectory::open_metrics(int64_t step, bool begins) {
  // prompt_template.txt comes first, because it marks the directory as a run's (is_run).
  write_whole_file(path_ / "prompt_template.txt", prompt_template_);
  for (const auto& [name, bytes] : tokenizer_) write_whole_file(path_ / name, bytes);
  write_whole_file(path_ / "config.toml", to_toml(config_));
  const fs::path file = path_ / "metrics.jsonl";
  std::error_code ignored;
  const bool is_there = fs::exists(file, ignored);
  if (step > 0 && !begins && (!is_there || fs::is_empty(file, ignored)))
    notes_.push_back(fmt::format("{} is {}: the log begins again here, without the steps up to {}",
                                 file.string(), is_there ? "empty" : "missing", step));
  const bool was_taken_over =
      std::any_of(locks_.begin(), locks_.end(), [](const auto& lock) { return !lock->takeover().empty(); });
  if (std::string note = cut_to_step(file, step, was_taken_over); !note.empty())
    notes_.push_back(std::move(note));
  const auto check_locks = [this] {
    for (const auto& lock : locks_) lock->check_still_owned();
  };
  SecondLog second;
  if (config_.log.tensorboard) {
    EventFile events(path_, config_);
    second.path = events.path();
    second.records = [events](const MetricsEvent& event, double time) mutable {
      return events.records(event, time);
    };
  }
  metrics_ = std::make_unique<MetricsFile>(file,
                                           LogRights{.may_write = [this] { return may_write(); },
                                                     .check_owner = check_locks,
                                                     .patience_seconds = lock_times_.answer_seconds},
                                           std::move(second));
  return *metrics_;
}

}  // namespace ripstop
