// The communicator over MPI, for host tensors. It sends messages instead of calling MPI's collectives, so
// messages may have any size, sums are in rank order, and at a deadline the open requests show which ranks
// are missing.
#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "parallel/collectives.h"
#include "parallel/mpi_transfer.h"
#include "parallel/round_to_bfloat16.h"

namespace ripstop::mpi {
namespace {

// Calls body(peer) for every other rank, beginning with the next, so that no rank gets all messages first.
template <class Body>
void for_peers(const Group& group, Body body) {
  for (int64_t k = 1; k < group.size; ++k) body((group.rank + k) % group.size);
}

// Refuses device memory, because an MPI without support for it would crash.
void check_host(const Tensor& t) {
  RIPSTOP_CHECK(t.device.kind == DeviceKind::kCpu || t.count() == 0, "MPI moves host memory, not {}",
                to_string(t.device));
}

// A transfer whose wait() ends with a call of `then`.
class TransferOperation final : public Pending::Operation {
 public:
  TransferOperation(Transfer transfer, std::function<void(const Stream&)> then)
      : transfer_(std::move(transfer)), then_(std::move(then)) {}
  void wait(const Stream& stream) override {
    transfer_.wait();
    if (then_) then_(stream);
  }
  bool poll() override { return transfer_.test(); }

 private:
  Transfer transfer_;
  std::function<void(const Stream&)> then_;
};

Pending pending(Transfer transfer, const Stream& stream, std::function<void(const Stream&)> then = {}) {
  return {std::make_unique<TransferOperation>(std::move(transfer), std::move(then)), stream};
}

// Starts to receive `bytes` bytes of dtype `travel` from every other rank into scratch. Returns the pieces of
// all ranks; this rank's piece is `own`.
std::vector<RankPiece> receive_pieces(Transfer& transfer, const Group& group, const RankPiece& own,
                                      DType travel, int64_t bytes, const Tensor& scratch) {
  std::vector<RankPiece> pieces(static_cast<size_t>(group.size), own);
  int64_t slot = 0;
  for (int64_t r = 0; r < group.size; ++r) {
    if (r == group.rank) continue;
    std::byte* piece = byte_at(scratch, slot++ * bytes);
    transfer.receive(piece, bytes, r);
    pieces[static_cast<size_t>(r)] = {piece, travel};
  }
  return pieces;
}

// Every rank sums the terms (`shares_`) of all ranks for one part of x, in rank order, and sends the sum to
// all others (`parts_`), so all get equal bits. If x travels in bfloat16, all parts but this rank's are
// rounded in place before they are sent, and the sums are widened in place.
class AllReduceOperation final : public Pending::Operation {
 public:
  AllReduceOperation(Group& group, const Stream& stream, const Tensor& x, DType travel,
                     const Tensor& scratch);
  void wait(const Stream&) override {
    if (!reduced_) shares_.wait();
    finish_part();
    parts_.wait();
    if (rounds()) in_all_parts([](const Tensor& part) { widen_bfloat16(part.data, part.count()); });
  }
  bool poll() override {
    if (!reduced_ && !shares_.test()) return false;
    finish_part();
    return parts_.test();
  }

 private:
  bool rounds() const { return travel_ != x_.dtype; }
  Tensor part_of(int64_t rank) const;
  int64_t sent_bytes(const Tensor& part) const { return part.count() * element_bytes(travel_); }
  template <class Body>
  void in_all_parts(Body body) const;
  void finish_part();

  Group& group_;
  const Stream& stream_;
  Tensor x_;
  DType travel_;
  std::vector<RankPiece> pieces_;
  // Both transfers are made at the start, because tags count the group's transfers, and ranks reach the
  // second transfer at different times.
  Transfer shares_{group_, "all_reduce"}, parts_{group_, "all_reduce"};
  bool reduced_ = false;  ///< this rank's part is reduced and the second transfer has begun
};

AllReduceOperation::AllReduceOperation(Group& group, const Stream& stream, const Tensor& x, DType travel,
                                       const Tensor& scratch)
    : group_(group), stream_(stream), x_(x), travel_(travel) {
  const Tensor own = part_of(group.rank);
  pieces_ = receive_pieces(shares_, group, {own.data, x.dtype}, travel, sent_bytes(own), scratch);
  if (rounds())
    in_all_parts([&](const Tensor& part) {
      if (part.data != own.data) round_to_bfloat16(part.data, part.count());
    });
  for_peers(group, [&](int64_t peer) {
    const Tensor part = part_of(peer);
    shares_.send(part.data, sent_bytes(part), peer);
  });
}

template <class Body>
void AllReduceOperation::in_all_parts(Body body) const {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < group_.size; ++r) body(part_of(r));
}

Tensor AllReduceOperation::part_of(int64_t rank) const {
  const Part part = all_reduce_part(x_.count(), rank, group_.size);
  return {byte_at(x_, part.first * element_bytes(x_.dtype)), x_.dtype, Shape{part.count}, x_.device};
}

// Reduces this rank's part of x and starts the second transfer, once the shares have arrived.
void AllReduceOperation::finish_part() {
  if (reduced_) return;
  reduced_ = true;
  const Tensor own = part_of(group_.rank);
  reduce_pieces(stream_, pieces_, own, Accumulate::kNo);
  if (rounds()) round_to_bfloat16(own.data, own.count());
  for_peers(group_, [&](int64_t peer) {
    const Tensor part = part_of(peer);
    parts_.receive(part.data, sent_bytes(part), peer);
  });
  for_peers(group_, [&](int64_t peer) { parts_.send(own.data, sent_bytes(own), peer); });
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(World& world, MPI_Comm comm, const std::string& name);
  ~MpiCommunicator() override;

  int64_t rank() const override { return group_.rank; }
  int64_t size() const override { return group_.size; }
  const std::string& name() const override { return group_.name; }
  int64_t bytes_sent() const override { return group_.bytes_sent; }
  double seconds_waited() const override { return group_.seconds_waited; }

  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override;
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override;
  Pending start_all_reduce(const Stream& stream, const Tensor& x, DType travel, const Tensor& scratch,
                           const Stream* behind) override;
  void broadcast(const Stream& stream, const Tensor& x, int64_t root) override;
  Pending start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) override;
  Pending start_send(const Stream& stream, const Tensor& x, int64_t to) override;
  Pending start_receive(const Stream& stream, const Tensor& x, int64_t from, const Event* behind) override;
  std::vector<std::string> all_gather_text(const std::string& text) override;
  void barrier() override;
  void await(const char* operation, FunctionRef<bool()> done) override;
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name) override;

 private:
  Group group_;
};

