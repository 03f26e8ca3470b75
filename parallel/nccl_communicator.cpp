// The communicator over NCCL. The host issues collectives in program order on the group's stream. A
// collective begins when the caller's stream has reached the call; the collective's wait blocks the caller's
// stream. The host waits in NcclGroup::begin if too many collectives are under way, and in NcclGroup::check.
#include <array>
#include <utility>

#include "model/ops/kernel_table.h"
#include "parallel/collectives.h"
#include "parallel/nccl_group.h"
#include "parallel/nccl_library.h"

namespace ripstop {
namespace {

// Measures how long a stream stands still for collectives. Two events are recorded around each wait, and read
// when the GPU has passed them.
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
    for (; !spans_.empty() && spans_.front()->end.is_reached(); spans_.pop_front())
      seconds_ += 1e-3 * spans_.front()->end.milliseconds_since(spans_.front()->begin);
  }

  std::deque<std::unique_ptr<Span>> spans_;
  double seconds_ = 0;
};

// A collective on the group's stream.
class NcclOperation final : public Pending::Operation {
 public:
  NcclOperation(std::shared_ptr<OpenCollective> collective, ExposedTime& exposed)
      : collective_(std::move(collective)), exposed_(&exposed) {}
  void wait(const Stream& stream) override { exposed_->wait(*collective_, native_stream(stream)); }
  // Always true, because the host has nothing to do in the wait.
  bool poll() override { return true; }

 private:
  std::shared_ptr<OpenCollective> collective_;
  ExposedTime* exposed_;
};

// NCCL's type for a reduction; copies are sent as bytes.
ncclDataType_t data_type(DType dtype) {
  constexpr std::array kInOrder = {ncclFloat32, ncclBfloat16, ncclFloat64, ncclInt32};
  return kInOrder[static_cast<size_t>(dtype)];
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(std::unique_ptr<NcclGroup> group, int device)
      : group_(std::move(group)),
        device_(device),
        size_(group_->host().size()),
        rank_(group_->host().rank()) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  const std::string& name() const override { return host().name(); }
  int64_t bytes_sent() const override { return bytes_sent_ + host().bytes_sent() - host_bytes_before_; }
  // Counts only waits that the GPU has passed, so that this call does not block.
  double seconds_waited() const override { return exposed_.seconds(); }
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::vector<std::string> all_gather_text(const std::string& text) override {
    return host().all_gather_text(text);
  }
  void barrier() override { host().barrier(); }
  void await(const char* operation, FunctionRef<bool()> done) override { host().await(operation, done); }

  const MemorySource* memory_source() const override { return &nccl_memory(); }
  std::unique_ptr<Registration> register_memory(void* data, int64_t bytes) override {
    return group_->register_memory(data, bytes);
  }

  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override;
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override;
  Pending start_all_reduce(const Stream& stream, const Tensor& x, DType travel, const Tensor& scratch,
                           const Stream* behind) override;
  const Stream* own_stream() const override { return &group_->stream(); }
  void broadcast(const Stream& stream, const Tensor& x, int64_t root) override;
  Pending start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) override;
  Pending start_send(const Stream& stream, const Tensor& x, int64_t to) override;
  Pending start_receive(const Stream& stream, const Tensor& x, int64_t from, const Event* behind) override;
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name) override;

 private:
  Communicator& host() const { return group_->host(); }
  // Whether `t` is in host memory, like checkpoints and texts. NCCL cannot send host memory.
  static bool on_host(const Tensor& t) { return t.device.kind == DeviceKind::kCpu; }
  Pending finish(const Stream& stream, const char* operation);
  void sum_in_nccl(const Tensor& whole, const Tensor& own, Accumulate accumulate, const Tensor& scratch);
  void sum_here(const Tensor& whole, const Tensor& own, Accumulate accumulate, const Tensor& scratch);
  void all_reduce_rounded(const Tensor& x, const Tensor& rounded);
  void trade(FunctionRef<Tensor(int64_t rank)> leaves, FunctionRef<Tensor(int64_t rank)> arrives);
  ncclResult_t send(const Tensor& x, int64_t to) const;
  ncclResult_t receive(const Tensor& x, int64_t from) const;
  void convert(const Tensor& from, const Tensor& to) const;

  std::unique_ptr<NcclGroup> group_;
  int device_;
  int64_t size_, rank_;
  int64_t bytes_sent_ = 0;
  int64_t host_bytes_before_ = host().bytes_sent();
  mutable ExposedTime exposed_;
};

Pending NcclCommunicator::finish(const Stream& stream, const char* operation) {
  return {std::make_unique<NcclOperation>(group_->end(operation), exposed_), stream};
}

Pending NcclCommunicator::all_gather(const Stream& stream, const Tensor& own, const Tensor& all) {
  if (on_host(all)) return host().all_gather(stream, own, all);
  check_all_gather(*this, own, all);
  const ProfilerRange range(stream, name() + " all_gather");
  group_->begin(stream);
  group_->check(ncclAllGather(own.data, all.data, static_cast<size_t>(own.bytes()), ncclUint8, group_->comm(),
                              group_->native()),
                "ncclAllGather");
  bytes_sent_ += own.bytes() * (size_ - 1);
  return finish(stream, "all_gather");
}

