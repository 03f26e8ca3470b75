#include "tests/emulated_device/nccl_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "model/device/dtype.h"
#include "tests/emulated_device/scheduler.h"

namespace ripstop::emulated {
namespace {

constexpr int64_t kPieceBytes = 8192;

// In front of every message: what it is, so that the receiver sees whether both mean the same call.
struct Envelope {
  Call call;
  int64_t bytes = 0;
};

[[noreturn]] void refuse_mismatch(const CommunicatorCore& core, const Call& own, int other_rank,
                                  const Call& other) {
  refuse(fmt::format("a call on {}", core.name),
         fmt::format("rank {} is in {}, rank {} in {}: the real NCCL would hang or mix their data",
                     core.exchange->rank(), to_text(own), other_rank, to_text(other)));
}

// Bytes to one rank. Every second send is read by its receiver, so it ends when all has been taken.
class Outgoing {
 public:
  Outgoing(CommunicatorCore& core, int to, const Call& call, const void* data, int64_t bytes)
      : exchange_(core.exchange.get()),
        to_(to),
        envelope_{call, bytes},
        data_(data),
        is_read_(call.kind == Call::Kind::kSend && draw(2) == 0) {}

  int64_t sent() const { return sent_; }
  bool done() const {
    return announced_ && sent_ == envelope_.bytes &&
           (!is_read_ || exchange_->room(to_) == SharedExchange::kChannelBytes);
  }
  void progress(int64_t most) {
    if (!announced_) {
      if (exchange_->room(to_) < static_cast<int64_t>(sizeof envelope_)) return;
      exchange_->write(to_, &envelope_, sizeof envelope_);
      announced_ = true;
    }
    const int64_t part = std::min(most, envelope_.bytes - sent_);
    sent_ += exchange_->write(to_, static_cast<const std::byte*>(data_) + sent_, part);
  }

 private:
  SharedExchange* exchange_;
  int to_;
  Envelope envelope_;
  const void* data_;
  bool is_read_, announced_ = false;
  int64_t sent_ = 0;
};

// Bytes from one rank. `expected` is what that rank must have called.
class Incoming {
 public:
  Incoming(CommunicatorCore& core, int from, const Call& own, const Call& expected, int64_t bytes)
      : core_(&core), from_(from), own_(own), expected_(expected), bytes_(bytes) {}

  int from() const { return from_; }
  // Bytes that can be taken now.
  int64_t ready() {
    SharedExchange& exchange = *core_->exchange;
    if (!announced_) {
      Envelope envelope;
      if (exchange.waiting(from_) < static_cast<int64_t>(sizeof envelope)) return 0;
      exchange.read(from_, &envelope, sizeof envelope);
      if (!(envelope.call == expected_) || envelope.bytes != bytes_)
        refuse_mismatch(*core_, own_, from_, envelope.call);
      announced_ = true;
    }
    return std::min(exchange.waiting(from_), bytes_ - taken_);
  }
  void take(void* to, int64_t bytes) {
    core_->exchange->read(from_, to, bytes);
    taken_ += bytes;
  }
  int64_t taken() const { return taken_; }
  bool done() {
    static_cast<void>(ready());
    return announced_ && taken_ == bytes_;
  }

