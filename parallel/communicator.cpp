#include "parallel/communicator.h"

#include <exception>
#include <thread>
#include <utility>

#include "parallel/collectives.h"

namespace ripstop {

Pending& Pending::operator=(Pending&& other) {
  if (this == &other) return *this;
  wait();  // the old collective still uses its tensors
  operation_ = std::move(other.operation_);
  stream_ = other.stream_;
  return *this;
}

Pending::~Pending() {
  // While an exception unwinds, the group is about to end, and a wait could last until the deadline.
  if (std::uncaught_exceptions() == 0) wait();
}

void Pending::wait() {
  if (operation_ == nullptr) return;
  // If this wait throws, the destructor must not wait again.
  const std::unique_ptr<Operation> operation = std::move(operation_);
  operation->wait(*stream_);
}

// A group of one rank needs no deadline.
void Communicator::await(const char*, FunctionRef<bool()> done) {
  while (!done()) std::this_thread::yield();
}

namespace {

// A group that sends nothing: either the group of one rank (`is_real`), which writes results, or a planned
// group, whose tensors have no memory.
class SilentCommunicator final : public Communicator {
 public:
  SilentCommunicator(std::string name, int64_t rank, int64_t size, DeviceKind kind, bool is_real,
                     SentObserver sent)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        kind_(kind),
        is_real_(is_real),
        sent_(std::move(sent)) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  DeviceKind kind() const override { return kind_; }
  std::vector<std::string> all_gather_text(const std::string& text) override {
    return std::vector<std::string>(static_cast<size_t>(size_), text);
  }
  void barrier() override {}
  int64_t bytes_sent() const override { return bytes_sent_; }
  double seconds_waited() const override { return 0; }

  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override {
    check_all_gather(*this, own, all);
    if (is_real_ && own.data != all.data) copy_bytes(stream, all.data, own.data, own.bytes());
    return count("all_gather", own.bytes() * (size_ - 1));
  }
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override {
    check_reduce_scatter(*this, whole, own, travel, scratch);
    if (is_real_ && accumulate == Accumulate::kYes)
      reduce_pieces(stream, {{whole.data, whole.dtype}}, own, Reduce::kSum, accumulate);
    else if (is_real_ && own.data != whole.data)
      copy_bytes(stream, own.data, whole.data, own.bytes());
    return count("reduce_scatter", own.count() * element_bytes(travel) * (size_ - 1));
  }
  Pending start_all_reduce(const Stream&, const Tensor& x, Reduce, const Tensor& scratch,
                           const Stream*) override {
    check_all_reduce(*this, x, scratch);
    return count("all_reduce", all_reduce_sent_bytes(x.count(), x.dtype, rank_, size_));
  }
  void broadcast(const Stream&, const Tensor& x, int64_t root) override {
    check_peer(*this, root);
    count("broadcast", x.bytes() * broadcast_children(rank_, root, size_));
  }
  Pending start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) override {
    check_exchanges(*this, exchanges);
    int64_t bytes = 0;
    for (const Exchange& each : exchanges) {
      if (is_real_) copy_bytes(stream, each.receive.data, each.send.data, each.send.bytes());
      if (each.to != rank_) bytes += each.send.bytes();
    }
    return count("exchange", bytes);
  }
  std::unique_ptr<Communicator> split(int64_t, int64_t, const std::string& name) override {
    if (is_real_) return make_self_communicator(name);
    throw Error(ExitCode::kBug, "a planned group cannot be split into " + name + ": who else is in it?");
  }

 private:
  Pending count(const char* operation, int64_t bytes) {
    bytes_sent_ += bytes;
    if (sent_) sent_(operation, bytes);
    return {};
  }

  std::string name_;
  int64_t rank_, size_;
  DeviceKind kind_;
  bool is_real_;
  SentObserver sent_;
  int64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(const std::string& name) {
  return std::make_unique<SilentCommunicator>(name, 0, 1, DeviceKind::kCpu, true, SentObserver());
}

std::unique_ptr<Communicator> make_planned_communicator(const std::string& name, int64_t rank, int64_t size,
                                                        DeviceKind kind, SentObserver sent) {
  RIPSTOP_CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  return std::make_unique<SilentCommunicator>(name, rank, size, kind, false, std::move(sent));
}

}  // namespace ripstop
