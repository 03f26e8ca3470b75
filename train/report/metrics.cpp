#include "train/report/metrics.h"

#include <time.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "data/files/directory.h"
#include "data/files/file.h"
#include "data/files/whole_file.h"
#include "data/text/json_struct.h"
#include "model/core/error.h"
#include "train/machine/machine.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

using Json = FieldWriter::Json;

// The event `any` as a line with its line end.
std::string line_of(const MetricsEvent& any, double time) {
  FieldWriter writer;
  const auto write = [&](const auto& event) {
    writer("event", event.kEvent);
    writer("step", event.step);
    event.fields(event, writer);
    writer("time", time);
  };
  std::visit(write, any);
  return text_of_json(writer.json) + "\n";
}

template <class Event>
void add(const std::string& name, FieldReader fields, std::vector<Event>& events) {
  if (name != Event::kEvent) return;
  Event event;
  fields("step", event.step);
  fields("time", event.time);
  Event::fields(event, fields);
  events.push_back(std::move(event));
}

// Adds the event of the line at `place` to `log` and returns its step. Throws Error(kStorage) "line 7: ..."
// if the line, given without line end, is no event.
int64_t add_line(const std::string& place, std::string_view line, MetricsLog& log) {
  const JsonReader reader(place, ExitCode::kStorage);
  // Short lines are parsed without the checks of JsonReader::parse, which would be slow for a million lines.
  // Only long lines of a hostile file need these checks.
  constexpr size_t kUsualBytes = size_t{1} << 16;
  const Json json =
      line.size() > kUsualBytes ? reader.parse(line) : Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) reader.refuse("no JSON");
  const std::string name = reader.text(json, "event", FieldReader::kMostTextBytes);
  const int64_t step = reader.integer(json, "step", INT64_MIN, INT64_MAX);
  const FieldReader fields(reader, json, FieldReader::Mode::kLenient);
  const auto add_to = [&](auto&... events) { (add(name, fields, events), ...); };
  add_to(log.starts, log.steps, log.hosts, log.validations, log.saves, log.checkpoints, log.warnings,
         log.ends);
  // A resumed run writes more lines after an "end".
  log.ended = name == EndEvent::kEvent;
  return step;
}

// A line of a log, without its line end.
struct LogLine {
  std::string_view text;
  int64_t begin;  // the line's place in the file
  int64_t step;   // step of the event
};

// The lines of a log that begin in the bytes [begin, end). A line must begin at `begin`.
struct LogPart {
  int64_t begin = 0, end = INT64_MAX;
};

// Calls visit(line) after adding each event of a part to `log`, until it returns false. Ignores text after
// the last line end. Returns MetricsLog::damage.
std::string for_each_event(
    const InputFile& file, const LogPart& part, MetricsLog& log,
    FunctionRef<bool(const LogLine&)> visit = [](const LogLine&) { return true; }) {
  constexpr int64_t kBlockBytes = 1 << 20;
  std::string text;  // the text that is not handled yet; begins at the start of a line
  int64_t number = 0, damaged = 0;
  std::string first;
  bool goes_on = true;
  for (int64_t at = part.begin, bytes = 0; at < file.bytes() && goes_on; at += bytes) {
    bytes = std::min(kBlockBytes, file.bytes() - at);
    const size_t known = text.size();
    const int64_t text_begin = at - static_cast<int64_t>(known);
    text.resize(known + static_cast<size_t>(bytes));
    file.read_at(at, text.data() + known, bytes);
    size_t begin = 0;
    for (size_t end = text.find('\n', known); end != text.npos && goes_on; end = text.find('\n', begin)) {
      LogLine line{std::string_view(text).substr(begin, end - begin),
                   text_begin + static_cast<int64_t>(begin), 0};
      if (goes_on = line.begin < part.end; !goes_on) break;
      begin = end + 1;
      ++number;
      try {
        line.step = add_line(part.begin == 0 ? fmt::format("line {}", number)
                                             : fmt::format("line {} from byte {} on", number, part.begin),
                             line.text, log);
        goes_on = visit(line);
      } catch (const Error& error) {
        if (++damaged == 1) first = error.what();
      }
    }
    text.erase(0, begin);
  }
  if (damaged == 0) return "";
  return damaged == 1 ? "1 line is no event, " + first
                      : fmt::format("{} lines are no events, the first is {}", damaged, first);
}

// The first byte of a line at or after the byte `at`; the file's end if there is none.
int64_t next_line(const InputFile& file, int64_t at) {
  char block[4096];
  if (at == 0) return 0;
  for (int64_t bytes = 0, from = at - 1; from < file.bytes(); from += bytes) {
    bytes = std::min<int64_t>(sizeof block, file.bytes() - from);
    file.read_at(from, block, bytes);
    const std::string_view text(block, static_cast<size_t>(bytes));
    if (const size_t end = text.find('\n'); end != text.npos) return from + static_cast<int64_t>(end) + 1;
  }
  return file.bytes();
}

// The start of a line at most about kNear bytes before the first event with a step above `step`, and never
// after that event. Bisects, because the steps of a log are in order.
int64_t place_of_step(const InputFile& file, int64_t step) {
  constexpr int64_t kNear = 1 << 20;
  int64_t low = 0, high = file.bytes();
  while (high - low > kNear) {
    const int64_t middle = low + (high - low) / 2;
    MetricsLog log;
    int64_t found = -1;
    for_each_event(file, {next_line(file, middle), high}, log, [&](const LogLine& line) {
      if (!log.steps.empty() && line.step <= step) found = line.begin;
      const bool goes_on = log.steps.empty();
      log = {};
      return goes_on;
    });
    (found >= 0 ? low : high) = found >= 0 ? found : middle;
  }
  return low;
}

}  // namespace

