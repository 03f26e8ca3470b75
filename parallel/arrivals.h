// Arrivals: which ranks have come to the start of MPI, told by files, as no rank can be asked before MPI
// runs.
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
    bool moves = true;  ///< touched the file of the rank a moment ago; a stopped or dead one does not
  };
  std::filesystem::path folder;
  std::vector<Rank> ranks;  ///< the ranks that have come, in order
};

/// Tells for people who of `size` ranks is missing: "ranks 2-3 of 4 have not come (node n2)". `nodes` are the
/// hosts of the job, if they are known: those without a rank are named. Pure.
std::string missing_at_start(const ArrivalsSeen& seen, int64_t size, const std::vector<std::string>& nodes);

/// Says that this rank has come, from construction to leave(): a thread makes the file RANK@HOST in the
/// folder `.ripstop-start.LAUNCH` of `near`, or of the nearest folder above it that exists, and touches it
/// every `seconds_between_touches`. The thread alone touches files, so a file system that hangs holds up
/// nobody else. Whatever fails, fails without a word: then this rank is not seen.
class Arrivals {
 public:
  Arrivals(const std::filesystem::path& near, const std::string& launch, int64_t rank,
           const std::string& host, double seconds_between_touches);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Ends the thread and removes this rank's file, and with the last file the folder.
  void leave();
  /// Removes the folder with all files that are left in it, and those that killed starts left in the same
  /// place more than a day ago. For one rank, when all have left.
  void remove_all() const;
  /// Reads the folder. A file that is more than four touches older than the newest does not move.
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
