// The communicator over NCCL. Every group has a stream of its own: a collective begins when the caller's
// stream has come to it, and its wait makes the caller's stream wait. The host thread issues all in program
// order and waits nowhere but for errors and deadlines.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <utility>

#include "model/device/cuda_device.h"
#include "model/ops/kernel_table.h"
#include "parallel/collective_plan.h"
#include "parallel/communicator.h"

namespace ripstop {
namespace {

// Collectives of one group that may be under way. The host goes no further ahead: a GPU takes about a
// thousand launches before it blocks the host, which could then no longer see that a rank is lost.
constexpr std::size_t kMostOpen = 8;

// An event of the driver.
class CudaEvent {
 public:
  explicit CudaEvent(unsigned flags) {
    check_cuda(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
  }
  ~CudaEvent() {
    if (std::uncaught_exceptions() == 0) static_cast<void>(cudaEventDestroy(event_));
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream) const { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  void make_wait(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// A collective that was given to the GPU.
struct OpenCollective {
  const char* operation;
  std::int64_t sequence;
  CudaEvent end{cudaEventDisableTiming};
};

class NcclGroup;

// What the groups of one rank share: which collectives are under way, in the order they were issued. Host
// waits of all streams that collectives were issued from come through here.
class NcclWorld final : public CudaWaiter {
 public:
  void await(FunctionRef<bool()> done) override;

  std::vector<NcclGroup*> groups;
  std::int64_t sequence = 0;
};

// A group as its operations see it.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<NcclWorld> world, std::unique_ptr<Communicator> host, int device)
      : world_(std::move(world)), host_(std::move(host)), stream_(Device::cuda(device)) {
    world_->groups.push_back(this);
  }
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Collective calls of the whole group: make the NCCL communicator, or a part of another group's.
  void initialize();
  void initialize_part(NcclGroup& whole, std::int64_t color, std::int64_t key);

  /// What `call` returned; where NCCL goes on in the background, waits until it is through with the host's
  /// part.
  void check(ncclResult_t result, const char* call);
  /// Throws where a peer or the network failed since.
  void check_health();

  /// Brackets what is given to `stream()`: it begins when `caller` has come here.
  void begin(const Stream& caller);
  std::shared_ptr<OpenCollective> end(const char* operation);

  /// The oldest collective that is not done, or null.
  const OpenCollective* oldest();

  const std::shared_ptr<NcclWorld>& world() const { return world_; }
  Communicator& host() const { return *host_; }
  const Stream& stream() const { return stream_; }
  cudaStream_t native() const { return native_stream(stream_); }
  ncclComm_t comm() const { return comm_; }

 private:
  ncclConfig_t config() const;

  std::shared_ptr<NcclWorld> world_;
  std::unique_ptr<Communicator> host_;
  Stream stream_;
  CudaEvent issued_{cudaEventDisableTiming};
  ncclComm_t comm_ = nullptr;
  std::deque<std::shared_ptr<OpenCollective>> open_;
};

// Waits for the collectives under way in their order, each with a deadline of its own, until `done`.
void NcclWorld::await(FunctionRef<bool()> done) {
  while (!done()) {
    NcclGroup* group = nullptr;
    const OpenCollective* first = nullptr;
    for (NcclGroup* each : groups)
      if (const OpenCollective* oldest = each->oldest();
          oldest != nullptr && (first == nullptr || oldest->sequence < first->sequence)) {
        group = each;
        first = oldest;
      }
    if (group == nullptr) group = groups.front();
    std::int64_t turn = 0;
    group->host().await(first == nullptr ? "work of the GPU" : first->operation, [&] {
      if (turn++ % 64 == 0) group->check_health();
      return done() || (first != nullptr && is_reached(first->end.native()));
    });
  }
}

NcclGroup::~NcclGroup() {
  std::erase(world_->groups, this);
  // While an exception unwinds, ranks may be gone that NCCL would wait for.
  if (comm_ == nullptr || std::uncaught_exceptions() > 0) return;
  try {
    stream_.synchronize();
    check(ncclCommFinalize(comm_), "ncclCommFinalize");
    static_cast<void>(ncclCommDestroy(comm_));
  } catch (const Error&) {  // the end of a group that is broken anyway
    static_cast<void>(ncclCommAbort(comm_));
  }
}

// Collectives of the fsdp axis run beside the model's kernels: few blocks, or those would wait for
// processors. NCCL_MAX_CTAS is stronger.
ncclConfig_t NcclGroup::config() const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  if (host_->name() == "fsdp") config.maxCTAs = 16;
  return config;
}

void NcclGroup::initialize() {
  // Groups that are used from several streams may otherwise begin in another order on another rank, and wait
  // for each other for ever. NCCL looks at this when the first group is made.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  ncclUniqueId id{};
  if (host_->rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Stream on_host(Device::cpu());
  const Tensor bytes{&id, DType::kInt32, {static_cast<std::int64_t>(sizeof id / 4)}, Device::cpu()};
  host_->broadcast(on_host, bytes, 0);
  ncclConfig_t chosen = config();
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, static_cast<int>(host_->size()), id,
                                                     static_cast<int>(host_->rank()), &chosen);
  check(result, "ncclCommInitRank");
}

void NcclGroup::initialize_part(NcclGroup& whole, std::int64_t color, std::int64_t key) {
  ncclConfig_t chosen = config();
  const bool alone = host_->size() == 1;
  const int part = alone ? NCCL_SPLIT_NOCOLOR : static_cast<int>(color);
  whole.check(ncclCommSplit(whole.comm_, part, static_cast<int>(key), &comm_, &chosen), "ncclCommSplit");
  if (!alone) check(ncclInProgress, "ncclCommSplit");
}

void NcclGroup::check(ncclResult_t result, const char* call) {
  if (result == ncclInProgress)
    host_->await(call, [&] {
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
      return result != ncclInProgress;
    });
  if (result == ncclSuccess) return;
  throw Error(ExitCode::kCommunication,
              fmt::format("{} on {}: {}: {}", call, host_->name(), ncclGetErrorString(result),
                          ncclGetLastError(comm_)),
              "NCCL_DEBUG=WARN makes NCCL say more");
}

void NcclGroup::check_health() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  check(asked != ncclSuccess ? asked : state == ncclInProgress ? ncclSuccess : state, "a collective");
}

void NcclGroup::begin(const Stream& caller) {
  cuda_stream(caller).set_waiter(world_);
  while (oldest() != nullptr && open_.size() >= kMostOpen) {
    const std::shared_ptr<OpenCollective> first = open_.front();
    world_->await([&] { return is_reached(first->end.native()); });
  }
  issued_.record(native_stream(caller));
  issued_.make_wait(native());
}

std::shared_ptr<OpenCollective> NcclGroup::end(const char* operation) {
  auto collective = std::make_shared<OpenCollective>(operation, world_->sequence++);
  collective->end.record(native());
  open_.push_back(collective);
  return collective;
}

const OpenCollective* NcclGroup::oldest() {
  while (!open_.empty() && is_reached(open_.front()->end.native())) open_.pop_front();
  return open_.empty() ? nullptr : open_.front().get();
}

// Times that a stream stood still for collectives, read once the GPU has been there.
class ExposedTime {
 public:
  void wait(const OpenCollective& collective, cudaStream_t stream) {
    collect();
    spans_.push_back(std::make_unique<Span>());
    spans_.back()->begin.record(stream);
    collective.end.make_wait(stream);
    spans_.back()->end.record(stream);
  }
  double seconds() {
    collect();
    return seconds_;
  }

