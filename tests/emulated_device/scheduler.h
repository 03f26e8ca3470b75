// The scheduler behind work_queue.h, as the stand-ins of the CUDA run time use it: streams, points in them,
// and the order in which their work runs.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {

/// The end of a piece of work: what an event records, and what other work and the host wait for.
struct Point {
  bool reached = false;
  std::chrono::steady_clock::time_point time;  ///< when it was reached
};
using PointHandle = std::shared_ptr<const Point>;

/// Holds the lock of the whole emulated device, which has one. Work runs under it, and may take it again. The
/// background thread gives way to a thread that wants it. The host must not hold it while it waits.
class DeviceLock {
 public:
  DeviceLock();
  ~DeviceLock();
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
};

/// All streams of this process and their work. Every function takes the lock of the device.
class Scheduler {
 public:
  static Scheduler& instance();

  /// `blocking`: ordered with the legacy stream, as cudaStreamDefault is. The stream takes the hardware queue
  /// that has the fewest.
  cudaStream_t make_stream(int device, bool blocking);
  /// The work goes on; the handle is no longer known.
  void end_stream(cudaStream_t stream);
  /// Whether the handle is that of a living stream. Null, the legacy stream, is one on every device. Refuses
  /// a stream that was destroyed: CUDA leaves undefined what its later use does.
  bool knows(cudaStream_t stream, const char* call) const;
  /// The device of a living stream that is not null.
  int device_of(cudaStream_t stream) const;

  /// Appends work that begins after `after` too, if that is not null. Returns its end.
  PointHandle append(cudaStream_t stream, std::string name, Work work, PointHandle after = nullptr);
  /// The end of all that a host would wait for in `stream` now: its last work, and for the legacy stream that
  /// of all blocking streams too. Points may be null: then there was no work.
  std::vector<PointHandle> ends_of(cudaStream_t stream) const;
  /// The ends of all streams of a device, and of the legacy stream.
  std::vector<PointHandle> ends(int device) const;
  /// Whether the device has come to a point; true of null.
  bool has_reached(const PointHandle& point) const;

  /// Runs work until all points are reached. While only work that waits for other ranks is at the heads,
  /// sleeps shortly and tries again. `call` appears in messages.
  void wait(const std::vector<PointHandle>& points, const char* call);
  /// Runs a few pieces of work, or none: what a device may do between two calls of the host. `at_least`, of
  /// 8: how often it runs something.
  void run_a_bit(uint64_t at_least = 0);
  /// The most streams that have shared one hardware queue.
  int64_t most_streams_of_a_queue() const;
  /// A random number in [0, limit), from the seed of this rank.
  uint64_t draw(uint64_t limit);
  /// Begins anew with this seed. At the start it is $RIPSTOP_EMULATED_SEED, or 1.
  void set_seed(uint64_t seed);
  /// The seed of now, equal on all ranks.
  uint64_t seed() const;
  /// The name of the work that runs now, or null. Readable without the lock, for signal handlers.
  const char* running() const { return running_; }

 private:
  struct Item {
    std::string name;
    Work work;
    std::vector<PointHandle> after;
    std::shared_ptr<Point> end;
    int64_t given = 0;  ///< the number of this work among all
    bool begun = false;
  };
  struct Queue {
    int64_t number = 0;
    int device = 0;
    bool blocking = false, ended = false;
    std::deque<Item> items;
    PointHandle last;
    size_t hardware_queue = 0;
    uint64_t rank = 0;  ///< the scheduler prefers streams with a larger one
  };
  enum class Progress { kRan, kWaits, kIdle };

  Scheduler();
  Queue* find(cudaStream_t stream) const;
  Progress run_one();
  bool run_head(Queue& queue);
  void shuffle();
  bool may_begin(const Queue& queue) const;
  void live();
  bool is_idle() const;
  std::string heads() const;

  std::vector<std::unique_ptr<Queue>> queues_;  ///< the legacy stream first
  std::map<cudaStream_t, Queue*> known_;
  std::vector<int64_t> streams_of_;  ///< by hardware queue
  int64_t made_ = 0, given_ = 0, most_streams_ = 0;
  std::mt19937_64 generator_;
  uint64_t seed_ = 0;
  uint64_t eagerness_ = 0;  ///< of 8: how often work runs between two calls
  const char* volatile running_ = nullptr;
  std::chrono::steady_clock::time_point last_sign_;  ///< of the host
};

/// Scheduler::instance().
inline Scheduler& scheduler() {
  return Scheduler::instance();
}

}  // namespace ripstop::emulated
