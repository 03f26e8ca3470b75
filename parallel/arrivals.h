// Arrivals: files that show which ranks have come to the start of MPI, when no rank can be asked yet.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ripstop {

/// The content of a launch's folder at one moment.
struct ArrivalsSeen {
  struct Rank {
    int64_t rank = 0;
    std::string host;
    bool moves = true;  ///< whether the rank touched its file a moment ago: it is neither stopped nor dead
  };
  std::filesystem::path folder;
  std::vector<Rank> ranks;  ///< the ranks that have come, in rising order
};

/// Describes the ranks of `size` that are missing: "ranks 2-3 of 4 have not come, and nobody from n2".
/// `nodes` are the hosts of the job, if they are known. Pure.
std::string missing_at_start(const ArrivalsSeen& seen, int64_t size, const std::vector<std::string>& nodes);

/// Shows that this rank has come, from construction to leave(). A thread makes the file RANK@HOST in the
/// folder `.ripstop-start.LAUNCH` of `near`, or of the nearest existing folder above it, and touches the file
/// every `seconds_between_touches`. A file system that hangs holds up this thread alone. Errors are silent:
/// then the other ranks do not see this one.
class Arrivals {
 public:
  Arrivals(const std::filesystem::path& near, const std::string& launch, int64_t rank,
           const std::string& host, double seconds_between_touches);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Ends the thread and removes this rank's file, and with the last file the folder.
  void leave();
  /// Removes the folder with all files in it, and the folders beside it that killed starts left more than a
  /// day ago. For one rank, when all have left.
  void remove_all() const;
  /// Reads the folder. `moves` is false for a file more than four touches older than the newest one.
  ArrivalsSeen look() const;

 private:
  void touch_again();

  const std::filesystem::path folder_;
  const std::filesystem::path file_;
  const double seconds_between_touches_;
  std::mutex mutex_;  ///< guards ends_
  std::condition_variable woken_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ripstop
