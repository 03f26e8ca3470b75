#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "model/device/cuda_machine.h"
#include "model/device/device.h"
#include "model/device/tensor.h"
#include "model/ops/ops.h"

namespace ripstop {

/// A collective under way. Its tensors must stay alive and untouched until wait() returns. The destructor
/// waits, except while an exception unwinds; if its wait fails, the process ends.
class Pending {
 public:
  /// A collective as its back end implements it.
  class Operation {
   public:
    virtual ~Operation() = default;
    /// Finishes the operation: a host back end blocks until the result is there, a device back end makes
    /// `stream` wait for the result. Throws Error(kCommunication) if the deadline passes.
    virtual void wait(const Stream& stream) = 0;
    /// Lets the operation make progress; never blocks. Returns whether wait() would return without waiting
    /// for other ranks.
    virtual bool poll() = 0;
  };

  Pending() = default;  ///< no collective
  Pending(std::unique_ptr<Operation> operation, const Stream& stream)
      : operation_(std::move(operation)), stream_(&stream) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other);
  ~Pending();

  bool done() const { return operation_ == nullptr; }
  /// Same as Operation::wait(); does nothing if done().
  void wait();
  /// Drops the collective without a wait. Only for a group with an own_stream(): later uses of the tensors
  /// must be ordered behind that stream.
  void leave() { operation_.reset(); }
  /// Same as Operation::poll(); true if done().
  bool poll() { return operation_ == nullptr || operation_->poll(); }

 private:
  std::unique_ptr<Operation> operation_;
  const Stream* stream_ = nullptr;
};

/// Memory that a group's back end has registered. The destructor waits for the group's work in this memory,
/// except while an exception unwinds.
class Registration {
 public:
  virtual ~Registration() = default;
  /// Whether NCCL gave a window, by which GPUs that reach each other's memory read and write it directly.
  virtual bool is_window() const = 0;
};

/// A message to rank `to` and one from rank `from`. Both peers are this rank, or both are other ranks.
struct Exchange {
  Tensor send;
  int64_t to = 0;
  Tensor receive;
  int64_t from = 0;
};

/// Collectives over the ranks of one group. All ranks of the group must call the same operations in the same
/// order, except start_send() and start_receive(), and with equal sizes, except exchanges and texts. Tensors
/// are contiguous and lie on the group's device or in host memory. Sums in host memory are in rank order, so
/// equal inputs give equal bits; for NCCL see make_nccl_communicator(). Only one thread may call a
/// communicator. A wait for ranks that passes its deadline throws Error(kCommunication), which names
/// operation, axis and step.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// The name of this group in messages, such as "world" or an axis.
  virtual const std::string& name() const = 0;

  /// Starts to gather the tensors `own` [n] of all ranks, in rank order, into `all` [size * n] on every
  /// rank. Any dtype. `own` may be this rank's part of `all`. Sends bytes(own) * (size - 1). Returns at once.
  [[nodiscard]] virtual Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) = 0;

  virtual DeviceKind kind() const { return DeviceKind::kCpu; }

  /// Bytes of scratch that reduce_scatter() needs for `whole_count` elements sent in the dtype `travel`: one
  /// piece for every other rank. On CUDA in float32 one piece is enough, because NCCL sums the pieces itself.
  int64_t reduce_scatter_scratch_bytes(int64_t whole_count, DType travel) const;

  /// Starts a reduce-scatter: own [n] (+)= the sum over all ranks of piece number rank() of their `whole`
  /// [size * n]. `own` is complete after the wait, and may be this rank's piece of `whole`.
  /// `whole` and `own` are both float32, or both bfloat16 (activations), then summed in float32 and
  /// rounded once. Pieces are sent in `travel`: the dtype of `whole`, or bfloat16. If the dtypes differ,
  /// the pieces for other ranks are rounded and overwritten in `whole`; this rank's own piece is summed
  /// unrounded. `scratch` has reduce_scatter_scratch_bytes() and must stay untouched until the wait. Sends
  /// bytes(travel) * n * (size - 1).
  [[nodiscard]] virtual Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own,
                                               DType travel, Accumulate accumulate,
                                               const Tensor& scratch) = 0;

  /// Bytes of scratch that an all-reduce of `count` elements of `dtype`, sent in the dtype `travel`, needs:
  /// one part for every other rank. On CUDA: a rounded copy if the dtypes differ, else 0.
  int64_t all_reduce_scratch_bytes(int64_t count, DType dtype, DType travel) const;
  int64_t all_reduce_scratch_bytes(int64_t count, DType dtype) const {
    return all_reduce_scratch_bytes(count, dtype, dtype);
  }

  /// Starts to replace x by the sum of x over all ranks, with equal bits on all ranks. x is float32, float64,
  /// bfloat16 or int32. Parts are sent in `travel`: x's dtype or, for at least size() float32 numbers,
  /// bfloat16: then other ranks' terms and the result are rounded, but the terms are added in float32, in
  /// rank order. Sends at most 2 * bytes(travel) * (size - 1) * (count / size, rounded up).
  /// `scratch` has all_reduce_scratch_bytes() and must stay untouched until the wait. If another stream than
  /// `stream` writes x, pass it as `behind`: the collective begins after the work of `behind`. If several
  /// all-reduces are under way, all ranks must wait for them in the same order.
  [[nodiscard]] virtual Pending start_all_reduce(const Stream& stream, const Tensor& x, DType travel,
                                                 const Tensor& scratch, const Stream* behind) = 0;

  /// Starts an all-reduce in the dtype of x and waits for it, in stream order. The scratch has
  /// all_reduce_scratch_bytes().
  void all_reduce(const Stream& stream, const Tensor& x, const Tensor& scratch) {
    start_all_reduce(stream, x, x.dtype, scratch, nullptr).wait();
  }

  /// The stream that runs this group's collectives in order; null if the host runs them in wait() and poll().
  virtual const Stream* own_stream() const { return nullptr; }

  /// Replaces x on every rank by the x of rank `root`. Waits, in stream order.
  virtual void broadcast(const Stream& stream, const Tensor& x, int64_t root) = 0;

  /// Starts all `exchanges`; the Pending is done when all are. Sender and receiver must give equal sizes.
  [[nodiscard]] virtual Pending start_exchanges(const Stream& stream,
                                                std::span<const Exchange> exchanges) = 0;

  /// Makes one exchange and waits for it, in stream order.
  void exchange(const Stream& stream, const Tensor& send, int64_t to, const Tensor& receive, int64_t from) {
    const Exchange one{.send = send, .to = to, .receive = receive, .from = from};
    start_exchanges(stream, {&one, 1}).wait();
  }

  /// Starts to send x to another rank, `to`, which receives as many bytes. Any dtype. Only these two ranks
  /// call. The messages from one rank to another are a queue: receives get them in the order of the sends,
  /// whatever else is under way. Sends bytes(x). Returns at once; waits may come in any order. NCCL moves the
  /// messages and collectives of a group one after another, so if two ranks send to each other, one must
  /// receive before it sends. With NCCL the first call between two ranks returns when both have called.
  [[nodiscard]] virtual Pending start_send(const Stream& stream, const Tensor& x, int64_t to) = 0;
  /// Starts to replace x by the next message of rank `from`; see start_send(). Sends nothing. x may be
  /// overwritten once the event `behind` is reached (null: once `stream` has done its work so far). Groups
  /// without an own_stream() ignore `behind`, because x lies in host memory or is written by the wait.
  [[nodiscard]] virtual Pending start_receive(const Stream& stream, const Tensor& x, int64_t from,
                                              const Event* behind) = 0;

  /// The source of the memory that this group moves fastest; null for the device's ordinary memory.
  virtual const MemorySource* memory_source() const { return nullptr; }

  /// Registers `bytes` bytes of memory_source() with the back end, whose collectives then need no staging
  /// buffers for them. All ranks give equal sizes and later use parts at equal offsets. Returns null if this
  /// back end has no registration. Group and memory must outlive the registration. Collective.
  [[nodiscard]] virtual std::unique_ptr<Registration> register_memory(void*, int64_t) { return nullptr; }

  /// Gathers a short text of every rank, in rank order. Blocks.
  virtual std::vector<std::string> all_gather_text(const std::string& text) = 0;

  virtual void barrier() = 0;  ///< waits until all ranks have called it

  /// Calls done() until it returns true, with the deadline of this group's waits. The error at the deadline
  /// names `operation`. For back ends that are built on this group.
  virtual void await(const char* operation, FunctionRef<bool()> done);

  /// Groups the ranks with equal `color`, ordered by `key`. Returns the new group of this rank. Collective.
  virtual std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name) = 0;

  /// Bytes of tensors that this rank has sent so far.
  virtual int64_t bytes_sent() const = 0;
  /// Exposed communication so far: seconds for which compute waited for this group. Host back ends count the
  /// host's time in calls that post, test or await messages, NCCL counts waits of the device's stream.
  virtual double seconds_waited() const = 0;
};

