// TensorBoard's event files. docs/formats.md has the format and lists the tags.
#pragma once
#include <filesystem>
#include <string>

#include "train/config/run_config.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The event file of one start of a run: its name, and its records, which the caller writes.
class EventFile {
 public:
  /// Names a new file in `directory`. Readers take the files of a directory in the order of their names: the
  /// number in the name, which is the present second, is above that of every event file there. Throws
  /// Error(kStorage) if the directory cannot be listed.
  EventFile(const std::filesystem::path& directory, const RunConfig& config);

  const std::filesystem::path& path() const { return path_; }

  /// The records that tell of `event`; "" if TensorBoard shows nothing of it. The first event must be a
  /// StartEvent. `time`: seconds since 1970 by this host's clock. The times in the records never go back, not
  /// behind those of the older files either: a clock that is behind them goes on from the last one.
  std::string records(const MetricsEvent& event, double time);

 private:
  std::filesystem::path path_;
  const RunConfig config_;
  double last_time_ = 0;  ///< of the older files, then of the last record
  double shift_ = 0;      ///< seconds by which the clock was behind last_time_ at the start
};

}  // namespace ripstop
