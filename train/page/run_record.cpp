#include "train/page/run_record.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ranges>
#include <variant>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/text/json_struct.h"
#include "data/text/text_lines.h"
#include "train/checkpoint/find_run.h"
#include "train/checkpoint/run_lock.h"
#include "train/report/human_text.h"
#include "train/run/run_status.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

// Fills a RunRecord from the events of metrics.jsonl, in their order.
class RecordMaker {
 public:
  RecordMaker(RunRecord& run, bool with_texts) : run_(run), with_texts_(with_texts) {}

  void operator()(const StartEvent& start) {
    take(start.account);
    for (const ConfigDifference& change : start.changes)
      run_.changes.push_back(fmt::format("from step {} on {}", start.step + 1, change.text()));
    // If the run is already done, a start makes no step: nothing is measured to show beside its plan.
    makes_no_step_ = run_.end && start.steps > 0 && start.step >= start.steps;
    if (makes_no_step_) return;
    note_start(start);
    if (start.startup) run_.seconds.startup += start.startup->total;
    if (!run_.first_start) run_.first_start = start;
    run_.last_start = start;
    run_.end.reset();
  }

  void operator()(const StepMetrics& step) {
    take(step.account);
    run_.seconds.steps += finite(step.step_seconds);
    run_.seconds.data += finite(step.data_wait_seconds);
    run_.seconds.save += finite(step.save_wait_seconds);
    waited_in_steps_ += finite(step.save_wait_seconds);
    tokens_ = static_cast<double>(step.tokens_seen);
    Column& column = run_.columns.at(step.step, tokens_, hours());
    column[Series::kLoss].add(step.loss);
    column[Series::kNorm].add(step.grad_norm);
    column[Series::kLearningRate].add(step.learning_rate);
    column[Series::kSpeed].add(step.tokens_per_second);
    if (step.model_flops_utilization) column[Series::kUtilization].add(*step.model_flops_utilization);
    if (step.peak_memory_bytes > 0) column[Series::kMemory].add(static_cast<double>(step.peak_memory_bytes));
    for (const MeshAxis axis : kMeshAxes) {
      const double seconds = finite(step.communication_exposed_seconds[axis]);
      run_.seconds.exposed[axis] += seconds;
      if (step.step_seconds > 0) column[exposed(axis)].add(seconds / step.step_seconds);
    }
    if (step.sets)
      for (size_t set = 0; set < std::min(step.sets->size(), kMostDataSets); ++set)
        if (const SetStep& part = (*step.sets)[set]; part.tokens > 0) column.set(set).loss.add(part.loss);
    if (!std::isfinite(step.loss) || !std::isfinite(step.grad_norm)) {
      ++run_.not_finite;
      if (!run_.diverged) run_.diverged = step.step;
    }
    if (!run_.first_loss) run_.first_loss = step.loss;
    run_.last_step = step;
  }

  void operator()(const ValidationEvent& validation) {
    run_.seconds.validation += finite(validation.seconds);
    Column& column = run_.columns.at(validation.step, tokens_, hours());
    column[Series::kValidation].add(validation.loss);
    if (validation.rouge1) column[Series::kRouge1].add(*validation.rouge1);
    if (validation.rouge2) column[Series::kRouge2].add(*validation.rouge2);
    if (validation.rougeL) column[Series::kRougeL].add(*validation.rougeL);
    if (validation.sets)
      for (size_t set = 0; set < std::min(validation.sets->size(), kMostDataSets); ++set)
        if (const SetScores& part = (*validation.sets)[set]; part.target_count > 0)
          column.set(set).validation.add(part.loss);
    if (validation.step > 0 && (!run_.best_loss || validation.loss < run_.best_loss->loss) &&
        std::isfinite(validation.loss))
      run_.best_loss = validation;
    if (validation.step > 0 && validation.rougeL &&
        (!run_.best_rouge || *validation.rougeL > *run_.best_rouge->rougeL))
      run_.best_rouge = validation;
    run_.last_validation = validation;
    if (!with_texts_) run_.last_validation->samples.reset();
  }