MpiCommunicator::MpiCommunicator(World& world, MPI_Comm comm, const std::string& name) {
  const std::lock_guard lock(world.progress.calls());
  group_.world = &world;
  group_.comm = comm;
  group_.name = name;
  // Let MPI return errors, so that an Error can name the failed call. By default MPI aborts the process.
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0, size = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  group_.rank = rank;
  group_.size = size;
  // Errors name ranks by their number in the world, which people know from the launcher.
  MPI_Group members = MPI_GROUP_NULL, everyone = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &members), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &everyone), "MPI_Comm_group");
  std::vector<int> own(static_cast<size_t>(size)), worldwide(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) own[static_cast<size_t>(r)] = r;
  check_mpi(MPI_Group_translate_ranks(members, size, own.data(), everyone, worldwide.data()),
            "MPI_Group_translate_ranks");
  group_.world_rank.assign(worldwide.begin(), worldwide.end());
  MPI_Group_free(&members);
  MPI_Group_free(&everyone);
}

MpiCommunicator::~MpiCommunicator() {
  // While an exception unwinds, other ranks may be gone, and MPI_Comm_free would wait for them.
  if (std::uncaught_exceptions() > 0) return;
  const GuardedCall guard(*group_.world, "MPI_Comm_free");
  const std::lock_guard lock(group_.world->progress.calls());
  MPI_Comm_free(&group_.comm);
}

Pending MpiCommunicator::all_gather(const Stream& stream, const Tensor& own, const Tensor& all) {
  check_all_gather(*this, own, all);
  check_host(all);
  const int64_t bytes = own.bytes();
  if (byte_at(all, group_.rank * bytes) != own.data)
    copy_bytes(stream, byte_at(all, group_.rank * bytes), own.data, bytes);
  // Post receives before sends, here and below, so that MPI need not buffer messages.
  Transfer transfer(group_, "all_gather");
  for_peers(group_, [&](int64_t peer) { transfer.receive(byte_at(all, peer * bytes), bytes, peer); });
  for_peers(group_, [&](int64_t peer) { transfer.send(own.data, bytes, peer); });
  return pending(std::move(transfer), stream);
}

Pending MpiCommunicator::reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own,
                                        DType travel, Accumulate accumulate, const Tensor& scratch) {
  check_reduce_scatter(*this, whole, own, travel, scratch);
  check_host(whole);
  const int64_t count = own.count(), arrives = count * element_bytes(travel);
  Transfer transfer(group_, "reduce_scatter");
  std::vector<RankPiece> pieces = receive_pieces(
      transfer, group_, {byte_at(whole, group_.rank * own.bytes()), whole.dtype}, travel, arrives, scratch);
  if (travel != whole.dtype) {
    // Round in place, because a rounded copy would take as much memory as half the gradient.
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < group_.size; ++r)
      if (r != group_.rank) round_to_bfloat16(byte_at(whole, r * own.bytes()), count);
  }
  for_peers(group_, [&](int64_t peer) { transfer.send(byte_at(whole, peer * own.bytes()), arrives, peer); });
  return pending(std::move(transfer), stream, [pieces = std::move(pieces), own, accumulate](const Stream& s) {
    reduce_pieces(s, pieces, own, accumulate);
  });
}

Pending MpiCommunicator::start_all_reduce(const Stream& stream, const Tensor& x, DType travel,
                                          const Tensor& scratch, const Stream*) {
  check_all_reduce(*this, x, travel, scratch);
  check_host(x);
  return {std::make_unique<AllReduceOperation>(group_, stream, x, travel, scratch), stream};
}

