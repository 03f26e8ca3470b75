// Communicator: the collectives of one group of ranks that FSDP and tensor parallelism need.
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

/// A collective under way. Its tensors must stay alive and untouched until `wait` returns. Can be moved, not
/// copied. The destructor waits, except while an exception unwinds, and ends the process if that wait fails.
class Pending {
 public:
  /// A back end's side of the collective.
  class Operation {
   public:
    virtual ~Operation() = default;
    /// Finishes the operation. A host back end blocks until the result is there; a device back end makes
    /// `stream` wait for the result. Throws Error(kCommunication) past the deadline.
    virtual void wait(const Stream& stream) = 0;
    /// Lets the operation make progress; never blocks. Returns whether `wait` would not wait for other ranks.
    virtual bool poll() = 0;
  };

  Pending() = default;  ///< no collective: done
  Pending(std::unique_ptr<Operation> operation, const Stream& stream)
      : operation_(std::move(operation)), stream_(&stream) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other);
  ~Pending();

  bool done() const { return operation_ == nullptr; }
  void wait();
  /// See Operation::poll.
  bool poll() { return operation_ == nullptr || operation_->poll(); }

 private:
  std::unique_ptr<Operation> operation_;
  const Stream* stream_ = nullptr;
};

/// Memory that is registered with a group's back end. The destructor waits for the group's work in the memory
/// and ends the registration.
class Registration {
 public:
  virtual ~Registration() = default;
  /// Whether the ranks' GPUs read and write this memory of each other (a symmetric window).
  virtual bool is_window() const = 0;
};

/// Two messages: `send` to rank `to`, and one from rank `from` into `receive`. Both peers are this rank, or
/// both are other ranks.
struct Exchange {
  Tensor send;
  int64_t to = 0;
  Tensor receive;
  int64_t from = 0;
};

