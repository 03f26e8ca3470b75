#include "train/report/metrics.h"

#include <algorithm>
#include <string_view>

#include "data/files/whole_file.h"
#include "model/core/error.h"
#include "train/report/copy_aside.h"
#include "train/report/metrics_lines.h"

namespace ripstop {
namespace {

// Calls visit(number, line) for every whole line; numbers begin at 1. Text after the last line end is a torn
// line.
template <class Visit>
void for_each_line(const std::filesystem::path& path, Visit visit) {
  constexpr int64_t kBlockBytes = 1 << 20;
  const InputFile file(path, ExitCode::kStorage);
  std::string text;  // from the begin of a line on
  int64_t number = 0;
  for (int64_t at = 0, bytes = 0; at < file.bytes(); at += bytes) {
    bytes = std::min(kBlockBytes, file.bytes() - at);
    const size_t known = text.size();
    text.resize(known + static_cast<size_t>(bytes));
    file.read_at(at, text.data() + known, bytes);
    size_t begin = 0;
    for (size_t end = text.find('\n', known); end != text.npos; end = text.find('\n', begin)) {
      visit(++number, std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }
}

// Counts the lines that are no events.
class Damage {
 public:
  void add(int64_t line, const std::string& what) {
    if (++lines_ == 1) first_ = fmt::format("line {}: {}", line, what);
  }
  // "" if there is none.
  std::string text() const {
    if (lines_ == 0) return "";
    return lines_ == 1 ? "1 line is no event, " + first_
                       : fmt::format("{} lines are no events, the first is {}", lines_, first_);
  }

 private:
  int64_t lines_ = 0;
  std::string first_;
};

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path) : file_(path) {}

template <class Event>
void MetricsFile::keep(const Event& event) {
  waiting_ += line_of(event);
}

template <class Event>
void MetricsFile::write(const Event& event) {
  keep(event);
  write_waiting();
}

// The templates are defined here, so that users of the header do not compile the JSON library.
template void MetricsFile::write(const StartEvent&);
template void MetricsFile::keep(const StartEvent&);
template void MetricsFile::write(const StepMetrics&);
template void MetricsFile::keep(const StepMetrics&);
template void MetricsFile::write(const HostsEvent&);
template void MetricsFile::keep(const HostsEvent&);
template void MetricsFile::write(const ValidationEvent&);
template void MetricsFile::keep(const ValidationEvent&);
template void MetricsFile::write(const SaveEvent&);
template void MetricsFile::keep(const SaveEvent&);
template void MetricsFile::write(const CheckpointEvent&);
template void MetricsFile::keep(const CheckpointEvent&);
template void MetricsFile::write(const WarningEvent&);
template void MetricsFile::keep(const WarningEvent&);
template void MetricsFile::write(const EndEvent&);

void MetricsFile::write_end(const EndEvent& event) {
  const std::string line = line_of(event);
  waiting_ += line;
  try {
    write_waiting();
  } catch (const Error&) {
    // Lines are written in their order, so this one still waits, as the last.
    waiting_.resize(waiting_.size() - line.size());
    throw;
  }
}

void MetricsFile::sync() {
  write_waiting();
  file_.sync();
}

void MetricsFile::write_waiting() {
  // Line by line: on a disk that is nearly full, the lines that still fit are written.
  size_t written = 0;
  try {
    while (written < waiting_.size()) {
      const size_t bytes = waiting_.find('\n', written) + 1 - written;
      file_.append(std::string_view(waiting_).substr(written, bytes));
      written += bytes;
    }
  } catch (const Error&) {
    waiting_.erase(0, written);
    throw;
  }
  waiting_.clear();
}

int64_t MetricsFile::waiting_lines() const {
  return std::count(waiting_.begin(), waiting_.end(), '\n');
}

MetricsLog read_metrics(const std::filesystem::path& path) {
  MetricsLog log;
  Damage damage;
  for_each_line(path, [&](int64_t number, std::string_view line) {
    try {
      add_line(line, log);
    } catch (const Error& error) {
      damage.add(number, error.what());
    }
  });
  log.damage = damage.text();
  return log;
}

std::optional<StartEvent> first_start(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  try {
    const InputFile file(path, ExitCode::kStorage);
    std::string begin(static_cast<size_t>(std::min(file.bytes(), kMostBytes)), '\0');
    file.read_at(0, begin.data(), std::ssize(begin));
    MetricsLog log;
    add_line(std::string_view(begin).substr(0, begin.find('\n')), log);
    if (!log.starts.empty()) return log.starts.front();
  } catch (const Error&) {
    // No file, or no log: then nothing is known.
  }
  return std::nullopt;
}

void check_metrics_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  if (!std::filesystem::is_regular_file(path))
    throw Error(ExitCode::kStorage, fmt::format("{}: is not a plain file", path.string()),
                "move it away: the run writes its log there");
  InputFile(path, ExitCode::kStorage);
}

std::string cut_to_step(const std::filesystem::path& path, int64_t step, bool replace) {
  if (!std::filesystem::exists(path)) return "";
  std::string kept, note;
  Damage damage;
  int64_t saved_step = 0;
  for_each_line(path, [&](int64_t number, std::string_view line) {
    try {
      MetricsLog one;
      const EventHead head = add_line(line, one);
      if (head.event == "checkpoint") saved_step = std::max(saved_step, head.step);
      if (head.step <= step) kept.append(line).append(1, '\n');
    } catch (const Error& error) {
      damage.add(number, error.what());
    }
  });
  const std::string name = path.filename().string();
  if (!damage.text().empty())
    note = fmt::format("{}: {}: a copy of the file is {}, the other lines go on in {}", path.string(),
                       damage.text(), copy_aside(path, "damaged"), name);
  else if (saved_step > step)
    note = fmt::format(
        "{} tells of a checkpoint of step {}, but the run goes on from step {}: a copy of the file is {}, "
        "and the later steps are removed from {}",
        path.string(), saved_step, step, copy_aside(path, "uncut"), name);
  // Most starts cut nothing: leave the file alone then.
  if (replace || kept.size() != std::filesystem::file_size(path) ||
      std::filesystem::hard_link_count(path) > 1)
    write_whole_file(path, kept);
  return note;
}

}  // namespace ripstop