Pending NcclCommunicator::reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own,
                                         DType travel, Accumulate accumulate, const Tensor& scratch) {
  if (on_host(whole)) return host().reduce_scatter(stream, whole, own, travel, accumulate, scratch);
  check_reduce_scatter(*this, whole, own, travel, scratch);
  const ProfilerRange range(stream, name() + " reduce_scatter");
  group_->begin(stream);
  if (travel == DType::kFloat32)
    sum_in_nccl(whole, own, accumulate, scratch);
  else
    sum_here(whole, own, accumulate, scratch);
  bytes_sent_ += own.count() * element_bytes(travel) * (size_ - 1);
  return finish(stream, "reduce_scatter");
}

// NCCL cannot add its sum to existing numbers. To accumulate, a kernel adds `scratch` to `own`.
void NcclCommunicator::sum_in_nccl(const Tensor& whole, const Tensor& own, Accumulate accumulate,
                                   const Tensor& scratch) {
  const bool adds = accumulate == Accumulate::kYes;
  group_->check(
      ncclReduceScatter(whole.data, adds ? scratch.data : own.data, static_cast<size_t>(own.count()),
                        ncclFloat32, ncclSum, group_->comm(), group_->native()),
      "ncclReduceScatter");
  if (adds) reduce_pieces(group_->stream(), {{scratch.data, DType::kFloat32}}, own, Accumulate::kYes);
}

// NCCL would round every partial sum to bfloat16. So each rank receives bfloat16 pieces and sums them in
// float32. If `whole` is float32, its pieces are rounded into scratch and sent from there, and received
// pieces overwrite the pieces in `whole`.
void NcclCommunicator::sum_here(const Tensor& whole, const Tensor& own, Accumulate accumulate,
                                const Tensor& scratch) {
  const int64_t count = own.count(), travels = count * element_bytes(DType::kBFloat16);
  const bool rounds = whole.dtype == DType::kFloat32;
  const auto rounded = [&](void* data, int64_t numbers) {
    return Tensor{data, DType::kBFloat16, {numbers}, whole.device};
  };
  const auto slot = [&](int64_t r) { return byte_at(scratch, (r < rank_ ? r : r - 1) * travels); };
  const auto place = [&](int64_t r) { return byte_at(whole, r * own.bytes()); };
  // This rank's own piece is not sent, so it need not be rounded.
  if (rounds)
    for (const auto& [first, end] : {std::pair{int64_t{0}, rank_}, std::pair{rank_ + 1, size_}})
      convert({place(first), DType::kFloat32, {(end - first) * count}, whole.device},
              rounded(slot(first), (end - first) * count));
  const auto arrives = [&](int64_t r) { return rounded(rounds ? place(r) : slot(r), count); };
  trade([&](int64_t r) { return rounded(rounds ? slot(r) : place(r), count); }, arrives);
  std::vector<RankPiece> pieces;
  for (int64_t r = 0; r < size_; ++r)
    pieces.push_back(r == rank_ ? RankPiece{place(r), whole.dtype}
                                : RankPiece{arrives(r).data, DType::kBFloat16});
  reduce_pieces(group_->stream(), pieces, own, accumulate);
}

Pending NcclCommunicator::start_all_reduce(const Stream& stream, const Tensor& x, DType travel,
                                           const Tensor& scratch, const Stream* behind) {
  if (on_host(x)) return host().start_all_reduce(stream, x, travel, scratch, behind);
  check_all_reduce(*this, x, travel, scratch);
  const ProfilerRange range(stream, name() + " all_reduce");
  group_->begin(behind == nullptr ? stream : *behind);
  if (travel == x.dtype)
    group_->check(ncclAllReduce(x.data, x.data, static_cast<size_t>(x.count()), data_type(x.dtype), ncclSum,
                                group_->comm(), group_->native()),
                  "ncclAllReduce");
  else
    all_reduce_rounded(x, {scratch.data, travel, {x.count()}, x.device});
  bytes_sent_ += all_reduce_sent_bytes(x.count(), travel, rank_, size_);
  return finish(stream, "all_reduce");
}

// Sums the float32 numbers x; `rounded` has room for a copy in bfloat16. Terms are sent from the copy.
// Received terms overwrite other ranks' parts of x, where they fit: parts differ by at most one element. Sums
// are sent from copy to copy.
void NcclCommunicator::all_reduce_rounded(const Tensor& x, const Tensor& rounded) {
  const auto part_of = [&](const Tensor& t, int64_t rank) {
    const Part part = all_reduce_part(x.count(), rank, size_);
    return t.row_range(part.first, part.count);
  };
  const Tensor flat{x.data, x.dtype, {x.count()}, x.device}, own = part_of(flat, rank_);
  const Tensor own_rounded = part_of(rounded, rank_);
  const auto arrives = [&](int64_t rank) {
    return Tensor{part_of(flat, rank).data, rounded.dtype, own.shape, x.device};
  };
  convert(flat, rounded);
  trade([&](int64_t rank) { return part_of(rounded, rank); }, arrives);
  std::vector<RankPiece> pieces;
  for (int64_t r = 0; r < size_; ++r)
    pieces.push_back(r == rank_ ? RankPiece{own.data, own.dtype} : RankPiece{arrives(r).data, rounded.dtype});
  reduce_pieces(group_->stream(), pieces, own, Accumulate::kNo);
  convert(own, own_rounded);
  trade([&](int64_t) { return own_rounded; }, [&](int64_t rank) { return part_of(rounded, rank); });
  convert(rounded, flat);
}