  void operator()(const HostsEvent& event) {
    for (size_t i = 0; i < event.hosts.size(); ++i) {
      if (i >= event.compute_seconds.size() || i >= event.wait_seconds.size()) return;
      if (run_.hosts.size() >= RunRecord::kMostHosts && !run_.hosts.contains(event.hosts[i])) continue;
      HostTime& host = run_.hosts[event.hosts[i]];
      host.steps += static_cast<double>(event.steps);
      const double share = host.steps > 0 ? static_cast<double>(event.steps) / host.steps : 0;
      host.compute += (event.compute_seconds[i] - host.compute) * share;
      host.wait += (event.wait_seconds[i] - host.wait) * share;
    }
  }

  void operator()(const SaveEvent& save) {
    run_.failed_saves += save.state == SaveState::kFailed ? 1 : 0;
    waited_in_steps_ = 0;
  }
  void operator()(const CheckpointEvent& checkpoint) {
    ++run_.checkpoint_count;
    run_.checkpoint_bytes = checkpoint.bytes;
    run_.checkpoint_seconds += finite(checkpoint.seconds);
    run_.seconds.saves_between += std::max(finite(checkpoint.waited_seconds) - waited_in_steps_, 0.0);
  }
  void operator()(const WarningEvent& warning) {
    ++run_.warning_count;
    if (run_.warnings.size() == RunRecord::kMostWarnings) run_.warnings.erase(run_.warnings.begin());
    run_.warnings.push_back(warning);
  }
  void operator()(const EndEvent& end) {
    take(end.account);
    if (!makes_no_step_) run_.end = end;
  }

 private:
  static double finite(double value) { return std::isfinite(value) ? value : 0; }
  void take(const std::optional<RunAccount>& account) {
    if (account) run_.account = account;
  }
  double hours() const { return (run_.seconds.steps + run_.seconds.validation) / 3600; }
  void note_start(const StartEvent& start) {
    if (!run_.last_start) return;
    if (++run_.restart_count > static_cast<int64_t>(RunRecord::kMostRestarts)) return;
    run_.restarts.push_back({start.step, start.time, reason_of(run_.end), start.mesh.to_text(),
                             !(start.mesh == run_.last_start->mesh)});
  }

  RunRecord& run_;
  const bool with_texts_;
  bool makes_no_step_ = false;  // the last start makes none
  double tokens_ = 0;
  double waited_in_steps_ = 0;  // for the save under way
};

void read_log(const fs::path& path, bool with_texts, RunRecord& run) {
  RecordMaker maker(run, with_texts);
  const std::string damage = read_events(path, [&](const MetricsEvent& event) {
    std::visit(maker, event);
    run.time = std::visit([](const auto& any) { return any.time; }, event);
  });
  if (!damage.empty()) run.notes.push_back("metrics.jsonl: " + damage);
}

// Reads the JSON object `text` into `value`. Members that `text` lacks keep their values.
template <class T>
void read_object(const std::string& name, std::string_view text, T& value, auto&& fields) {
  const JsonReader reader(name, ExitCode::kInputData);
  const Json json = reader.parse(text);
  FieldReader field(reader, json, FieldReader::Mode::kLenient);
  fields(value, field);
}

std::vector<ScoreRow> read_rows(const fs::path& path) {
  std::vector<ScoreRow> rows;
  if (!path_exists(posix_io(), path)) return rows;
  TextLines lines(path.string());
  for (std::string line; lines.next(line);) {
    ScoreRow& row = rows.emplace_back();
    read_object(lines.place(), line, row, [](auto& self, auto& field) {
      field("rouge1", self[0]);
      field("rouge2", self[1]);
      field("rougeL", self[2]);
    });
  }
  return rows;
}