void MpiCommunicator::broadcast(const Stream&, const Tensor& x, int64_t root) {
  check_peer(*this, root);
  check_host(x);
  // A binomial tree doubles the number of ranks that have the tensor in each round.
  const int64_t size = group_.size, place = (group_.rank - root + size) % size;
  const auto rank_at = [&](int64_t p) { return (p + root) % size; };
  for (int64_t have = 1; have < size; have *= 2) {
    Transfer transfer(group_, "broadcast");  // made on every rank, so that tags stay equal
    if (place < have && place + have < size) transfer.send(x.data, x.bytes(), rank_at(place + have));
    if (place >= have && place < 2 * have) transfer.receive(x.data, x.bytes(), rank_at(place - have));
    transfer.wait();
  }
}

Pending MpiCommunicator::start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) {
  check_exchanges(*this, exchanges);
  for (const Exchange& each : exchanges) {
    check_host(each.send);
    check_host(each.receive);
  }
  // Make the transfer even if this rank sends nothing, because tags count transfers and must stay equal.
  Transfer transfer(group_, "exchange");
  for (const auto& [send, to, receive, from] : exchanges) {
    if (to == group_.rank)
      copy_bytes(stream, receive.data, send.data, send.bytes());
    else
      transfer.receive(receive.data, receive.bytes(), from);
  }
  for (const Exchange& each : exchanges)
    if (each.to != group_.rank) transfer.send(each.send.data, each.send.bytes(), each.to);
  return pending(std::move(transfer), stream);
}

Pending MpiCommunicator::start_send(const Stream& stream, const Tensor& x, int64_t to) {
  check_other(*this, to);
  check_host(x);
  Transfer transfer(group_, "send", kMessageTag);
  transfer.send(x.data, x.bytes(), to);
  return pending(std::move(transfer), stream);
}

Pending MpiCommunicator::start_receive(const Stream& stream, const Tensor& x, int64_t from, const Event*) {
  check_other(*this, from);
  check_host(x);
  Transfer transfer(group_, "receive", kMessageTag);
  transfer.receive(x.data, x.bytes(), from);
  return pending(std::move(transfer), stream);
}

std::vector<std::string> MpiCommunicator::all_gather_text(const std::string& text) {
  const int64_t counted = group_.bytes_sent;
  const auto size = static_cast<size_t>(group_.size);
  std::vector<int64_t> length(size);
  const auto own = static_cast<int64_t>(text.size());
  {
    // A receive must know the size of its message.
    Transfer transfer(group_, "all_gather_text");
    for_peers(group_, [&](int64_t peer) {
      transfer.receive(&length[static_cast<size_t>(peer)], sizeof own, peer);
      transfer.send(&own, sizeof own, peer);
    });
    transfer.wait();
  }
  std::vector<std::string> texts(size);
  texts[static_cast<size_t>(group_.rank)] = text;
  Transfer transfer(group_, "all_gather_text");
  for_peers(group_, [&](int64_t peer) {
    const auto p = static_cast<size_t>(peer);
    // MPI writes straight into the text.
    texts[p].resize(static_cast<size_t>(length[p]));
    transfer.receive(texts[p].data(), length[p], peer);
    transfer.send(text.data(), own, peer);
  });
  transfer.wait();
  group_.bytes_sent = counted;  // only bytes of tensors count
  return texts;
}

void MpiCommunicator::barrier() {
  const int64_t counted = group_.bytes_sent;
  // Every rank sends to every other rank: barriers are so rare that a tree would gain little.
  std::vector<char> come(static_cast<size_t>(group_.size));
  Transfer transfer(group_, "barrier");
  for_peers(group_, [&](int64_t peer) {
    transfer.receive(&come[static_cast<size_t>(peer)], 1, peer);
    transfer.send(&come[static_cast<size_t>(group_.rank)], 1, peer);
  });
  transfer.wait();
  group_.bytes_sent = counted;
}

void MpiCommunicator::await(const char* operation, FunctionRef<bool()> done) {
  wait_until(group_, operation, done, [&] {
    std::set<int64_t> others;
    for (int64_t r = 0; r < group_.size; ++r)
      if (r != group_.rank) others.insert(r);
    return others;
  });
}

std::unique_ptr<Communicator> MpiCommunicator::split(int64_t color, int64_t key, const std::string& name) {
  barrier();  // unlike MPI_Comm_split, its error names a missing rank
  MPI_Comm part = MPI_COMM_NULL;
  {
    const GuardedCall guard(*group_.world, "MPI_Comm_split");
    const std::lock_guard lock(group_.world->progress.calls());
    check_mpi(MPI_Comm_split(group_.comm, static_cast<int>(color), static_cast<int>(key), &part),
              "MPI_Comm_split");
  }
  return std::make_unique<MpiCommunicator>(*group_.world, part, name);
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(World& world, MPI_Comm comm, const std::string& name) {
  return std::make_unique<MpiCommunicator>(world, comm, name);
}

}  // namespace ripstop::mpi