/// Collectives over the ranks of one group. All ranks of the group call the same operations in the same order
/// with equal sizes. Tensors are contiguous and lie on this communicator's device; counts are 64-bit. Sums
/// are in rank order, so equal inputs give equal bits whatever the timing. Only one thread may call.
///
/// Every wait has a deadline. Past the deadline, Error(kCommunication) names operation, axis and step.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// The name of this group in messages: "world", or the word of an axis.
  virtual const std::string& name() const = 0;

  /// Gathers: all [size * n] = the `own` [n] of every rank, in rank order. Any dtype. `own` may lie at its
  /// place in `all`. Sends bytes(own) * (size - 1). Returns at once.
  [[nodiscard]] virtual Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) = 0;

  /// The kind of device whose tensors the group moves.
  virtual DeviceKind kind() const { return DeviceKind::kCpu; }

  /// Bytes of scratch that `reduce_scatter` needs for a whole of `whole_count` elements sent as `travel`: one
  /// piece from each other rank. On CUDA one piece is enough in float32, because NCCL then sums the pieces.
  int64_t reduce_scatter_scratch_bytes(int64_t whole_count, DType travel) const;

  /// Reduce-scatters: own [n] (+)= the sum over all ranks of piece number rank() of their whole [size * n].
  /// whole and own have one dtype: float32, or bfloat16 (activations), which is summed in float32 and rounded
  /// once. Pieces are sent as `travel`: the same dtype, or bfloat16. With another dtype the pieces for other
  /// ranks are rounded in place, which destroys `whole`; this rank's own piece is summed unrounded. scratch:
  /// reduce_scatter_scratch_bytes, untouched until the wait. Sends n * bytes(travel) * (size - 1). Returns at
  /// once; the wait writes `own`, which may be this rank's piece of `whole`.
  [[nodiscard]] virtual Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own,
                                               DType travel, Accumulate accumulate,
                                               const Tensor& scratch) = 0;

  /// Bytes of scratch that `all_reduce` needs for `count` elements: one part from each other rank; 0 on CUDA.
  int64_t all_reduce_scratch_bytes(int64_t count, DType dtype) const;

  /// Replaces x by its sum or maximum over all ranks, with equal bits on all. float32, float64, bfloat16,
  /// int32. Sends at most 2 * bytes(x) * (size - 1) / size, rounded up to whole elements. scratch:
  /// all_reduce_scratch_bytes, untouched until the wait. Returns at once. If the work of another stream
  /// writes x, that stream is `behind`: the collective begins behind its work, and only the wait concerns
  /// `stream`. All ranks must wait for several all-reduces in the same order.
  [[nodiscard]] virtual Pending start_all_reduce(const Stream& stream, const Tensor& x, Reduce reduce,
                                                 const Tensor& scratch, const Stream* behind) = 0;

  /// start_all_reduce and its wait. Blocks (in stream order).
  void all_reduce(const Stream& stream, const Tensor& x, Reduce reduce, const Tensor& scratch) {
    start_all_reduce(stream, x, reduce, scratch, nullptr).wait();
  }

  /// The stream on which this group's collectives run one after another. Null if the host runs and finishes
  /// them, in their wait.
  virtual const Stream* own_stream() const { return nullptr; }

  /// Replaces x on every rank by the x of rank `root`. Blocks (in stream order).
  virtual void broadcast(const Stream& stream, const Tensor& x, int64_t root) = 0;

  /// Makes all `exchanges` in one call of the back end. Sender and receiver of a message give equal sizes.
  /// Returns at once; the wait is for all exchanges.
  [[nodiscard]] virtual Pending start_exchanges(const Stream& stream,
                                                std::span<const Exchange> exchanges) = 0;

  /// One exchange and its wait. Blocks (in stream order).
  void exchange(const Stream& stream, const Tensor& send, int64_t to, const Tensor& receive, int64_t from) {
    const Exchange one{.send = send, .to = to, .receive = receive, .from = from};
    start_exchanges(stream, {&one, 1}).wait();
  }

  /// The source of the memory that this group moves fastest; null for the device's ordinary memory.
  virtual const MemorySource* memory_source() const { return nullptr; }

  /// Registers `bytes` bytes of memory from memory_source() with the back end, so that collectives need no
  /// staging buffers for them. All ranks call with equal sizes, and then use parts at equal offsets. Returns
  /// null if this back end has no registration. Group and memory must outlive the registration. Collective.
  [[nodiscard]] virtual std::unique_ptr<Registration> register_memory(void*, int64_t) { return nullptr; }

  /// Gathers a short text of every rank, in rank order: for start-up, errors and host names. Blocks.
  virtual std::vector<std::string> all_gather_text(const std::string& text) = 0;

  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// Calls `done` until it returns true, at the pace and with the deadline of this group's own waits: for
  /// back ends that are built on this one. The error names `operation`.
  virtual void await(const char* operation, FunctionRef<bool()> done);

  /// Makes the group of the ranks with equal `color`, in the order of `key`. Collective.
  virtual std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name) = 0;

  /// Bytes that this rank has sent in collectives of tensors.
  virtual int64_t bytes_sent() const = 0;
  /// Exposed communication: seconds that compute stood still for this group. Host back ends count waits of
  /// the host, NCCL counts waits of the device's stream.
  virtual double seconds_waited() const = 0;
};

/// The group of one rank. Collectives with an output are copies; collectives in place do nothing.
std::unique_ptr<Communicator> make_self_communicator(const std::string& name);

/// Rank `rank` of a planned group of `size` ranks: checks operands and counts bytes like a real group, but
/// moves nothing. The planner runs a step with it on kMeta; `kind` is the kind of the planned device. Calls
/// `sent` with each operation ("all_gather", ...) and the bytes that it sends.
using SentObserver = std::function<void(const char* operation, int64_t bytes)>;
std::unique_ptr<Communicator> make_planned_communicator(const std::string& name, int64_t rank, int64_t size,
                                                        DeviceKind kind = DeviceKind::kCpu,
                                                        SentObserver sent = {});

/// The group of `host` for tensors on `device`, through host memory: for ranks between which no library moves
/// device memory, such as several ranks on one GPU. The host waits for every collective. Passes tensors in
/// host memory to `host` as they are.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       const Device& device);

/// The group of `host` for tensors on the CUDA device `device`, over NCCL. Collective; each rank has a GPU of
/// its own. Collectives run on a stream of this communicator, ordered by events: a call returns at once, and
/// its wait blocks the caller's stream, not the host. All ranks must give the GPU work in the same order.
/// Sums follow NCCL's order. That order is the same on every run with one topology if the device is
/// deterministic; otherwise it varies where NVLink switches add. Pieces that travel in bfloat16 are summed in
/// rank order in float32. Passes tensors in host memory to `host`. Throws Error(kResources) if
/// CUDA is not built in. See nccl_*.cpp and no_nccl.cpp.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     const Device& device);

/// The versions of NCCL at build time and at run time; "" if NCCL is not built in.
CudaLibrary nccl_library();

}  // namespace ripstop