EvaluationRecord read_evaluation(const fs::path& directory) {
  constexpr int64_t kMostBytes = int64_t{1} << 20, kResamples = 10000;
  constexpr uint64_t kSeed = 1;  // kResamples and kSeed as in `ripstop rouge --compare`
  EvaluationRecord record;
  record.name = directory.filename().string();
  const fs::path path = directory / kScoresFile;
  read_object(path.string(), read_plain_file(path, kMostBytes, ExitCode::kInputData), record,
              [](auto& self, auto& field) {
                field("step", self.step);
                field("split", self.split);
                field("data", self.data);
                field("examples", self.examples);
                field("loss", self.loss);
                constexpr const char* kNames[] = {"rouge1", "rouge2", "rougeL"};
                for (size_t i = 0; i < 3; ++i)
                  field.group(kNames[i], [&](auto& rouge) { rouge("fmeasure", self.rouge[i]); });
                field.group("degenerate", [&](auto& share) {
                  share("at_limit", self.at_limit);
                  share("empty", self.empty);
                  share("repeats", self.repeats);
                  share("copies", self.copies);
                });
              });
  const std::vector<ScoreRow> rows = read_rows(directory / kScoreRowsFile);
  if (!rows.empty() && std::ssize(rows) == record.examples)
    record.intervals = bootstrap_intervals(rows, kResamples, kSeed);
  return record;
}

// Runs `read`; an error becomes a note.
void try_to(RunRecord& run, auto&& read) {
  try {
    read();
  } catch (const Error& error) {
    run.notes.push_back(error.what());
  }
}

// Reads all evaluations, and the predictions of the last one that has any, preferably of the test split.
void read_evaluations(Io& io, const fs::path& directory, bool with_texts, RunRecord& run) {
  for (const Io::Entry& entry : list_directory(io, directory))
    try_to(run, [&] {
      if (path_exists(io, directory / entry.name / kScoresFile))
        run.evaluations.push_back(read_evaluation(directory / entry.name));
    });
  std::ranges::stable_sort(run.evaluations, {}, &EvaluationRecord::step);
  if (!with_texts) return;
  for (const bool is_test : {true, false})
    for (const EvaluationRecord& each : std::views::reverse(run.evaluations)) {
      if (!run.predictions.empty() || (each.split == "test") != is_test) continue;
      run.predictions_from = each.name;
      run.predictions = read_predictions(directory / each.name, RunRecord::kMostPredictions);
    }
}