 private:
  CommunicatorCore* core_;
  int from_;
  Call own_, expected_;
  int64_t bytes_, taken_ = 0;
  bool announced_ = false;
};

std::byte* offset(void* data, int64_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}
const std::byte* offset(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

// Says what this rank calls and looks at what the others call under the same number.
class Agreement {
 public:
  Agreement(CommunicatorCore& core, const Call& call, int64_t number)
      : core_(&core), call_(call), number_(number) {}

  bool progress() {
    SharedExchange& exchange = *core_->exchange;
    if (!posted_) posted_ = exchange.post(number_, call_);
    for (int r = 0; r < exchange.ranks(); ++r)
      if (const Call* other = exchange.posted(r, number_); other != nullptr && !(*other == call_))
        refuse_mismatch(*core_, call_, r, *other);
    return posted_;
  }

 private:
  CommunicatorCore* core_;
  Call call_;
  int64_t number_;
  bool posted_ = false;
};

// All-gather and broadcast: bytes that arrive as they are.
class Copies final : public Transfer {
 public:
  Copies(CommunicatorCore& core, const Task& task, int64_t number) : agreement_(core, task.call, number) {
    const Call& call = task.call;
    const int rank = core.exchange->rank(), ranks = core.exchange->ranks();
    const int64_t bytes = call.bytes();
    const bool gathers = call.kind == Call::Kind::kAllGather;
    const bool sends = gathers || call.peer == rank;
    own_ = gathers ? offset(task.receive, rank * bytes) : static_cast<std::byte*>(task.receive);
    if (sends) own_source_ = task.send;
    own_bytes_ = bytes;
    for (int step = 1; step < ranks; ++step) {
      const int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
      if (sends) out_.emplace_back(core, to, call, task.send, bytes);
      if (gathers)
        in_.push_back({Incoming(core, from, call, call, bytes), offset(task.receive, from * bytes)});
    }
    if (!sends) in_.push_back({Incoming(core, call.peer, call, call, bytes), own_});
  }

  bool progress(int64_t pieces) override {
    if (!agreement_.progress()) return false;
    if (own_source_ != nullptr && own_source_ != own_)
      std::memmove(own_, std::exchange(own_source_, nullptr), static_cast<size_t>(own_bytes_));
    bool done = true;
    for (Outgoing& out : out_) {
      out.progress(pieces * kPieceBytes);
      done = done && out.done();
    }
    for (auto& [in, to] : in_) {
      const int64_t part = std::min(in.ready(), pieces * kPieceBytes);
      in.take(to + in.taken(), part);
      done = done && in.done();
    }
    return done;
  }

 private:
  Agreement agreement_;
  const void* own_source_ = nullptr;
  std::byte* own_ = nullptr;
  int64_t own_bytes_ = 0;
  std::vector<Outgoing> out_;
  std::vector<std::pair<Incoming, std::byte*>> in_;
};

template <class T>
T sum_of(T a, T b) {
  return a + b;
}
// NCCL's sums of bfloat16 round after each addition (reduce_kernel.h of 2.28.9, lines 397-436).
BFloat16 sum_of(BFloat16 a, BFloat16 b) {
  return BFloat16(static_cast<float>(a) + static_cast<float>(b));
}

template <class T>
void add_all(std::byte* into, const std::byte* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof(T))) {
    T a, b;
    std::memcpy(&a, into + at, sizeof a);
    std::memcpy(&b, from + at, sizeof b);
    a = sum_of(a, b);
    std::memcpy(into + at, &a, sizeof a);
  }
}

void reduce_into(const Call& call, std::byte* into, const std::byte* from, int64_t bytes) {
  if (call.reduction != ncclSum) refuse(to_text(call), "the emulated NCCL only adds");
  switch (call.datatype) {
    case ncclFloat32:
      return add_all<float>(into, from, bytes);
    case ncclFloat64:
      return add_all<double>(into, from, bytes);
    case ncclInt32:
      return add_all<int32_t>(into, from, bytes);
    case ncclBfloat16:
      return add_all<BFloat16>(into, from, bytes);
    default:
      refuse(to_text(call), "the emulated NCCL does not reduce this type");
  }
}

// The order in which the parts of all ranks are added. Without NVLink switches as around a ring: the rank
// after the one that keeps the sum begins. A switch adds in an order that nothing but the seed fixes.
std::vector<size_t> order_of_sum(int64_t ranks, int64_t keeper, int64_t collective, int64_t piece) {
  std::vector<size_t> order(static_cast<size_t>(ranks));
  for (int64_t step = 0; step < ranks; ++step)
    order[static_cast<size_t>(step)] = static_cast<size_t>((keeper + 1 + step) % ranks);
  if (behaviour().switches_add) {
    std::seed_seq drawn{static_cast<int64_t>(Scheduler::instance().seed()), keeper, collective, piece};
    std::shuffle(order.begin(), order.end(), std::minstd_rand(drawn));
  }
  return order;
}

// All-reduce and reduce-scatter: the same pieces of all ranks come together and are summed.
class Reduction final : public Transfer {
 public:
  Reduction(CommunicatorCore& core, const Task& task, int64_t number)
      : agreement_(core, task.call, number),
        call_(task.call),
        number_(number),
        rank_(core.exchange->rank()),
        ranks_(core.exchange->ranks()),
        scatters_(task.call.kind == Call::Kind::kReduceScatter),
        bytes_(task.call.bytes()),
        receive_(static_cast<std::byte*>(task.receive)) {
    own_ = scatters_ ? offset(task.send, rank_ * bytes_) : static_cast<const std::byte*>(task.send);
    for (int step = 1; step < ranks_; ++step) {
      const int to = (rank_ + step) % ranks_;
      out_.emplace_back(core, to, call_, scatters_ ? offset(task.send, to * bytes_) : own_, bytes_);
    }
    for (int r = 0; r < ranks_; ++r)
      if (r != rank_) in_.emplace_back(core, r, call_, call_, bytes_);
  }

