// Communicator: collectives of one group of ranks, as FSDP and tensor parallelism need them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "model/device/cuda_machine.h"
#include "model/device/device.h"
#include "model/device/tensor.h"
#include "model/ops/ops.h"

namespace ripstop {

/// A collective under way. Its tensors must stay alive and untouched until `wait` returns. Moves, does not
/// copy. Dropped without `wait`, it waits in the destructor (which ends the process if that fails); dropped
/// while an exception unwinds, it is abandoned, as the group is about to end.
class Pending {
 public:
  /// What a back end keeps about an operation.
  class Operation {
   public:
    virtual ~Operation() = default;
    /// Finishes the operation: on a host back end the result is there on return; on a device back end
    /// `stream` is made to wait for it. Throws Error(kCommunication) past the deadline.
    virtual void wait(const Stream& stream) = 0;
    /// Drives progress a little; never blocks.
    virtual void poll() = 0;
  };

  Pending() = default;  ///< of nothing: done
  Pending(std::unique_ptr<Operation> operation, const Stream& stream)
      : operation_(std::move(operation)), stream_(&stream) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other);
  ~Pending();

  bool done() const { return operation_ == nullptr; }
  void wait();
  void poll() {
    if (operation_) operation_->poll();
  }

 private:
  std::unique_ptr<Operation> operation_;
  const Stream* stream_ = nullptr;
};

/// Memory that a group's back end was told of; ends what register_memory began, once the group's work in it
/// is done.
class Registration {
 public:
  virtual ~Registration() = default;
};

/// The name of groups whose collectives run beside the model's kernels: NCCL leaves those kernels room.
inline constexpr const char* kFsdpAxis = "fsdp";

/// Collectives over the ranks of one group. All ranks of the group call the same operations in the same order
/// with equal sizes. Tensors are contiguous and on this communicator's device; counts are 64-bit. Summation
/// order is the order of ranks, so equal inputs give equal bits whatever the timing. One thread calls.
///
/// Every wait has a deadline and throws Error(kCommunication) that names the operation, the axis and the
/// step.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// What messages call this group: "world", "replicate", kFsdpAxis, "tensor".
  virtual const std::string& name() const = 0;

  /// all [size * n] = the `own` [n] of every rank, in rank order. Any dtype. `own` may be its place in `all`.
  /// Sends bytes(own) * (size - 1). Returns at once.
  [[nodiscard]] virtual Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) = 0;

  /// Scratch that `reduce_scatter` of `whole` travelling as `travel` needs.
  virtual int64_t reduce_scatter_scratch_bytes(int64_t whole_count, DType travel) const = 0;

  /// own [n] (+)= the sum over all ranks of their piece number rank() of whole [size * n]. whole and own have
  /// one dtype: float32, or bfloat16 (activations; the sum is in float32 and rounded once). `travel` is what
  /// is sent: that dtype or bfloat16; where it is another one, the pieces for others are rounded in place and
  /// `whole` is lost, while the own piece is summed unrounded. scratch: reduce_scatter_scratch_bytes, kept
  /// until the wait. Sends n * bytes(travel) * (size - 1). Returns at once; `own` is written by the wait and
  /// may be this rank's piece of `whole`.
  [[nodiscard]] virtual Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own,
                                               DType travel, Accumulate accumulate,
                                               const Tensor& scratch) = 0;

  /// Scratch that `all_reduce` of `count` elements needs.
  virtual int64_t all_reduce_scratch_bytes(int64_t count, DType dtype) const = 0;

  /// Replaces x by its sum or maximum over all ranks, equal bits on all. float32, float64, bfloat16, int32.
  /// Blocks (in stream order). Sends at most 2 * bytes(x) * (size - 1) / size, rounded up to whole elements.
  virtual void all_reduce(const Stream& stream, const Tensor& x, Reduce reduce, const Tensor& scratch) = 0;

  /// Replaces x on every rank by rank `root`'s. Blocks (in stream order).
  virtual void broadcast(const Stream& stream, const Tensor& x, int64_t root) = 0;

  /// Sends `send` to rank `to` and receives `receive` from rank `from`, of whatever size that rank sends;
  /// `to` and `from` are both this rank or both others. Returns at once.
  [[nodiscard]] virtual Pending start_exchange(const Stream& stream, const Tensor& send, int64_t to,
                                               const Tensor& receive, int64_t from) = 0;

  /// start_exchange, and its wait. Blocks (in stream order).
  void exchange(const Stream& stream, const Tensor& send, int64_t to, const Tensor& receive, int64_t from) {
    start_exchange(stream, send, to, receive, from).wait();
  }

  /// Who gives the memory that this group moves best; null: the device does.
  virtual const MemorySource* memory_source() const { return nullptr; }

  /// Tells the back end of `bytes` bytes of that memory, so that collectives that begin and end in it need no
  /// copies of their own. All ranks call, with equal sizes, and use parts at equal offsets from then on. Null
  /// where that changes nothing. The group outlives what is returned, the memory as well.
  [[nodiscard]] virtual std::unique_ptr<Registration> register_memory(void*, int64_t) { return nullptr; }

  /// A short text of every rank, in rank order: for agreement at start-up, error reports, host names. Blocks.
  virtual std::vector<std::string> all_gather_text(const std::string& text) = 0;

  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// Calls `done` until it is true, at the pace and with the deadline of this group's own waits: for back
  /// ends that are built on this one. `operation` is what the error names.
  virtual void await(const char* operation, FunctionRef<bool()> done);

  /// The group of the ranks that give the same color, in the order of key.
  virtual std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name) = 0;

  /// Bytes this rank has sent in tensor collectives, its own block excluded (what each operation's doc says).
  virtual int64_t bytes_sent() const = 0;
  /// Seconds the caller spent inside waits.
  virtual double seconds_waited() const = 0;
};

/// The group of one rank. Copies where a collective has an output.
std::unique_ptr<Communicator> make_self_communicator(const std::string& name);

/// Rank `rank` of a group of `size` that does not exist: counts bytes as a real one would and moves nothing.
/// What the planner runs a step with, on kMeta; `kind` is the planned device's.
std::unique_ptr<Communicator> make_planned_communicator(const std::string& name, int64_t rank, int64_t size,
                                                        DeviceKind kind = DeviceKind::kCpu);

/// The group of `host` for tensors on `device` where no library moves device memory between the ranks
/// (several ranks on one GPU): every collective goes through host memory and `host`, and the host waits for
/// it. Tensors in host memory are handed to `host` as they are.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       const Device& device);

/// The group of `host` for tensors on the CUDA device `index`, over NCCL; all ranks call, each with a GPU of
/// its own. Collectives run on a stream of this communicator, ordered by events: a call returns at once, and
/// its wait makes the waiting stream wait, not the host. All ranks must give the GPU work in the same order.
/// Sums follow NCCL's order, which is the same on every run with one topology; what travels in bfloat16 is
/// summed in rank order in float32. Tensors in host memory are handed to `host`. Throws Error(kResources)
/// where CUDA is not built in. nccl_*.cpp, no_nccl.cpp.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, int index);

/// NCCL as built and as found at run time; without versions where it is not built in.
CudaLibrary nccl_library();

}  // namespace ripstop