// Returns nullopt if there is no checkpoint or it is damaged: `checkpoint list` describes the damage.
std::optional<CheckpointState> newest_state(Io& io, const fs::path& run) {
  try {
    return read_manifest(io, find_checkpoint(io, run, "latest")).state;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Short names of the data sets; empty if there is only one.
std::vector<std::string> set_names(const RunConfig& config) {
  return config.data.all().size() > 1 ? short_paths(config.data.all()) : std::vector<std::string>();
}

// "key=/data/somebody/xsum" as "key=xsum": drops the directories of a path that begins with / or ~, and of
// each in a list, as in key=["/data/a", "/data/b"].
std::string without_directories(const std::string& word) {
  size_t path = word.find_first_not_of("\"'[ ");
  const auto is_path = [&] { return path != word.npos && (word[path] == '/' || word[path] == '~'); };
  if (const size_t comma = word.rfind(',');
      !is_path() && comma != word.npos && (word.find('[') < comma || word.starts_with("data.directories=")))
    return without_directories(word.substr(0, comma)) + "," + without_directories(word.substr(comma + 1));
  // A directory's name may have '=', too.
  if (!is_path()) path = word.find_first_not_of("\"'[ ", word.find('=') + 1);
  if (!is_path()) return word;
  const size_t last = word.find_last_not_of("/\"'] ");
  const size_t slash = last == word.npos ? word.npos : word.rfind('/', last);
  return slash == word.npos || slash < path ? word : word.substr(0, path) + word.substr(slash + 1);
}

// Puts "user" in place of the word `name`: for "li", "validation" stays.
void hide_name(const std::string& name, std::string& text) {
  const auto is_letter = [&](size_t at) {
    return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = 0; (at = text.find(name, at)) != text.npos; ++at)
    if (!is_letter(at - 1) && !is_letter(at + name.size())) text.replace(at, name.size(), "user");
}

class Anonymous {
 public:
  explicit Anonymous(const std::set<std::string>& owners) : owners_(owners) {}
  void hide(std::string& text) {
    text = without_directories(text);
    for (const std::string& owner : owners_) hide_name(owner, text);
  }
  std::string numbered(const std::string& host) {
    return fmt::format("node {}", numbers_.emplace(host, numbers_.size() + 1).first->second);
  }
  void hide(std::optional<StartEvent>& start) {
    if (!start) return;
    for (std::string& word : start->argv) hide(word);
    for (std::string& host : start->hosts) host = numbered(host);
  }
  void hide(RunRecord& run) {
    hide(run.path);
    hide(run.first_start);
    hide(run.last_start);
    std::map<std::string, HostTime> hosts;
    for (const auto& [host, time] : run.hosts) hosts[numbered(host)] = time;
    run.hosts = std::move(hosts);
    if (run.config)
      for (std::string* path :
           {&run.config->run.directory, &run.config->run.continue_from, &run.config->model.pretrained,
            &run.config->data.directory, &run.config->lora.adapter})
        hide(*path);
    if (run.config)
      for (std::string& path : run.config->data.directories) hide(path);
    if (run.config) run.sets = set_names(*run.config);
    if (run.state_of_checkpoint && run.state_of_checkpoint->adapted)
      hide(run.state_of_checkpoint->adapted->directory);
    for (WarningEvent& warning : run.warnings) warning.text = "(left out)";
    for (std::string& note : run.notes) note = "a file could not be read whole";
    for (EvaluationRecord& evaluation : run.evaluations) hide(evaluation.name), hide(evaluation.data);
  }

 private:
  const std::set<std::string>& owners_;
  std::map<std::string, size_t> numbers_;
};

}  // namespace

std::string reason_of(const std::optional<EndEvent>& end) {
  if (!end) return "it ended without a word: killed, or its node was lost";
  if (end->reason == EndReason::kStopRequested) return "a stop was requested";
  if (end->reason == EndReason::kTimeLimit) return "the job's time was over";
  if (end->reason == EndReason::kError) return fmt::format("an error, exit code {}", end->exit_code);
  if (end->reason == EndReason::kSteps) return "all steps were done";
  return fmt::format("{}, exit code {}", end->reason.empty() ? "end" : end->reason, end->exit_code);
}

RunRecord read_run(Io& io, const fs::path& directory, size_t most_columns, bool with_texts) {
  RunRecord run(most_columns);
  run.path = directory.string();
  if (path_exists(io, directory / "metrics.jsonl")) read_log(directory / "metrics.jsonl", with_texts, run);
  const bool is_empty = !run.last_start && !run.last_step;
  run.state = state_text(find_run_owner(io, directory).state, run.end, is_empty);
  try_to(run, [&] {
    if (path_exists(io, directory / "config.toml"))
      run.config = load_run_config((directory / "config.toml").string());
    else
      run.notes.push_back("there is no config.toml");
    if (run.config) run.sets = set_names(*run.config);
  });
  run.state_of_checkpoint = newest_state(io, directory);
  try_to(run, [&] { read_evaluations(io, directory / "evaluation", with_texts, run); });
  return run;
}

void name_shortly(std::vector<RunRecord>& runs) {
  std::vector<std::string> paths;
  for (const RunRecord& run : runs) paths.push_back(run.path);
  const std::vector<std::string> names = short_paths(paths, runs.size() == 1 ? 2 : 1);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].name = names[i];
}

void make_anonymous(std::vector<RunRecord>& runs, const std::set<std::string>& owners) {
  Anonymous anonymous(owners);
  for (RunRecord& run : runs) anonymous.hide(run);
}

}  // namespace ripstop