 private:
  struct Span {
    CudaEvent begin{cudaEventDefault}, end{cudaEventDefault};
  };
  void collect() {
    for (; !spans_.empty() && is_reached(spans_.front()->end.native()); spans_.pop_front()) {
      float milliseconds = 0;
      check_cuda(
          cudaEventElapsedTime(&milliseconds, spans_.front()->begin.native(), spans_.front()->end.native()),
          "cudaEventElapsedTime");
      seconds_ += 1e-3 * static_cast<double>(milliseconds);
    }
  }

  std::deque<std::unique_ptr<Span>> spans_;
  double seconds_ = 0;
};

class NcclOperation final : public Pending::Operation {
 public:
  NcclOperation(std::shared_ptr<OpenCollective> collective, ExposedTime& exposed)
      : collective_(std::move(collective)), exposed_(&exposed) {}
  void wait(const Stream& stream) override { exposed_->wait(*collective_, native_stream(stream)); }
  void poll() override {}

 private:
  std::shared_ptr<OpenCollective> collective_;
  ExposedTime* exposed_;
};

ncclDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kInt32:
      return ncclInt32;
  }
  fail(ExitCode::kBug, "NCCL cannot send {}", dtype_name(dtype));
}

std::byte* at(const Tensor& t, std::int64_t offset_bytes) {
  return static_cast<std::byte*>(t.data) + offset_bytes;
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(std::unique_ptr<NcclGroup> group, int device)
      : group_(std::move(group)),
        device_(device),
        size_(group_->host().size()),
        rank_(group_->host().rank()) {}

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  const std::string& name() const override { return host().name(); }
  std::int64_t bytes_sent() const override { return bytes_sent_ + host().bytes_sent() - host_bytes_before_; }
  double seconds_waited() const override { return exposed_.seconds(); }
  std::int64_t reduce_scatter_scratch_bytes(std::int64_t whole_count, DType travel) const override {
    return reduce_scatter_scratch(whole_count, travel, size_, DeviceKind::kCuda);
  }
  std::int64_t all_reduce_scratch_bytes(std::int64_t count, DType dtype) const override {
    return all_reduce_scratch(count, dtype, size_, DeviceKind::kCuda);
  }
  std::vector<std::string> all_gather_text(const std::string& text) override {
    return host().all_gather_text(text);
  }
  void barrier() override { host().barrier(); }
  void await(const char* operation, FunctionRef<bool()> done) override { host().await(operation, done); }

  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override;
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override;
  void all_reduce(const Stream& stream, const Tensor& x, Reduce reduce, const Tensor& scratch) override;
  void broadcast(const Stream& stream, const Tensor& x, std::int64_t root) override;
  Pending start_exchange(const Stream& stream, const Tensor& send, std::int64_t to, const Tensor& receive,
                         std::int64_t from) override;
  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key, const std::string& name) override;