/// Makes the group of one rank. Its collectives copy or add input to output; copies in place do nothing.
std::unique_ptr<Communicator> make_self_communicator(const std::string& name);

/// Predicts when a planned group's messages arrive. Seconds count from the start of the planner's clock.
class PlannedLink {
 public:
  virtual ~PlannedLink() = default;
  /// Every rank begins to send `bytes` in all, in equal parts to the other ranks. The messages take `rounds`
  /// latencies. Returns the second at which all messages have arrived.
  virtual double start(int64_t bytes, int64_t rounds) = 0;
  /// Another rank begins to send `bytes` to this rank, beside start(). Returns the second of their arrival.
  virtual double start_receive(int64_t bytes) = 0;
  virtual bool has_passed(double second) const = 0;
  /// Lets this rank wait until `second`.
  virtual void wait_until(double second) = 0;
};

/// Called with each operation of a planned group ("all_gather", ...) and the bytes that it sends.
using SentObserver = std::function<void(const char* operation, int64_t bytes)>;
/// Makes rank `rank` of a planned group of `size` ranks, for the planner, which runs a step on kMeta. The
/// group checks operands and counts bytes, but moves nothing. `kind`: the planned device. With `link`
/// (borrowed), waits take the link's time, and sums of host or rounded tensors run on the caller's stream.
std::unique_ptr<Communicator> make_planned_communicator(const std::string& name, int64_t rank, int64_t size,
                                                        DeviceKind kind = DeviceKind::kCpu,
                                                        SentObserver sent = {}, PlannedLink* link = nullptr);

/// Makes a group that moves tensors on `device` through host memory, over `host`: for ranks that share a GPU,
/// because no library moves device memory between them. Every wait blocks the host.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       const Device& device);

/// Makes a group that moves tensors on the CUDA device `device` over NCCL; each rank has a GPU of its own. A
/// wait blocks the caller's stream, not the host. All ranks must issue GPU work in the same order. Sums
/// follow NCCL's order, which is the same on every run with one topology if the device is deterministic;
/// otherwise the order varies where NVLink switches add. Pieces sent in bfloat16 are summed in rank order in
/// float32. make_device_communicator() chooses between the kinds of communicators. Throws Error(kResources)
/// if CUDA is not built in. Collective.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     const Device& device);

/// The versions of NCCL at build time and at run time; both "" without NCCL.
CudaLibrary nccl_library();

}  // namespace ripstop
