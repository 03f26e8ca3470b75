#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "data/text/json_reader.h"
#include "data/text/json_struct.h"
#include "train/checkpoint/find_run.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/report/standard_streams.h"
#include "train/report/terminal.h"
#include "train/run/run_status.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = FieldWriter::Json;

// The keys of --json by which runs can be sorted.
constexpr std::array kSortKeys = {"directory",      "state",
                                  "step",           "loss",
                                  "learning_rate",  "best_validation_loss",
                                  "best_rougeL",    "tokens_per_second",
                                  "node_hours",     "kwh",
                                  "tokens_per_kwh", "size_bytes",
                                  "started_at",     "seconds_since_update"};

struct StatusArguments {
  std::vector<std::string> directories;
  std::string sort;
  bool json = false;
  bool watch = false;
  int64_t interval_seconds = 2;
};

struct Runs {
  std::vector<RunStatus> runs;
  std::optional<Error> missing;  ///< names all arguments that failed; nullopt: none did
};

Json as_json(const RunStatus& status) {
  const auto known = [](const auto& value) { return FieldWriter::to_json(value); };
  const RunAccount account = status.account.value_or(RunAccount());
  Json json{{"directory", status.directory.string()},
            {"state", status.state},
            {"step", status.step},
            {"steps", status.steps},
            {"loss", known(status.loss)},
            {"learning_rate", known(status.learning_rate)},
            {"best_validation_loss", known(status.best_validation_loss)},
            {"best_rougeL", known(status.best_rougeL)},
            {"tokens_per_second", known(status.tokens_per_second)},
            {"node_hours", status.account ? Json(account.node_hours) : Json(nullptr)},
            {"kwh", known(account.kwh)},
            {"tokens_per_kwh", known(account.tokens_per_kwh())},
            {"eta_seconds", known(status.eta_seconds)},
            {"deadline", known(status.deadline)},
            {"stops_at", known(status.stops_at)},
            {"newest_checkpoint", known(status.newest_checkpoint)},
            {"size_bytes", status.size_bytes},
            {"started_at", known(status.started_at)},
            {"seconds_since_update", known(status.seconds_since_update)}};
  for (const auto& [directory, loss] : status.best_validation_sets)
    json["best_validation_sets"].push_back({{"directory", directory}, {"loss", loss}});
  if (!status.slow_ranks.empty()) {
    json["slow_ranks"] = status.slow_ranks;
    json["exclude"] = status.exclude;
  }
  if (!status.were_slow.empty()) json["were_slow"] = status.were_slow;
  if (!status.note.empty()) json["note"] = status.note;
  return json;
}

// Orders runs by one of kSortKeys. Runs without a value come last, equal ones stay in order.
void sort_runs(std::vector<RunStatus>& runs, const std::string& key) {
  const auto value = [&](const RunStatus& run) {
    const Json value = as_json(run).at(key);
    const bool is_known = !value.is_null() && value == value;  // NaN differs from itself
    return std::pair(!is_known, is_known ? value : Json(nullptr));
  };
  std::ranges::stable_sort(runs, {}, value);
}

// Looks at all arguments, even after one that fails.
Runs look(Io& io, const StatusArguments& given) {
  Runs found;
  std::string what;
  for (const std::string& directory : given.directories) {
    try {
      for (const fs::path& run : find_runs(io, directory)) found.runs.push_back(read_status(io, run));
    } catch (const Error& error) {
      what += (what.empty() ? "" : "; ") + std::string(error.what());
      found.missing = Error(found.missing ? found.missing->code() : error.code(), what,
                            found.missing ? found.missing->hint() : error.hint());
    }
  }
  if (!given.sort.empty()) sort_runs(found.runs, given.sort);
  return found;
}

// The output of --watch: on a terminal a table, redrawn in place, else a line for each run that changed.
class Watch {
 public:
  void show(const std::vector<RunStatus>& runs) {
    if (terminal_of(stdout).rewrites)
      draw(status_table(runs));
    else
      for (const RunStatus& run : runs) print_if_changed(run);
    require_output();
  }

 private:
  // Cuts the table to the terminal's size, because wrapped or scrolled lines could not be redrawn.
  void draw(const std::string& table) {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
      size.ws_col = 80, size.ws_row = 24;
    std::string text = drawn_ > 0 ? fmt::format("\x1b[{}A\r", drawn_) : "";
    drawn_ = 0;
    for (size_t begin = 0; begin < table.size() && drawn_ + 1 < size.ws_row; ++drawn_) {
      const size_t end = table.find('\n', begin);
      text += cut_to_width(table.substr(begin, end - begin), size.ws_col) + "\x1b[K\n";
      begin = end + 1;
    }
    print_out("{}\x1b[J", text);  // clear the rest of an earlier, longer table
  }

  void print_if_changed(const RunStatus& run) {
    const std::string line = status_line(run);
    std::string& before = lines_[run.directory];
    if (line != before) print_out("{}\n", line);
    before = line;
  }

  int drawn_ = 0;  ///< number of lines of the last table
  std::map<fs::path, std::string> lines_;
};

ExitCode watch(Io& io, const StatusArguments& given) {
  // Blocks SIGINT: sigtimedwait below then takes it without a handler, and no signal is lost.
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, nullptr);
  Watch view;
  for (;;) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    const Runs found = look(io, given);
    if (found.missing) throw Error(*found.missing);
    view.show(found.runs);
    // Waits longer after slow reads of long logs, to spare the file system.
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    const double pause = std::max(static_cast<double>(given.interval_seconds), 10 * took);
    timespec wait{static_cast<time_t>(pause), 0};
    wait.tv_nsec = static_cast<long>((pause - static_cast<double>(wait.tv_sec)) * 1e9);
    if (sigtimedwait(&interrupt, nullptr, &wait) == SIGINT) return ExitCode::kOk;
  }
}

ExitCode print_status(const StatusArguments& given) {
  Io io;
  if (given.watch && given.json)
    throw CommandLineError("--watch and --json exclude each other", "call status --json again and again");
  if (given.watch) return watch(io, given);
  const Runs found = look(io, given);
  if (given.json) {
    Json document = Json::array();
    for (const RunStatus& run : found.runs) document.push_back(as_json(run));
    print_out("{}\n", text_of_json(document, 2));
  } else if (!found.runs.empty()) {
    print_out("{}", status_table(found.runs));
  }
  if (found.missing) throw Error(*found.missing);
  return ExitCode::kOk;
}

}  // namespace

void add_status(CommandLine& line) {
  Verb verb = line.verb("status", "runs, last step, loss, speed, state; from files alone");
  const auto given = std::make_shared<StatusArguments>();
  verb.path("DIR", given->directories, "run directories, or folders that hold runs themselves, not deeper")
      .required();
  verb.flag("--watch", given->watch, "show what changes, until Ctrl-C");
  verb.option("--interval", given->interval_seconds, "seconds between two looks of --watch")
      .range(1, 86400)
      .show_default();
  verb.option("--sort", given->sort,
              "order by a key of --json, ascending, runs without a value last; default: as given, by name")
      .choices({kSortKeys.begin(), kSortKeys.end()});
  verb.flag("--json", given->json, "one JSON document: a list with an object for each run");
  verb.set_example(
      "ripstop status runs\n  ripstop status --sort best_validation_loss runs\n  ripstop status "
      "--watch runs/xsum");
  verb.set_action([given] { return print_status(*given); });
}

}  // namespace ripstop