 private:
  Communicator& host() const { return group_->host(); }
  static bool on_host(const Tensor& t) { return t.device.kind == DeviceKind::kCpu; }
  Pending finish(const Stream& stream, const char* operation);
  void sum_in_nccl(const Tensor& whole, const Tensor& own, Accumulate accumulate, const Tensor& scratch);
  void sum_here(const Tensor& whole, const Tensor& own, Accumulate accumulate, const Tensor& scratch);

  std::unique_ptr<NcclGroup> group_;
  int device_;
  std::int64_t size_, rank_;
  std::int64_t bytes_sent_ = 0;
  std::int64_t host_bytes_before_ = host().bytes_sent();
  mutable ExposedTime exposed_;
};

Pending NcclCommunicator::finish(const Stream& stream, const char* operation) {
  return {std::make_unique<NcclOperation>(group_->end(operation), exposed_), stream};
}

Pending NcclCommunicator::all_gather(const Stream& stream, const Tensor& own, const Tensor& all) {
  if (on_host(all)) return host().all_gather(stream, own, all);
  check_all_gather(*this, own, all);
  group_->begin(stream);
  group_->check(ncclAllGather(own.data, all.data, static_cast<std::size_t>(own.bytes()), ncclUint8,
                              group_->comm(), group_->native()),
                "ncclAllGather");
  bytes_sent_ += own.bytes() * (size_ - 1);
  return finish(stream, "all_gather");
}

Pending NcclCommunicator::reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own,
                                         DType travel, Accumulate accumulate, const Tensor& scratch) {
  if (on_host(whole)) return host().reduce_scatter(stream, whole, own, travel, accumulate, scratch);
  check_reduce_scatter(*this, whole, own, travel, scratch);
  group_->begin(stream);
  if (travel == DType::kFloat32)
    sum_in_nccl(whole, own, accumulate, scratch);
  else
    sum_here(whole, own, accumulate, scratch);
  bytes_sent_ += own.count() * element_bytes(travel) * (size_ - 1);
  return finish(stream, "reduce_scatter");
}

// NCCL has no sum that is added to what is there.
void NcclCommunicator::sum_in_nccl(const Tensor& whole, const Tensor& own, Accumulate accumulate,
                                   const Tensor& scratch) {
  const bool adds = accumulate == Accumulate::kYes;
  group_->check(
      ncclReduceScatter(whole.data, adds ? scratch.data : own.data, static_cast<std::size_t>(own.count()),
                        ncclFloat32, ncclSum, group_->comm(), group_->native()),
      "ncclReduceScatter");
  if (adds)
    reduce_pieces(group_->stream(), {{scratch.data, DType::kFloat32}}, own, Reduce::kSum, Accumulate::kYes);
}

