#include "parallel/communicator.h"

#include <exception>
#include <thread>
#include <utility>

#include "parallel/collective_checks.h"
#include "parallel/collective_sizes.h"

namespace ripstop {

Pending& Pending::operator=(Pending&& other) {
  if (this == &other) return *this;
  wait();  // the collective that was here still uses its tensors
  operation_ = std::move(other.operation_);
  stream_ = other.stream_;
  return *this;
}

Pending::~Pending() {
  // While an exception unwinds, the group is about to end: waiting for it could take as long as the deadline.
  if (std::uncaught_exceptions() == 0) wait();
}

void Pending::wait() {
  if (operation_ == nullptr) return;
  // Taken out first, so that the destructor does not wait again if this wait throws.
  const std::unique_ptr<Operation> operation = std::move(operation_);
  operation->wait(*stream_);
}

// A group without other ranks has no deadline to keep.
void Communicator::await(const char*, FunctionRef<bool()> done) {
  while (!done()) std::this_thread::yield();
}

namespace {

// The common part of groups that send nothing: the group of one rank and the planned group.
class SilentCommunicator : public Communicator {
 public:
  SilentCommunicator(std::string name, int64_t rank, int64_t size, DeviceKind kind)
      : name_(std::move(name)), rank_(rank), size_(size), kind_(kind) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  int64_t reduce_scatter_scratch_bytes(int64_t whole_count, DType travel) const override {
    return reduce_scatter_scratch(whole_count, travel, size_, kind_);
  }
  int64_t all_reduce_scratch_bytes(int64_t count, DType dtype) const override {
    return all_reduce_scratch(count, dtype, size_, kind_);
  }
  std::vector<std::string> all_gather_text(const std::string& text) override {
    return std::vector<std::string>(static_cast<size_t>(size_), text);
  }
  void barrier() override {}
  int64_t bytes_sent() const override { return bytes_sent_; }
  double seconds_waited() const override { return 0; }

 protected:
  std::string name_;
  int64_t rank_, size_;
  DeviceKind kind_;
  int64_t bytes_sent_ = 0;
};

// One rank: nothing is sent, but results lie at the same places as with more ranks.
class SelfCommunicator final : public SilentCommunicator {
 public:
  explicit SelfCommunicator(const std::string& name) : SilentCommunicator(name, 0, 1, DeviceKind::kCpu) {}

  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override {
    check_all_gather(*this, own, all);
    if (own.data != all.data) copy_bytes(stream, all.data, own.data, own.bytes());
    return {};
  }
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override {
    check_reduce_scatter(*this, whole, own, travel, scratch);
    if (accumulate == Accumulate::kNo) {
      if (own.data != whole.data) copy_bytes(stream, own.data, whole.data, own.bytes());
    } else {
      // The sum over one rank, added to what is there.
      reduce_pieces(stream, {{whole.data, whole.dtype}}, own, Reduce::kSum, accumulate);
    }
    return {};
  }
  Pending start_all_reduce(const Stream&, const Tensor& x, Reduce, const Tensor& scratch,
                           const Stream*) override {
    check_all_reduce(*this, x, scratch);
    return {};
  }
  void broadcast(const Stream&, const Tensor&, int64_t root) override { check_peer(*this, root); }
  Pending start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) override {
    check_exchanges(*this, exchanges);
    for (const Exchange& each : exchanges)
      copy_bytes(stream, each.receive.data, each.send.data, each.send.bytes());
    return {};
  }
  std::unique_ptr<Communicator> split(int64_t, int64_t, const std::string& name) override {
    return make_self_communicator(name);
  }
};

// Checks and counts as a real group does, and moves nothing. Tensors of a plan have no memory.
class PlannedCommunicator final : public SilentCommunicator {
 public:
  using SilentCommunicator::SilentCommunicator;

  Pending all_gather(const Stream&, const Tensor& own, const Tensor& all) override {
    check_all_gather(*this, own, all);
    bytes_sent_ += own.bytes() * (size_ - 1);
    return {};
  }
  Pending reduce_scatter(const Stream&, const Tensor& whole, const Tensor& own, DType travel, Accumulate,
                         const Tensor& scratch) override {
    check_reduce_scatter(*this, whole, own, travel, scratch);
    bytes_sent_ += own.count() * element_bytes(travel) * (size_ - 1);
    return {};
  }
  Pending start_all_reduce(const Stream&, const Tensor& x, Reduce, const Tensor& scratch,
                           const Stream*) override {
    check_all_reduce(*this, x, scratch);
    bytes_sent_ += all_reduce_sent_bytes(x.count(), x.dtype, rank_, size_);
    return {};
  }
  void broadcast(const Stream&, const Tensor& x, int64_t root) override {
    check_peer(*this, root);
    bytes_sent_ += x.bytes() * broadcast_children(rank_, root, size_);
  }
  Pending start_exchanges(const Stream&, std::span<const Exchange> exchanges) override {
    check_exchanges(*this, exchanges);
    for (const Exchange& each : exchanges)
      if (each.to != rank_) bytes_sent_ += each.send.bytes();
    return {};
  }
  std::unique_ptr<Communicator> split(int64_t, int64_t, const std::string& name) override {
    throw Error(ExitCode::kBug, "a planned group cannot be split into " + name + ": who else is in it?");
  }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(const std::string& name) {
  return std::make_unique<SelfCommunicator>(name);
}

std::unique_ptr<Communicator> make_planned_communicator(const std::string& name, int64_t rank, int64_t size,
                                                        DeviceKind kind) {
  RIPSTOP_CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  return std::make_unique<PlannedCommunicator>(name, rank, size, kind);
}

}  // namespace ripstop
