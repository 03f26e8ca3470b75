#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <set>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "train/checkpoint/find_run.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/machine/version.h"
#include "train/page/page.h"
#include "train/report/event_file.h"
#include "train/report/human_text.h"
#include "train/report/standard_streams.h"
#include "train/report/trace_file.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> directories;
  std::string output = "report.html", trace;
  bool tensorboard = false, no_text = false, anonymous = false, utc = false;
};

std::vector<fs::path> runs_of(Io& io, const ReportArguments& given) {
  std::vector<fs::path> runs;
  for (const std::string& directory : given.directories)
    for (const fs::path& run : find_runs(io, directory))
      if (std::ranges::none_of(runs, [&](const fs::path& known) { return fs::equivalent(known, run); }))
        runs.push_back(run);
  return runs;
}

// The names of the directories' owners, as far as they are known.
std::set<std::string> owners_of(const std::vector<fs::path>& directories) {
  std::set<std::string> names;
  for (const fs::path& directory : directories) {
    struct stat facts {};
    if (::stat(directory.c_str(), &facts) != 0) continue;
    if (const passwd* const owner = ::getpwuid(facts.st_uid)) names.insert(owner->pw_name);
  }
  return names;
}

// Throws Error(kUsage) if the folder of `output` is absent, or if `output` exists with another beginning.
void check_output(Io& io, const fs::path& output, std::string_view expected, const std::string& option) {
  const fs::path folder = output.parent_path();
  if (!folder.empty() && !fs::is_directory(folder))
    throw Error(ExitCode::kUsage, fmt::format("{}: there is no such directory", folder.string()),
                "make it first, or give another " + option);
  if (!path_exists(io, output)) return;
  std::string begin(expected.size(), '\0');
  if (fs::is_regular_file(output)) {
    const InputFile file(output, ExitCode::kUsage);
    if (file.bytes() >= std::ssize(begin)) file.read_at(0, begin.data(), std::ssize(begin));
  }
  if (begin == expected) return;
  throw Error(ExitCode::kUsage,
              fmt::format("{} exists, and is no {} of ripstop", output.string(),
                          option == "--trace" ? "trace" : "report"),
              "give another name with " + option);
}

std::string contents(const ReportArguments& given) {
  if (given.anonymous) return "no texts, and no names of users and hosts or absolute paths";
  const std::string names = "names of hosts, paths and command lines";
  return given.no_text ? "no texts, but " + names : "documents and summaries, " + names;
}

ExitCode write_page(Io& io, const ReportArguments& given) {
  const std::vector<fs::path> directories = runs_of(io, given);
  if (directories.size() > kMostRuns)
    throw Error(ExitCode::kUsage,
                fmt::format("{} runs are too many for one report, which shows at most {}", directories.size(),
                            kMostRuns),
                "name the runs to compare");
  check_output(io, given.output, kPageBegin, "--output");
  const PageOptions options{.time = static_cast<double>(std::time(nullptr)),
                            .utc = given.utc,
                            .with_texts = !given.no_text && !given.anonymous,
                            .version = std::string(version())};
  std::vector<RunRecord> runs;
  for (const fs::path& directory : directories)
    runs.push_back(read_run(io, directory, columns_of_each(directories.size()), options.with_texts));
  if (given.anonymous) make_anonymous(runs, owners_of(directories));
  name_shortly(runs);  // after folders are hidden: a folder may have the user's name
  const std::string text = page(runs, options);
  write_whole_file(io, given.output, text);
  print_out("{}: {}, {}; it holds {}\n", given.output, counted(std::ssize(runs), "run"),
            bytes_text(std::ssize(text)), contents(given));
  return ExitCode::kOk;
}

// Throws Error(kUsage) if the run has event files.
void refuse_event_files(Io& io, const fs::path& run) {
  for (const Io::Entry& entry : list_directory(io, run))
    if (entry.name.starts_with("events.out.tfevents."))
      throw Error(ExitCode::kUsage, fmt::format("{} has event files", run.string()),
                  "look at them, or remove them first: " + entry.name);
}

