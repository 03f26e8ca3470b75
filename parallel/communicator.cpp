#include "parallel/communicator.h"

#include <exception>
#include <thread>
#include <utility>

#include "model/ops/kernel_work.h"
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

// Groups without messages need no deadline.
void Communicator::await(const char*, FunctionRef<bool()> done) {
  while (!done()) std::this_thread::yield();
}

namespace {

// A planned collective, which takes the time of its link. `sum`: a sum that no library makes, computed when
// the messages have arrived. An all-reduce then sends its results, `second_bytes`.
class PlannedOperation final : public Pending::Operation {
 public:
  PlannedOperation(PlannedLink& link, double end, std::function<void()> sum, int64_t second_bytes)
      : link_(link), end_(end), sum_(std::move(sum)), second_bytes_(second_bytes) {}
  void wait(const Stream&) override {
    link_.wait_until(end_);
    finish();
    link_.wait_until(end_);
  }
  bool poll() override {
    if (!link_.has_passed(end_)) return false;
    if (second_bytes_ > 0) finish();
    return link_.has_passed(end_);
  }

 private:
  void finish() {
    if (!sum_) return;
    std::exchange(sum_, {})();
    if (second_bytes_ > 0) end_ = link_.start(second_bytes_, 1);
  }

  PlannedLink& link_;
  double end_;
  std::function<void()> sum_;
  int64_t second_bytes_;
};

// A group that sends nothing: either the group of one rank (`is_real`), which writes results, or a planned
// group, whose tensors have no memory.
class SilentCommunicator final : public Communicator {
 public:
  SilentCommunicator(std::string name, int64_t rank, int64_t size, DeviceKind kind, bool is_real,
                     SentObserver sent, PlannedLink* link)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        kind_(kind),
        is_real_(is_real),
        sent_(std::move(sent)),
        link_(size > 1 ? link : nullptr) {}
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
    return count(stream, "all_gather", own.bytes() * (size_ - 1));
  }
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override {
    check_reduce_scatter(*this, whole, own, travel, scratch);
    if (is_real_ && accumulate == Accumulate::kYes)
      reduce_pieces(stream, {{whole.data, whole.dtype}}, own, accumulate);
    else if (is_real_ && own.data != whole.data)
      copy_bytes(stream, own.data, whole.data, own.bytes());
    const bool rounds = travel != whole.dtype, host_sums = kind_ == DeviceKind::kCpu || rounds;
    if (link_ != nullptr && rounds && kind_ == DeviceKind::kCpu) observe_rounding(stream, own);
    std::vector<RankPiece> pieces(link_ != nullptr && host_sums ? static_cast<size_t>(size_) : 0,
                                  {own.data, travel});
    return count(stream, "reduce_scatter", own.count() * element_bytes(travel) * (size_ - 1),
                 sum_of(stream, std::move(pieces), own, accumulate));
  }
  Pending start_all_reduce(const Stream& stream, const Tensor& x, DType travel, const Tensor& scratch,
                           const Stream*) override {
    check_all_reduce(*this, x, travel, scratch);
    const int64_t bytes = all_reduce_sent_bytes(x.count(), travel, rank_, size_);
    // On a device the library (NCCL) sums the numbers, unless they are rounded.
    const bool rounds = travel != x.dtype;
    if (link_ == nullptr || (kind_ != DeviceKind::kCpu && !rounds))
      return count(stream, "all_reduce", bytes, {}, 0, 2);
    const Part part = all_reduce_part(x.count(), rank_, size_);
    const Tensor own{x.data, x.dtype, Shape{part.count}, x.device};
    if (rounds) observe_rounding(stream, own);
    return count(stream, "all_reduce", bytes,
                 sum_of(stream, std::vector<RankPiece>(static_cast<size_t>(size_), {own.data, travel}), own,
                        Accumulate::kNo),
                 bytes / 2);
  }
  void broadcast(const Stream& stream, const Tensor& x, int64_t root) override {
    check_peer(*this, root);
    count(stream, "broadcast", x.bytes() * broadcast_children(rank_, root, size_)).wait();
  }
  Pending start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) override {
    check_exchanges(*this, exchanges);
    int64_t bytes = 0;
    for (const Exchange& each : exchanges) {
      if (is_real_) copy_bytes(stream, each.receive.data, each.send.data, each.send.bytes());
      if (each.to != rank_) bytes += each.send.bytes();
    }
    return count(stream, "exchange", bytes);
  }
  Pending start_send(const Stream& stream, const Tensor& x, int64_t to) override {
    check_other(*this, to);
    return count(stream, "send", x.bytes());
  }
  Pending start_receive(const Stream& stream, const Tensor& x, int64_t from, const Event*) override {
    check_other(*this, from);
    if (sent_) sent_("receive", 0);
    return link_ == nullptr ? Pending() : until(stream, link_->start_receive(x.bytes()));
  }
  std::unique_ptr<Communicator> split(int64_t, int64_t, const std::string& name) override {
    if (is_real_) return make_self_communicator(name);
    throw Error(ExitCode::kBug, "a planned group cannot be split into " + name + ": who else is in it?");
  }

 private:
  // Counts `bytes`: `second_bytes` of them follow the sum, the others precede it and take `rounds` latencies.
  Pending count(const Stream& stream, const char* operation, int64_t bytes, std::function<void()> sum = {},
                int64_t second_bytes = 0, int64_t rounds = 1) {
    bytes_sent_ += bytes;
    if (sent_) sent_(operation, bytes);
    if (link_ == nullptr) return {};
    return until(stream, link_->start(bytes - second_bytes, rounds), std::move(sum), second_bytes);
  }
  Pending until(const Stream& stream, double end, std::function<void()> sum = {}, int64_t second_bytes = 0) {
    return {std::make_unique<PlannedOperation>(*link_, end, std::move(sum), second_bytes), stream};
  }
  static std::function<void()> sum_of(const Stream& stream, std::vector<RankPiece> pieces, const Tensor& out,
                                      Accumulate accumulate) {
    if (pieces.empty()) return {};
    return [&stream, pieces = std::move(pieces), out, accumulate] {
      reduce_pieces(stream, pieces, out, accumulate);
    };
  }
  // The pieces for all other ranks are rounded before they are sent.
  void observe_rounding(const Stream& stream, const Tensor& own) const {
    const int64_t elements = own.count() * (size_ - 1);
    if (stream.observer() != nullptr)
      stream.observer()->run(
          {.kernel = "convert", .dtype = own.dtype, .sizes = {elements, 1, 1}, .bytes = 6 * elements}, [] {});
  }

  std::string name_;
  int64_t rank_, size_;
  DeviceKind kind_;
  bool is_real_;
  SentObserver sent_;
  PlannedLink* link_;
  int64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(const std::string& name) {
  return std::make_unique<SilentCommunicator>(name, 0, 1, DeviceKind::kCpu, true, SentObserver(), nullptr);
}

std::unique_ptr<Communicator> make_planned_communicator(const std::string& name, int64_t rank, int64_t size,
                                                        DeviceKind kind, SentObserver sent,
                                                        PlannedLink* link) {
  RIPSTOP_CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  return std::make_unique<SilentCommunicator>(name, rank, size, kind, false, std::move(sent), link);
}

}  // namespace ripstop
