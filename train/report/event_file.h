// TensorBoard's event files. docs/formats.md has the format and lists the tags.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/report/metrics.h"

namespace ripstop {

/// Names the event file of one start of a run and makes its records; the caller writes them.
class EventFile {
 public:
  /// Names a new file in `directory`. The number in the name is the present second, but at least one more
  /// than in any event file there: readers take files in the order of names. Throws Error(kStorage) if the
  /// directory cannot be listed.
  EventFile(const std::filesystem::path& directory, const RunConfig& config);

  const std::filesystem::path& path() const { return path_; }

  /// The records for `event`; "" if TensorBoard shows nothing of it. The first event must be a StartEvent.
  /// `time`: seconds since 1970 by this host's clock. Times in records do not go back, also from one file to
  /// the next: if the clock is behind the older files, times go on from their last time.
  std::string records(const MetricsEvent& event, double time);

 private:
  std::filesystem::path path_;
  const RunConfig config_;
  const std::vector<std::string> sets_;  ///< short names of several data sets
  double last_time_ = 0;                 ///< last time in the older files, then that of the last record
  double shift_ = 0;                     ///< seconds by which the clock was behind last_time_ at the start
};

}  // namespace ripstop