void MetricsFile::write(const MetricsEvent& event) {
  const double given = std::visit([](const auto& any) { return any.time; }, event);
  const double time = given != 0 ? given : clock_seconds(CLOCK_REALTIME);
  add(line_of(event, time), second_.path.empty() ? "" : second_.records(event, time));
}

MetricsLog read_metrics(const std::filesystem::path& path) {
  MetricsLog log;
  log.damage = for_each_event(InputFile(path, ExitCode::kStorage), {}, log);
  return log;
}

MetricsLog read_log_ends(const std::filesystem::path& path, const std::vector<int64_t>& started_at) {
  const InputFile file(path, ExitCode::kStorage);
  if (file.bytes() <= kWholeLogBytes) return read_metrics(path);
  MetricsLog log;
  log.has_gap = true;
  const int64_t head_end = next_line(file, kLogHeadBytes);
  const int64_t tail_begin = next_line(file, file.bytes() - kLogTailBytes);
  log.damage = for_each_event(file, {0, head_end}, log);
  int64_t done = head_end;  // the middle is read up to here
  for (const int64_t start : started_at) {
    MetricsLog near;
    for_each_event(file, {std::max(place_of_step(file, start), done), tail_begin}, near,
                   [&](const LogLine& line) {
                     done = line.begin + std::ssize(line.text) + 1;
                     return near.steps.empty() || line.step <= start;
                   });
    std::ranges::move(near.starts, std::back_inserter(log.starts));
  }
  const std::string damage = for_each_event(file, {tail_begin}, log);
  if (!damage.empty()) log.damage += (log.damage.empty() ? "" : "; ") + damage;
  return log;
}

std::string read_events(const std::filesystem::path& path, FunctionRef<void(const MetricsEvent&)> visit) {
  MetricsLog log;
  return for_each_event(InputFile(path, ExitCode::kStorage), {}, log, [&](const LogLine&) {
    const auto hand_over = [&](auto&... kinds) {
      const auto all_of = [&](auto& events) {
        for (auto& event : events) visit(std::move(event));
        events.clear();
      };
      (all_of(kinds), ...);
    };
    hand_over(log.starts, log.steps, log.hosts, log.validations, log.saves, log.checkpoints, log.warnings,
              log.ends);
    return true;
  });
}

std::optional<StartEvent> first_start(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  try {
    const InputFile file(path, ExitCode::kStorage);
    const std::string begin = file.text_at(0, std::min(file.bytes(), kMostBytes));
    MetricsLog log;
    add_line("line 1", std::string_view(begin).substr(0, begin.find('\n')), log);
    if (!log.starts.empty()) return log.starts.front();
  } catch (const Error&) {
    // The file is absent or no log.
  }
  return std::nullopt;
}

void check_metrics_file(const std::filesystem::path& path) {
  if (!path_exists(posix_io(), path)) return;
  if (!std::filesystem::is_regular_file(path))
    throw Error(ExitCode::kStorage, fmt::format("{}: is not a plain file", path.string()),
                "move it away: the run writes its log there");
  InputFile(path, ExitCode::kStorage);
}

std::string cut_to_step(const std::filesystem::path& path, int64_t step, bool replace) {
  if (!std::filesystem::exists(path)) return "";
  std::string kept, note;
  int64_t saved_step = 0, last_step = 0;
  bool tells_of_step = false;  // the log has a `checkpoint` of `step`, or a start from `step`
  MetricsLog log;
  const InputFile file(path, ExitCode::kStorage);
  const int64_t begin = file.bytes() > kWholeLogBytes ? place_of_step(file, step) : 0;
  const std::string damage = for_each_event(file, {begin}, log, [&](const LogLine& line) {
    const int64_t at = line.step;
    if (at <= step) kept.append(line.text).append(1, '\n');
    if (!log.checkpoints.empty()) saved_step = std::max(saved_step, at);
    if (!log.steps.empty() || !log.starts.empty()) last_step = std::max(last_step, std::min(at, step));
    tells_of_step = tells_of_step || (at == step && (!log.checkpoints.empty() || !log.starts.empty()));
    log = {};  // frees the events, which need much memory in a long run
    return true;
  });
  const std::string name = path.filename().string();
  if (!damage.empty())
    note = fmt::format("{}: {}: a copy of the file is {}, the other lines go on in {}", path.string(), damage,
                       copy_aside(posix_io(), path, "damaged"), name);
  else if (saved_step > step)
    note = fmt::format(
        "{} tells of a checkpoint of step {}, but the run goes on from step {}: a copy of the file is {}, "
        "and the later steps are removed from {}",
        path.string(), saved_step, step, copy_aside(posix_io(), path, "uncut"), name);
  if (step > 0 && !kept.empty() && !tells_of_step) {
    const std::string steps =
        last_step == step ? "" : fmt::format("those of steps {} to {} and ", last_step + 1, step);
    note += fmt::format("{}{} lacks at least {} of the start before: {}the checkpoint of step {}",
                        note.empty() ? "" : "; ", path.string(), counted(step - last_step + 1, "line"), steps,
                        step);
  }
  if (replace || begin + std::ssize(kept) != file.bytes() || has_hard_links(path))
    replace_file(posix_io(), path, [&](OutputFile& out) {
      copy_begin(file, out, 0, begin);
      out.write_at(begin, kept.data(), std::ssize(kept));
    });
  return note;
}

}  // namespace ripstop