// NCCL would round every partial sum to bfloat16. Pieces travel to whom they belong and are summed there.
// Where they have to be rounded for the way, they are sent from scratch and arrive in the memory of the
// pieces that were sent.
void NcclCommunicator::sum_here(const Tensor& whole, const Tensor& own, Accumulate accumulate,
                                const Tensor& scratch) {
  const std::int64_t count = own.count(), travels = count * element_bytes(DType::kBFloat16);
  const bool rounds = whole.dtype == DType::kFloat32;
  const auto slot = [&](std::int64_t r) { return at(scratch, (r < rank_ ? r : r - 1) * travels); };
  const auto place = [&](std::int64_t r) { return at(whole, r * own.bytes()); };
  if (rounds)
    for (const auto& [first, end] : {std::pair{std::int64_t{0}, rank_}, std::pair{rank_ + 1, size_}})
      if (first < end && count > 0)
        kernels(DeviceKind::kCuda)
            .convert({group_->stream(), nullptr},
                     {place(first), DType::kFloat32, {(end - first) * count}, whole.device},
                     {slot(first), DType::kBFloat16, {(end - first) * count}, whole.device});
  std::vector<RankPiece> pieces(static_cast<std::size_t>(size_));
  group_->check(ncclGroupStart(), "ncclGroupStart");
  for (std::int64_t r = 0; r < size_; ++r) {
    void* arrives = r == rank_ || rounds ? place(r) : slot(r);
    pieces[static_cast<std::size_t>(r)] = {arrives, r == rank_ ? whole.dtype : DType::kBFloat16};
    if (r == rank_) continue;
    const auto bytes = static_cast<std::size_t>(travels);
    static_cast<void>(ncclSend(rounds ? slot(r) : place(r), bytes, ncclUint8, static_cast<int>(r),
                               group_->comm(), group_->native()));
    static_cast<void>(
        ncclRecv(arrives, bytes, ncclUint8, static_cast<int>(r), group_->comm(), group_->native()));
  }
  group_->check(ncclGroupEnd(), "ncclGroupEnd");  // with the first error of what is inside
  reduce_pieces(group_->stream(), pieces, own, Reduce::kSum, accumulate);
}

void NcclCommunicator::all_reduce(const Stream& stream, const Tensor& x, Reduce reduce,
                                  const Tensor& scratch) {
  if (on_host(x)) return host().all_reduce(stream, x, reduce, scratch);
  check_all_reduce(*this, x, scratch);
  group_->begin(stream);
  group_->check(ncclAllReduce(x.data, x.data, static_cast<std::size_t>(x.count()), data_type(x.dtype),
                              reduce == Reduce::kSum ? ncclSum : ncclMax, group_->comm(), group_->native()),
                "ncclAllReduce");
  bytes_sent_ += all_reduce_sent_bytes(x.count(), x.dtype, rank_, size_);
  finish(stream, "all_reduce").wait();
}

void NcclCommunicator::broadcast(const Stream& stream, const Tensor& x, std::int64_t root) {
  if (on_host(x)) return host().broadcast(stream, x, root);
  check_peer(*this, root);
  group_->begin(stream);
  group_->check(ncclBroadcast(x.data, x.data, static_cast<std::size_t>(x.bytes()), ncclUint8,
                              static_cast<int>(root), group_->comm(), group_->native()),
                "ncclBroadcast");
  bytes_sent_ += x.bytes() * broadcast_children(rank_, root, size_);
  finish(stream, "broadcast").wait();
}

Pending NcclCommunicator::start_exchange(const Stream& stream, const Tensor& send, std::int64_t to,
                                         const Tensor& receive, std::int64_t from) {
  if (on_host(send)) return host().start_exchange(stream, send, to, receive, from);
  check_exchange(*this, send, to, receive, from);
  if (to == rank_) {
    copy_bytes(stream, receive.data, send.data, send.bytes());
    return {};
  }
  group_->begin(stream);
  group_->check(ncclGroupStart(), "ncclGroupStart");
  static_cast<void>(ncclSend(send.data, static_cast<std::size_t>(send.bytes()), ncclUint8,
                             static_cast<int>(to), group_->comm(), group_->native()));
  static_cast<void>(ncclRecv(receive.data, static_cast<std::size_t>(receive.bytes()), ncclUint8,
                             static_cast<int>(from), group_->comm(), group_->native()));
  group_->check(ncclGroupEnd(), "ncclGroupEnd");
  bytes_sent_ += send.bytes();
  return finish(stream, "exchange");
}

std::unique_ptr<Communicator> NcclCommunicator::split(std::int64_t color, std::int64_t key,
                                                      const std::string& name) {
  auto part = std::make_unique<NcclGroup>(group_->world(), host().split(color, key, name), device_);
  part->initialize_part(*group_, color, key);
  if (part->host().size() == 1) return make_self_communicator(name);
  return std::make_unique<NcclCommunicator>(std::move(part), device_);
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, int index) {
  check_cuda(cudaSetDevice(index), "cudaSetDevice");
  auto group = std::make_unique<NcclGroup>(std::make_shared<NcclWorld>(), std::move(host), index);
  group->initialize();
  return std::make_unique<NcclCommunicator>(std::move(group), index);
}

CudaLibrary nccl_library() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) version = 0;
  const auto text = [](int v) { return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100); };
  return {"NCCL", "2.19", text(NCCL_VERSION_CODE), version == 0 ? "" : text(version)};
}

}  // namespace ripstop