ncclResult_t NcclCommunicator::send(const Tensor& x, int64_t to) const {
  return ncclSend(x.data, static_cast<size_t>(x.bytes()), ncclUint8, static_cast<int>(to), group_->comm(),
                  group_->native());
}

ncclResult_t NcclCommunicator::receive(const Tensor& x, int64_t from) const {
  return ncclRecv(x.data, static_cast<size_t>(x.bytes()), ncclUint8, static_cast<int>(from), group_->comm(),
                  group_->native());
}

// Sends leaves(r) to every other rank r and receives arrives(r) from it, in one group of calls.
void NcclCommunicator::trade(FunctionRef<Tensor(int64_t rank)> leaves,
                             FunctionRef<Tensor(int64_t rank)> arrives) {
  group_->check(ncclGroupStart(), "ncclGroupStart");
  for (int64_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    static_cast<void>(send(leaves(r), r));
    static_cast<void>(receive(arrives(r), r));
  }
  group_->check(ncclGroupEnd(), "ncclGroupEnd");  // reports the errors of the calls in the group
}

void NcclCommunicator::convert(const Tensor& from, const Tensor& to) const {
  if (from.count() > 0) kernels(DeviceKind::kCuda).convert({group_->stream(), nullptr}, from, to);
}

void NcclCommunicator::broadcast(const Stream& stream, const Tensor& x, int64_t root) {
  if (on_host(x)) return host().broadcast(stream, x, root);
  check_peer(*this, root);
  const ProfilerRange range(stream, name() + " broadcast");
  group_->begin(stream);
  group_->check(ncclBroadcast(x.data, x.data, static_cast<size_t>(x.bytes()), ncclUint8,
                              static_cast<int>(root), group_->comm(), group_->native()),
                "ncclBroadcast");
  bytes_sent_ += x.bytes() * broadcast_children(rank_, root, size_);
  finish(stream, "broadcast").wait();
}

// One group of NCCL calls for all messages, because each group costs the host a thread and a launch.
Pending NcclCommunicator::start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) {
  if (exchanges.empty()) return {};
  if (on_host(exchanges.front().send)) return host().start_exchanges(stream, exchanges);
  check_exchanges(*this, exchanges);
  const ProfilerRange range(stream, name() + " exchange");
  int64_t leaves = 0;
  for (const Exchange& each : exchanges) {
    if (each.to == rank_)
      copy_bytes(stream, each.receive.data, each.send.data, each.send.bytes());
    else
      ++leaves;
  }
  if (leaves == 0) return {};
  group_->begin(stream);
  group_->check(ncclGroupStart(), "ncclGroupStart");
  for (const Exchange& each : exchanges) {
    if (each.to == rank_) continue;
    static_cast<void>(send(each.send, each.to));
    static_cast<void>(receive(each.receive, each.from));
    bytes_sent_ += each.send.bytes();
  }
  group_->check(ncclGroupEnd(), "ncclGroupEnd");
  return finish(stream, "exchange");
}

Pending NcclCommunicator::start_send(const Stream& stream, const Tensor& x, int64_t to) {
  if (on_host(x)) return host().start_send(stream, x, to);
  check_other(*this, to);
  const ProfilerRange range(stream, name() + " send");
  group_->begin(stream);
  group_->check(send(x, to), "ncclSend");
  bytes_sent_ += x.bytes();
  return finish(stream, "send");
}

Pending NcclCommunicator::start_receive(const Stream& stream, const Tensor& x, int64_t from,
                                        const Event* behind) {
  if (on_host(x)) return host().start_receive(stream, x, from, nullptr);
  check_other(*this, from);
  const ProfilerRange range(stream, name() + " receive");
  group_->begin(stream, behind);
  group_->check(receive(x, from), "ncclRecv");
  return finish(stream, "receive");
}

std::unique_ptr<Communicator> NcclCommunicator::split(int64_t color, int64_t key, const std::string& name) {
  auto part = std::make_unique<NcclGroup>(group_->world(), host().split(color, key, name), device_);
  part->initialize_part(*group_, color, key);
  // Returns only now, because initialize_part() is collective over the whole group.
  if (part->host().size() == 1) return make_self_communicator(name);
  return std::make_unique<NcclCommunicator>(std::move(part), device_);
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     const Device& device) {
  check_cuda(cudaSetDevice(device.index), "cudaSetDevice");
  auto group = std::make_unique<NcclGroup>(std::make_shared<NcclWorld>(), std::move(host), device.index);
  group->initialize(device.deterministic);
  return std::make_unique<NcclCommunicator>(std::move(group), device.index);
}

}  // namespace ripstop
