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
    /// Whether the rank touched its file recently; a stopped or dead rank does not touch it.
    bool moves = true;
  };
  std::filesystem::path folder;
  std::vector<Rank> ranks;  ///< in ascending order
};

/// Describes which ranks are missing, stand still or came: "ranks 2-3 of 4 have not come, and nobody from n2;
/// seen: ranks 0-1 (n1)". `nodes` are the hosts of the job; empty if unknown. Pure.
std::string missing_at_start(const ArrivalsSeen& seen, int64_t size, const std::vector<std::string>& nodes);

/// Shows other ranks that this rank has come, before MPI can do so. A thread makes the file RANK@HOST in the
/// folder `.ripstop-start.LAUNCH` of `near`, or of the nearest existing directory above `near`, and touches
/// the file every `seconds_between_touches` until leave(). Errors are not reported; the other ranks then do
/// not see this rank.
class Arrivals {
 public:
  Arrivals(const std::filesystem::path& near, const std::string& launch, int64_t rank,
           const std::string& host, double seconds_between_touches);
  ~Arrivals() { leave(); }
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Ends the thread and removes the file of this rank, and the folder if it is then empty.
  void leave();
  /// Removes the folder with all files and, of 1000 entries beside it, launch folders over a day old.
  /// One rank calls it, when all ranks have left or before it reports missing ranks.
  void remove_all() const;
  /// Reads the folder. `moves` is false for a file that is more than four touches behind the newest file.
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
