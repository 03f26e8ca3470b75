// Recorder: what was given to the streams of a CUDA device that does nothing, and whether it is in order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ripstop::testing {

/// Bytes of device memory that an operation reads or writes.
struct Span {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;

  const std::byte* end() const { return begin + bytes; }
  bool overlaps(const Span& other) const { return begin < other.end() && other.begin < end(); }
  bool covers(const Span& other) const { return begin <= other.begin && other.end() <= end(); }
};

/// Time of every stream, the host being number 0: entry s of an operation's clock is how many operations of
/// stream s are done for certain when it begins (its own entry: itself counted).
using Clock = std::vector<int64_t>;

struct RecordedOperation {
  std::string name;
  int stream = 0;
  Clock clock;
  std::vector<Span> reads, writes;
  const void* comm = nullptr;  ///< of a collective

  /// Whether this one is done for certain when `later` begins.
  bool happens_before(const RecordedOperation& later) const {
    const auto s = static_cast<size_t>(stream);
    return s < later.clock.size() && clock[s] <= later.clock[s];
  }
};

/// Stands for device, driver, run time and NCCL: fake_cuda.cpp calls it. Streams run in any order that events
/// and the host's waits allow; two accesses of the same bytes, one of them a write, that no such order
/// decides are a race.
class Recorder {
 public:
  /// The one that the calls below cudaMalloc, ncclAllGather ... go to.
  static Recorder& instance();

  /// Forgets what was recorded, not what exists.
  void clear();

  // What the fake calls.
  int make_stream();
  int make_event();
  void record(int event, int stream);
  void make_wait(int event, int stream);
  void host_waits_for_event(int event);
  void host_waits_for_stream(int stream);
  void host_waits_for_all();
  void operation(const std::string& name, int stream, std::vector<Span> reads, std::vector<Span> writes,
                 const void* comm = nullptr);
  void forget(const Span& memory);  ///< it was freed
  /// Whether the host may say that the event is reached: late, as a slow GPU would.
  bool query(int event);

  /// Which waits of streams for events are left out, to see that they are missed.
  enum class Drop { kNone, kOfCommunication, kOfCompute };
  Drop drop = Drop::kNone;
  /// Memory that communicators were told of.
  struct Registered {
    const void* comm;
    Span memory;
    bool window;
  };
  std::vector<Registered> registered;
  /// Whether NCCL has symmetric windows.
  bool has_windows = true;
  /// Whether NCCL gives memory, and what the device says is free.
  bool nccl_gives_memory = true;
  int64_t free_bytes = int64_t{1} << 36;
  /// The stream that the model's kernels run on.
  int compute_stream = -1;

  const std::vector<RecordedOperation>& log() const { return log_; }
  const std::vector<std::string>& races() const { return races_; }
  int streams() const { return static_cast<int>(now_.size()); }

 private:
  struct Access {
    Span span;
    bool writes = false;
    int stream = 0;
    int64_t time = 0;
    std::string name;
  };
  void access(const RecordedOperation& operation, const Span& span, bool writes);
  static void join(Clock& clock, const Clock& other);

  std::vector<Clock> now_{{0}};  ///< by stream
  std::vector<Clock> events_;
  std::vector<int> queries_;  ///< since the event was recorded
  std::vector<Access> accesses_;
  std::vector<RecordedOperation> log_;
  std::vector<std::string> races_;
};

}  // namespace ripstop::testing