  bool progress(int64_t pieces) override {
    if (!agreement_.progress()) return false;
    bool sent = true;
    for (Outgoing& out : out_) {
      out.progress(pieces * kPieceBytes);
      sent = sent && out.done();
    }
    for (int64_t k = 0; k < pieces && done_ < bytes_; ++k)
      if (!reduce_piece()) break;
    bool taken = done_ == bytes_;
    for (Incoming& in : in_) taken = taken && in.done();  // of messages without bytes, too
    return sent && taken;
  }

 private:
  bool reduce_piece() {
    const int64_t part = std::min(kPieceBytes, bytes_ - done_);
    for (Incoming& in : in_)
      if (in.ready() < part) return false;
    // In place: what is still to be sent must not be overwritten.
    if (!scatters_)
      for (const Outgoing& out : out_)
        if (out.sent() < done_ + part) return false;
    std::vector<std::vector<std::byte>> all(static_cast<size_t>(ranks_));
    for (std::vector<std::byte>& piece : all) piece.resize(static_cast<size_t>(part));
    std::memcpy(all[static_cast<size_t>(rank_)].data(), own_ + done_, static_cast<size_t>(part));
    for (Incoming& in : in_) in.take(all[static_cast<size_t>(in.from())].data(), part);
    const int64_t keeper = scatters_ ? rank_ : done_ / kPieceBytes % ranks_;
    const std::vector<size_t> order = order_of_sum(ranks_, keeper, number_, done_ / kPieceBytes);
    for (size_t step = 1; step < order.size(); ++step)
      reduce_into(call_, all[order[0]].data(), all[order[step]].data(), part);
    std::memcpy(receive_ + done_, all[order[0]].data(), static_cast<size_t>(part));
    done_ += part;
    return true;
  }

  Agreement agreement_;
  Call call_;
  int64_t number_;
  int rank_, ranks_;
  bool scatters_;
  int64_t bytes_, done_ = 0;
  std::byte* receive_;
  const std::byte* own_ = nullptr;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

class Exchange final : public Transfer {
 public:
  Exchange(CommunicatorCore& core, const std::vector<Task>& tasks) {
    const int rank = core.exchange->rank(), ranks = core.exchange->ranks();
    out_.resize(static_cast<size_t>(ranks));
    in_.resize(static_cast<size_t>(ranks));
    std::deque<Task> to_self;
    for (const Task& task : tasks)
      if (task.call.kind == Call::Kind::kSend && task.call.peer == rank) to_self.push_back(task);
    for (const Task& task : tasks) {
      const Call& call = task.call;
      const int64_t bytes = call.bytes();
      const auto peer = static_cast<size_t>(call.peer);
      if (call.kind == Call::Kind::kSend && call.peer != rank) {
        out_[peer].emplace_back(core, call.peer, call, task.send, bytes);
      } else if (call.kind == Call::Kind::kReceive && call.peer != rank) {
        Call expected = call;
        expected.kind = Call::Kind::kSend;
        expected.peer = rank;
        in_[peer].push_back(
            {Incoming(core, call.peer, call, expected, bytes), static_cast<std::byte*>(task.receive)});
      } else if (call.kind == Call::Kind::kReceive) {
        own_.push_back({to_self.front().send, task.receive, bytes});
        to_self.pop_front();
      }
    }
  }

  bool progress(int64_t pieces) override {
    for (const auto& [from, to, bytes] : std::exchange(own_, {}))
      std::memmove(to, from, static_cast<size_t>(bytes));
    bool done = true;
    for (std::deque<Outgoing>& queue : out_) {
      if (!queue.empty()) queue.front().progress(pieces * kPieceBytes);
      if (!queue.empty() && queue.front().done()) queue.pop_front();
      done = done && queue.empty();
    }
    for (auto& queue : in_) {
      if (!queue.empty()) {
        auto& [in, to] = queue.front();
        const int64_t part = std::min(in.ready(), pieces * kPieceBytes);
        in.take(to + in.taken(), part);
        if (in.done()) queue.pop_front();
      }
      done = done && queue.empty();
    }
    return done;
  }

 private:
  struct Own {
    const void* from;
    void* to;
    int64_t bytes;
  };
  std::vector<Own> own_;
  std::vector<std::deque<Outgoing>> out_;  // by rank
  std::vector<std::deque<std::pair<Incoming, std::byte*>>> in_;
};

}  // namespace

std::unique_ptr<Transfer> make_collective(CommunicatorCore& core, const Task& task, int64_t number) {
  if (task.call.kind == Call::Kind::kAllGather || task.call.kind == Call::Kind::kBroadcast)
    return std::make_unique<Copies>(core, task, number);
  return std::make_unique<Reduction>(core, task, number);
}

std::unique_ptr<Transfer> make_exchange(CommunicatorCore& core, const std::vector<Task>& tasks) {
  return std::make_unique<Exchange>(core, tasks);
}

}  // namespace ripstop::emulated