// Makes the event file that log.tensorboard would have made. Returns its path.
fs::path write_events(Io& io, const fs::path& run) {
  EventFile events(run, load_run_config((run / "config.toml").string()));
  const fs::path partial = run / "tensorboard.partial";
  fs::remove(partial);
  OutputFile file(io, partial, OutputFile::Mode::kCreate);
  const std::string damage = read_events(run / "metrics.jsonl", [&](const MetricsEvent& event) {
    const std::string records =
        events.records(event, std::visit([](const auto& any) { return any.time; }, event));
    file.append(records.data(), std::ssize(records));
  });
  file.sync();
  file.close();
  rename_path(io, partial, events.path());
  if (!damage.empty()) print_to(stderr, "note: {}/metrics.jsonl: {}\n", run.string(), damage);
  return events.path();
}

ExitCode write_trace_of_run(Io& io, const ReportArguments& given) {
  const std::vector<fs::path> runs = runs_of(io, given);
  if (runs.size() > 1)
    throw Error(ExitCode::kUsage, fmt::format("{} runs are too many for one trace", runs.size()),
                "name one run");
  check_output(io, given.trace, kTraceBegin, "--trace");
  const MergedTraces merged = merge_traces(io, runs.front() / kTraceFolder, given.trace);
  for (const std::string& problem : merged.problems) print_to(stderr, "note: left out: {}\n", problem);
  const TraceFacts& facts = merged.facts;
  print_out("{}: steps {}-{}, {}{}; open it at https://ui.perfetto.dev\n", given.trace, facts.first_step,
            facts.last_step, counted(merged.ranks, "rank"),
            facts.clock_error_us > 0
                ? fmt::format(", clocks of nodes within {:.0f} us", std::ceil(facts.clock_error_us))
                : "");
  return ExitCode::kOk;
}

ExitCode make_report(const ReportArguments& given) {
  Io io;
  if (!given.tensorboard && given.trace.empty()) return write_page(io, given);
  if (given.no_text || given.anonymous || given.utc || (given.tensorboard && !given.trace.empty()))
    throw CommandLineError(
        "--tensorboard and --trace make other files, and no page that other options are for",
        "drop these options");
  if (!given.trace.empty()) return write_trace_of_run(io, given);
  const std::vector<fs::path> runs = runs_of(io, given);
  for (const fs::path& run : runs) refuse_event_files(io, run);
  for (const fs::path& run : runs) print_out("{}\n", write_events(io, run).string());
  return ExitCode::kOk;
}

}  // namespace

void add_report(CommandLine& line) {
  Verb verb = line.verb("report", "one HTML file that shows runs: curves, scores, texts, configs, times");
  verb.add_details(
      "The file loads nothing and has no script. It can be sent, printed and read on a phone. Runs may still "
      "go on, and "
      "may be copies without checkpoints. All curves of several runs lie over each other.");
  const auto given = std::make_shared<ReportArguments>();
  verb.path("RUN", given->directories,
            "run directories, or folders that hold runs themselves; at most 16 runs")
      .required();
  verb.path("--output", given->output, "the file; replaces an older report").show_default();
  verb.flag("--no-text", given->no_text, "leave documents and summaries out");
  verb.flag("--anonymous", given->anonymous,
            "leave out texts, the user's name, hosts, and the directories of absolute paths");
  verb.flag("--utc", given->utc, "times in UTC, not in this machine's zone");
  verb.flag("--tensorboard", given->tensorboard,
            "instead make an event file for TensorBoard in each run, from its metrics.jsonl");
  verb.path("--trace", given->trace,
            "instead make this file of one run's trace of run.profile_steps, for Perfetto");
  verb.set_example("ripstop report runs/a runs/b\n  ripstop report --anonymous --output paper.html runs/a");
  verb.set_action([given] { return make_report(*given); });
}

}  // namespace ripstop
