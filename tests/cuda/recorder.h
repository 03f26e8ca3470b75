// Recorder: records the work given to the streams of a fake CUDA device, and finds races.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ripstop::recording {

/// Bytes of device memory that an operation reads or writes.
struct Span {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;

  const std::byte* end() const { return begin + bytes; }
  bool overlaps(const Span& other) const { return begin < other.end() && other.begin < end(); }
  bool covers(const Span& other) const { return begin <= other.begin && other.end() <= end(); }
};

/// A vector clock. Stream 0 is the host. Entry s of an operation's clock: how many operations of stream s are
/// certainly done when the operation begins. The entry of its own stream counts the operation itself.
using Clock = std::vector<int64_t>;

struct RecordedOperation {
  std::string name;
  int stream = 0;
  Clock clock;
  std::vector<Span> reads, writes;
  const void* comm = nullptr;  ///< the communicator of a collective
  int group = 0;               ///< the number of the group of NCCL's in which it was given; 0: none

  /// Whether this operation is certainly done when `later` begins.
  bool happens_before(const RecordedOperation& later) const {
    const auto s = static_cast<size_t>(stream);
    return s < later.clock.size() && clock[s] <= later.clock[s];
  }
};

/// Stands for device, driver, run time and NCCL; fake_*.cpp call it. Streams may run in any order that
/// events and waits of the host allow. A race is a pair of accesses to the same bytes, at least one of them a
/// write, whose order is not decided.
class Recorder {
 public:
  /// The recorder that the fake cudaMalloc, ncclAllGather and so on call.
  static Recorder& instance();

  /// Forgets the log and the races. Streams, events and memory stay.
  void clear();

  // Called by the fake.
  int make_stream();
  int make_event();
  void record(int event, int stream);
  void make_wait(int event, int stream);
  void host_waits_for_event(int event);
  void host_waits_for_stream(int stream);
  void host_waits_for_all();
  void operation(const std::string& name, int stream, std::vector<Span> reads, std::vector<Span> writes,
                 const void* comm = nullptr);
  void forget(const Span& memory);  ///< called when memory is freed
  /// Whether the event is reached. Says no several times first, as with a slow GPU.
  bool query(int event);

  /// The waits of streams for events that the recorder ignores, to test that it then finds races.
  enum class Drop { kNone, kOfCommunication, kOfCompute };
  Drop drop = Drop::kNone;
  /// Memory that is registered with communicators.
  struct Registered {
    const void* comm;
    Span memory;
    bool window;
  };
  std::vector<Registered> registered;
  /// Calls of NCCL that came before the communicator was done with the previous one.
  std::vector<std::string> refused;
  /// The group of calls of NCCL's that is open; 0: none.
  int group = 0;
  /// Whether NCCL has symmetric windows.
  bool has_windows = true;
  /// Whether ncclMemAlloc succeeds, and the free bytes that the device reports.
  bool nccl_gives_memory = true;
  int64_t free_bytes = int64_t{1} << 36;
  /// The stream on which the model's kernels run.
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

  std::vector<Clock> now_{{0}};  ///< one clock per stream
  std::vector<Clock> events_;
  std::vector<int> queries_;  ///< by event, since it was recorded
  std::vector<Access> accesses_;
  std::vector<RecordedOperation> log_;
  std::vector<std::string> races_;
};

}  // namespace ripstop::recording
