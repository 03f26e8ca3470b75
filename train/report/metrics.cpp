#include "train/report/metrics.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "data/whole_file.h"
#include "model/core/error.h"
#include "train/report/metrics_lines.h"

namespace ripstop {
namespace {

// Calls visit(line) for every whole line. Text after the last line end is a torn line.
template <class Visit>
void for_each_line(const std::filesystem::path& path, Visit visit) {
  errno = 0;  // streams set no errno of their own, so an old one would name the wrong cause
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_storage(path, "open", errno);
  std::string line;
  for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    try {
      visit(line);
    } catch (const Error& error) {
      fail(error.code(), "{}:{}: {}", path.string(), number, error.what());
    }
  }
  if (file.bad()) fail_storage(path, "read", errno);
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path) : file_(path) {}

template <class Event>
void MetricsFile::write(const Event& event) {
  waiting_ += line_of(event);
  write_waiting();
}

// The templates are defined here, so that users of the header do not compile the JSON library.
template void MetricsFile::write(const StartEvent&);
template void MetricsFile::write(const StepMetrics&);
template void MetricsFile::write(const ValidationEvent&);
template void MetricsFile::write(const CheckpointEvent&);
template void MetricsFile::write(const WarningEvent&);
template void MetricsFile::write(const EndEvent&);

void MetricsFile::sync() {
  write_waiting();
  file_.sync();
}

void MetricsFile::write_waiting() {
  if (waiting_.empty()) return;
  file_.append(waiting_);
  waiting_.clear();
}

int64_t MetricsFile::waiting_lines() const {
  return std::count(waiting_.begin(), waiting_.end(), '\n');
}

MetricsLog read_metrics(const std::filesystem::path& path) {
  MetricsLog log;
  for_each_line(path, [&](const std::string& line) { add_line(line, log); });
  return log;
}

void cut_to_step(const std::filesystem::path& path, int64_t step) {
  if (!std::filesystem::exists(path)) return;
  std::string kept;
  for_each_line(path, [&](const std::string& line) {
    if (step_of_line(line) <= step) kept += line + "\n";
  });
  // Most starts cut nothing: leave the file alone then.
  if (kept.size() != std::filesystem::file_size(path)) write_whole_file(path, kept);
}

}  // namespace ripstop
