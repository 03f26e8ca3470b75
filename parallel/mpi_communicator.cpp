// The communicator over MPI, in host memory. All transfers are point to point: pieces of any size, the order
// of summation ours, and at a deadline the requests that are still open name the ranks that did not come.

// The C++ bindings of MPI-2 are gone from the standard, but not from every header.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "parallel/collective_plan.h"
#include "parallel/mpi_world.h"
#include "parallel/round_in_place.h"
#include "parallel/watchdog.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail(ExitCode::kCommunication, "{} failed: {}", call, std::string(text, static_cast<std::size_t>(length)));
}

// What all communicators of a world share.
struct World {
  MpiOptions options;
  Watchdog watchdog{MpiWorld::kSecondsToEnd};
  std::vector<RankHost> places;  // by rank of MPI_COMM_WORLD
  bool connected = false;        // the watchdogs know each other
};

// A group as its operations see it.
struct Group {
  World* world = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  std::string name;
  std::int64_t rank = 0, size = 1;
  std::vector<std::int64_t> world_rank;  // by rank of the group
  std::int64_t bytes_sent = 0;
  double seconds_waited = 0;
  int sequence = 0;
};

// "no data from rank 3 (node07)": of the ranks in `missing` (ranks of the group), what their watchdogs say.
std::string name_missing(const Group& group, const std::set<std::int64_t>& missing) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::int64_t> ranks;
  for (const std::int64_t r : missing) ranks.push_back(group.world_rank[static_cast<std::size_t>(r)]);
  std::string text;
  World& world = *group.world;
  const auto host = [&](std::int64_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    return r < world.places.size() ? world.places[r].host : std::string("?");
  };
  // A rank that is waited for may itself wait for another one: all are asked, the silent ones told first.
  std::vector<RankState> states;
  if (world.connected) {
    std::vector<std::int64_t> all(world.places.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<std::int64_t>(r);
    states = world.watchdog.ask(all, 2.0);
    std::stable_partition(states.begin(), states.end(), [](const RankState& s) { return !s.answers; });
  }
  std::size_t told = 0;
  for (const RankState& state : states) {
    const bool waited_for = std::find(ranks.begin(), ranks.end(), state.rank) != ranks.end();
    if ((state.answers && !waited_for) || told == 2 * kNamed) continue;
    text += (told++ == 0 ? "" : ", ") + state.describe(host(state.rank));
  }
  if (!text.empty()) return text;
  for (std::size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    text += fmt::format("{}rank {} ({})", i == 0 ? "no data from " : ", ", ranks[i], host(ranks[i]));
  return text;
}

// Gives the core to whoever computes on it: there may be more ranks than cores.
void rest(double waited) {
  if (waited < 1e-3)
    sched_yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(waited < 1 ? 20 : 200));
}

// Waits until `done()`. Past the deadline: Error(kCommunication), in which `missing()` are the ranks to be
// named.
template <class Done, class Missing>
void wait_until(Group& group, const char* operation, Done done, Missing missing) {
  if (done()) return;
  World& world = *group.world;
  const Clock::time_point begin = Clock::now();
  world.watchdog.begin_operation(operation, group.name);
  Clock::time_point before = begin;
  double waited = 0;
  while (!done()) {
    const Clock::time_point now = Clock::now();
    // A gap means that this process was stopped or suspended: the others could not be waited for.
    waited += std::min(seconds_between(before, now), 1.0);
    before = now;
    if (waited > world.options.deadline_seconds) {
      const std::int64_t step = world.watchdog.step();
      throw Error(
          ExitCode::kCommunication,
          fmt::format("{} on {} ({} ranks) at step {} waited {:.0f} s: {}", operation, group.name, group.size,
                      step < 0 ? "-" : std::to_string(step), waited, name_missing(group, missing())),
          "see that rank's output and its node; run the same command again to go on from the last "
          "checkpoint");
    }
    rest(waited);
  }
  world.watchdog.end_operation();
  group.seconds_waited += seconds_between(begin, Clock::now());
}

// The messages of one collective.
class Transfer {
 public:
  Transfer(Group& group, const char* operation)
      : group_(&group), operation_(operation), tag_(group.sequence) {
    // Tags tell operations that are under way together apart; every MPI allows them up to 32767.
    group.sequence = (group.sequence + 1) % 32768;
    group.world->watchdog.begin_operation(operation, group.name);
    group.world->watchdog.end_operation();
  }

  void send(const void* data, std::int64_t bytes, std::int64_t to) {
    for_pieces(bytes, to, [&](std::int64_t at, int count, MPI_Request* request) {
      group_->bytes_sent += count;
      check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + at, count, MPI_BYTE, static_cast<int>(to),
                          tag_, group_->comm, request),
                "MPI_Isend");
    });
  }

  void receive(void* data, std::int64_t bytes, std::int64_t from) {
    for_pieces(bytes, from, [&](std::int64_t at, int count, MPI_Request* request) {
      check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + at, count, MPI_BYTE, static_cast<int>(from), tag_,
                          group_->comm, request),
                "MPI_Irecv");
    });
  }

  // Whether all messages are through; drives progress.
  bool test() {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return done != 0;
  }

  // Waits until all messages are through. Throws Error(kCommunication) past the deadline.
  void wait() {
    wait_until(
        *group_, operation_, [&] { return test(); }, [&] { return missing(); });
  }

 private:
  template <class Post>
  void for_pieces(std::int64_t bytes, std::int64_t peer, Post post) {
    const std::int64_t longest = group_->world->options.piece_bytes;
    for (std::int64_t at = 0; at < bytes; at += longest) {
      MPI_Request request = MPI_REQUEST_NULL;
      post(at, static_cast<int>(std::min(longest, bytes - at)), &request);
      requests_.push_back(request);
      peers_.push_back(peer);
    }
  }

  // Whose messages are still under way.
  std::set<std::int64_t> missing() {
    std::set<std::int64_t> ranks;
    std::vector<int> index(requests_.size());
    int count = 0;
    MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, index.data(),
                 MPI_STATUSES_IGNORE);
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL) ranks.insert(peers_[i]);
    return ranks;
  }

  Group* group_;
  const char* operation_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<std::int64_t> peers_;
};

// Peers of `rank`, nearest next first, so that not all ranks send to the same one at the same time.
template <class Body>
void for_peers(const Group& group, Body body) {
  for (std::int64_t k = 1; k < group.size; ++k) body((group.rank + k) % group.size);
}

void check_host(const Tensor& t) {
  RIPSTOP_CHECK(t.device.kind == DeviceKind::kCpu || t.count() == 0, "MPI moves host memory, not {}",
                device_name(t.device));
}

std::byte* at(const Tensor& t, std::int64_t offset_bytes) {
  return static_cast<std::byte*>(t.data) + offset_bytes;
}

class MessagesOperation final : public Pending::Operation {
 public:
  explicit MessagesOperation(Transfer transfer) : transfer_(std::move(transfer)) {}
  void wait(const Stream&) override { transfer_.wait(); }
  void poll() override { transfer_.test(); }

 private:
  Transfer transfer_;
};

class ReduceScatterOperation final : public Pending::Operation {
 public:
  ReduceScatterOperation(Transfer transfer, std::vector<RankPiece> pieces, const Tensor& own,
                         Accumulate accumulate)
      : transfer_(std::move(transfer)), pieces_(std::move(pieces)), own_(own), accumulate_(accumulate) {}
  void wait(const Stream& stream) override {
    transfer_.wait();
    reduce_pieces(stream, pieces_, own_, Reduce::kSum, accumulate_);
  }
  void poll() override { transfer_.test(); }

 private:
  Transfer transfer_;
  std::vector<RankPiece> pieces_;
  Tensor own_;
  Accumulate accumulate_;
};

class MpiCommunicator final : public Communicator {
 public:
  /// Takes `comm` over.
  MpiCommunicator(World& world, MPI_Comm comm, const std::string& name);
  ~MpiCommunicator() override;

  std::int64_t rank() const override { return group_.rank; }
  std::int64_t size() const override { return group_.size; }
  const std::string& name() const override { return group_.name; }
  std::int64_t bytes_sent() const override { return group_.bytes_sent; }
  double seconds_waited() const override { return group_.seconds_waited; }
  std::int64_t reduce_scatter_scratch_bytes(std::int64_t whole_count, DType travel) const override {
    return reduce_scatter_scratch(whole_count, travel, group_.size);
  }
  std::int64_t all_reduce_scratch_bytes(std::int64_t count, DType dtype) const override {
    return all_reduce_scratch(count, dtype, group_.size);
  }

  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override;
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override;
  void all_reduce(const Stream& stream, const Tensor& x, Reduce reduce, const Tensor& scratch) override;
  void broadcast(const Stream& stream, const Tensor& x, std::int64_t root) override;
  Pending start_exchange(const Stream& stream, const Tensor& send, std::int64_t to, const Tensor& receive,
                         std::int64_t from) override;
  std::vector<std::string> all_gather_text(const std::string& text) override;
  void barrier() override;
  void await(const char* operation, FunctionRef<bool()> done) override;
  std::unique_ptr<Communicator> split(std::int64_t color, std::int64_t key, const std::string& name) override;

 private:
  void reduce_part(const Stream& stream, const Tensor& x, Reduce reduce, const Tensor& scratch);
  void gather_parts(const Tensor& x);

  Group group_;
};

MpiCommunicator::MpiCommunicator(World& world, MPI_Comm comm, const std::string& name) {
  group_.world = &world;
  group_.comm = comm;
  group_.name = name;
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0, size = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  group_.rank = rank;
  group_.size = size;
  MPI_Group members = MPI_GROUP_NULL, everyone = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &members), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &everyone), "MPI_Comm_group");
  std::vector<int> own(static_cast<std::size_t>(size)), worldwide(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) own[static_cast<std::size_t>(r)] = r;
  check_mpi(MPI_Group_translate_ranks(members, size, own.data(), everyone, worldwide.data()),
            "MPI_Group_translate_ranks");
  group_.world_rank.assign(worldwide.begin(), worldwide.end());
  MPI_Group_free(&members);
  MPI_Group_free(&everyone);
}

MpiCommunicator::~MpiCommunicator() {
  // While an exception unwinds, ranks may be gone that freeing would wait for.
  if (std::uncaught_exceptions() == 0) MPI_Comm_free(&group_.comm);
}

Pending MpiCommunicator::all_gather(const Stream& stream, const Tensor& own, const Tensor& all) {
  check_all_gather(*this, own, all);
  check_host(all);
  const std::int64_t bytes = own.bytes();
  if (at(all, group_.rank * bytes) != own.data)
    copy_bytes(stream, at(all, group_.rank * bytes), own.data, bytes);
  Transfer transfer(group_, "all_gather");
  for_peers(group_, [&](std::int64_t peer) { transfer.receive(at(all, peer * bytes), bytes, peer); });
  for_peers(group_, [&](std::int64_t peer) { transfer.send(own.data, bytes, peer); });
  return {std::make_unique<MessagesOperation>(std::move(transfer)), stream};
}

Pending MpiCommunicator::reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own,
                                        DType travel, Accumulate accumulate, const Tensor& scratch) {
  check_reduce_scatter(*this, whole, own, travel, scratch);
  check_host(whole);
  const std::int64_t count = own.count(), arrives = count * element_bytes(travel);
  Transfer transfer(group_, "reduce_scatter");
  std::vector<RankPiece> pieces(static_cast<std::size_t>(group_.size));
  std::int64_t slot = 0;
  for (std::int64_t r = 0; r < group_.size; ++r) {
    void* piece = at(whole, r * own.bytes());
    if (r != group_.rank) transfer.receive(piece = at(scratch, slot++ * arrives), arrives, r);
    pieces[static_cast<std::size_t>(r)] = {piece, r == group_.rank ? whole.dtype : travel};
  }
  if (travel != whole.dtype) {
#pragma omp parallel for schedule(static)
    for (std::int64_t r = 0; r < group_.size; ++r)
      if (r != group_.rank) round_in_place(at(whole, r * own.bytes()), count);
  }
  for_peers(group_, [&](std::int64_t peer) { transfer.send(at(whole, peer * own.bytes()), arrives, peer); });
  return {std::make_unique<ReduceScatterOperation>(std::move(transfer), std::move(pieces), own, accumulate),
          stream};
}

void MpiCommunicator::all_reduce(const Stream& stream, const Tensor& x, Reduce reduce,
                                 const Tensor& scratch) {
  check_all_reduce(*this, x, scratch);
  check_host(x);
  reduce_part(stream, x, reduce, scratch);
  gather_parts(x);
}

// Leaves in this rank's part of x its reduction over all ranks.
void MpiCommunicator::reduce_part(const Stream& stream, const Tensor& x, Reduce reduce,
                                  const Tensor& scratch) {
  const std::int64_t element = element_bytes(x.dtype);
  const Part own = all_reduce_part(x.count(), group_.rank, group_.size);
  Transfer transfer(group_, "all_reduce");
  std::vector<RankPiece> pieces(static_cast<std::size_t>(group_.size));
  std::int64_t slot = 0;
  for (std::int64_t r = 0; r < group_.size; ++r) {
    void* piece = at(x, own.first * element);
    if (r != group_.rank)
      transfer.receive(piece = at(scratch, slot++ * own.count * element), own.count * element, r);
    pieces[static_cast<std::size_t>(r)] = {piece, x.dtype};
  }
  for_peers(group_, [&](std::int64_t peer) {
    const Part part = all_reduce_part(x.count(), peer, group_.size);
    transfer.send(at(x, part.first * element), part.count * element, peer);
  });
  transfer.wait();
  const Tensor part{at(x, own.first * element), x.dtype, Shape{own.count}, x.device};
  reduce_pieces(stream, pieces, part, reduce, Accumulate::kNo);
}

// Copies every rank's part of x to all others.
void MpiCommunicator::gather_parts(const Tensor& x) {
  const std::int64_t element = element_bytes(x.dtype);
  const Part own = all_reduce_part(x.count(), group_.rank, group_.size);
  Transfer transfer(group_, "all_reduce");
  for_peers(group_, [&](std::int64_t peer) {
    const Part part = all_reduce_part(x.count(), peer, group_.size);
    transfer.receive(at(x, part.first * element), part.count * element, peer);
  });
  for_peers(group_,
            [&](std::int64_t peer) { transfer.send(at(x, own.first * element), own.count * element, peer); });
  transfer.wait();
}

void MpiCommunicator::broadcast(const Stream&, const Tensor& x, std::int64_t root) {
  check_peer(*this, root);
  check_host(x);
  const std::int64_t size = group_.size, place = (group_.rank - root + size) % size;
  const auto rank_at = [&](std::int64_t p) { return (p + root) % size; };
  for (std::int64_t have = 1; have < size; have *= 2) {
    Transfer transfer(group_, "broadcast");
    if (place < have && place + have < size) transfer.send(x.data, x.bytes(), rank_at(place + have));
    if (place >= have && place < 2 * have) transfer.receive(x.data, x.bytes(), rank_at(place - have));
    transfer.wait();
  }
}

Pending MpiCommunicator::start_exchange(const Stream& stream, const Tensor& send, std::int64_t to,
                                        const Tensor& receive, std::int64_t from) {
  check_exchange(*this, send, to, receive, from);
  check_host(send);
  check_host(receive);
  Transfer transfer(group_, "exchange");
  if (to == group_.rank) {
    copy_bytes(stream, receive.data, send.data, send.bytes());
    return {};
  }
  transfer.receive(receive.data, receive.bytes(), from);
  transfer.send(send.data, send.bytes(), to);
  return {std::make_unique<MessagesOperation>(std::move(transfer)), stream};
}

std::vector<std::string> MpiCommunicator::all_gather_text(const std::string& text) {
  const std::int64_t counted = group_.bytes_sent;
  const auto size = static_cast<std::size_t>(group_.size);
  std::vector<std::int64_t> length(size);
  const auto own = static_cast<std::int64_t>(text.size());
  {
    Transfer transfer(group_, "all_gather_text");
    for_peers(group_, [&](std::int64_t peer) {
      transfer.receive(&length[static_cast<std::size_t>(peer)], sizeof own, peer);
      transfer.send(&own, sizeof own, peer);
    });
    transfer.wait();
  }
  std::vector<std::string> texts(size);
  texts[static_cast<std::size_t>(group_.rank)] = text;
  Transfer transfer(group_, "all_gather_text");
  for_peers(group_, [&](std::int64_t peer) {
    const auto p = static_cast<std::size_t>(peer);
    texts[p].resize(static_cast<std::size_t>(length[p]));
    transfer.receive(texts[p].data(), length[p], peer);
    transfer.send(text.data(), own, peer);
  });
  transfer.wait();
  group_.bytes_sent = counted;  // only tensors count
  return texts;
}

void MpiCommunicator::barrier() {
  const std::int64_t counted = group_.bytes_sent;
  std::vector<char> come(static_cast<std::size_t>(group_.size));
  Transfer transfer(group_, "barrier");
  for_peers(group_, [&](std::int64_t peer) {
    transfer.receive(&come[static_cast<std::size_t>(peer)], 1, peer);
    transfer.send(&come[static_cast<std::size_t>(group_.rank)], 1, peer);
  });
  transfer.wait();
  group_.bytes_sent = counted;
}

void MpiCommunicator::await(const char* operation, FunctionRef<bool()> done) {
  wait_until(group_, operation, done, [&] {
    std::set<std::int64_t> others;
    for (std::int64_t r = 0; r < group_.size; ++r)
      if (r != group_.rank) others.insert(r);
    return others;
  });
}

std::unique_ptr<Communicator> MpiCommunicator::split(std::int64_t color, std::int64_t key,
                                                     const std::string& name) {
  barrier();  // MPI_Comm_split has no deadline: a rank that does not come is found out here
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(group_.comm, static_cast<int>(color), static_cast<int>(key), &part),
            "MPI_Comm_split");
  return std::make_unique<MpiCommunicator>(*group_.world, part, name);
}

// The first of the launchers' variables that is set.
const char* launcher_variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != 0) return value;
  return nullptr;
}

bool was_launched() {
  return launcher_variable({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_ID", "SLURM_STEP_NUM_TASKS",
                            "MV2_COMM_WORLD_RANK", "MPI_LOCALRANKID", "PALS_RANKID", "FLUX_TASK_RANK"}) !=
         nullptr;
}

int launched_processes() {
  const char* text = launcher_variable({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        "MV2_COMM_WORLD_SIZE", "PALS_SIZE", "FLUX_JOB_SIZE"});
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

void start_mpi() {
  int already = 0, provided = MPI_THREAD_SINGLE, size = 0;
  MPI_Initialized(&already);
  RIPSTOP_CHECK(already == 0, "MPI is started a second time");
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw Error(ExitCode::kResources, "this MPI allows no threads in a process (MPI_THREAD_SINGLE)",
                "build ripstop with an MPI that offers MPI_THREAD_FUNNELED");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const int launched = launched_processes();
  if (size == 1 && launched > 1)
    throw Error(
        ExitCode::kResources,
        fmt::format("{} processes were started, but each is alone in its MPI world", launched),
        "start them with srun --mpi=pmix (srun --mpi=list shows what there is), or with the mpirun of "
        "the MPI that ripstop was built with");
}

// The lowest world rank on this rank's node.
std::int64_t discover_node(int rank) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  int lowest = rank;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  MPI_Comm_free(&node);
  return lowest;
}

}  // namespace

struct MpiWorld::State {
  World world;
  std::unique_ptr<Communicator> communicator;
  bool started = false;
};

MpiWorld::MpiWorld(const MpiOptions& options) : state_(std::make_unique<State>()) {
  State& state = *state_;
  RIPSTOP_CHECK(options.piece_bytes > 0 && options.piece_bytes <= std::int64_t{1} << 30, "pieces of {} bytes",
                options.piece_bytes);
  state.world.options = options;
  const std::string host = state.world.watchdog.address().host;
  if (!was_launched()) {
    state.communicator = make_self_communicator("world");
    state.world.places = {{host, 0}};
    return;
  }
  start_mpi();
  state.started = true;
  MPI_Comm everyone = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &everyone), "MPI_Comm_dup");
  state.communicator = std::make_unique<MpiCommunicator>(state.world, everyone, "world");
  Communicator& all = *state.communicator;
  const std::int64_t node = discover_node(static_cast<int>(all.rank()));
  std::vector<WatchdogAddress> addresses;
  for (const std::string& text : all.all_gather_text(state.world.watchdog.address().to_text()))
    addresses.push_back(WatchdogAddress::from_text(text));
  const std::vector<std::string> nodes = all.all_gather_text(std::to_string(node));
  for (std::size_t r = 0; r < nodes.size(); ++r)
    state.world.places.push_back({addresses[r].host, std::stoll(nodes[r])});
  std::random_device random;
  const std::string run =
      all.all_gather_text(std::to_string((std::uint64_t{random()} << 32) | random())).front();
  state.world.watchdog.connect(all.rank(), std::move(addresses), std::stoull(run));
  state.world.connected = true;
}

MpiWorld::~MpiWorld() {
  if (std::uncaught_exceptions() > 0) {
    static_cast<void>(state_.release());
    return;
  }
  if (!state_->started) return;
  state_->communicator->barrier();
  state_->communicator.reset();
  MPI_Finalize();
}

Communicator& MpiWorld::communicator() {
  return *state_->communicator;
}
const std::vector<RankHost>& MpiWorld::places() const {
  return state_->world.places;
}
std::int64_t MpiWorld::ranks_here() const {
  const std::int64_t own = places()[static_cast<std::size_t>(state_->communicator->rank())].node;
  return std::count_if(places().begin(), places().end(),
                       [&](const RankHost& place) { return place.node == own; });
}
void MpiWorld::set_step(std::int64_t step) {
  state_->world.watchdog.set_step(step);
}
void MpiWorld::set_deadline(double seconds) {
  state_->world.options.deadline_seconds = seconds;
}

std::string MpiWorld::library() const {
  if (!state_->started) return "none";
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

ExitCode MpiWorld::run(FunctionRef<ExitCode()> body) {
  try {
    return body();
  } catch (const Error& error) {
    tell_failure(error.code());
    throw;
  } catch (const std::bad_alloc&) {
    tell_failure(ExitCode::kResources);
    throw;
  } catch (const std::system_error&) {
    tell_failure(ExitCode::kStorage);
    throw;
  } catch (const std::exception&) {
    tell_failure(ExitCode::kBug);
    throw;
  }
}

void MpiWorld::tell_failure(ExitCode code) {
  if (!state_->world.connected) return;
  using std::chrono::milliseconds;
  Watchdog& watchdog = state_->world.watchdog;
  // Lower ranks speak first; who hears of an earlier failure waits for its watchdog to end it.
  std::this_thread::sleep_for(milliseconds(20 * std::min<std::int64_t>(state_->communicator->rank(), 25)));
  if (watchdog.failure_announced()) std::this_thread::sleep_for(milliseconds(5000));
  watchdog.announce_failure(code, kSecondsToEnd / 3);
}

}  // namespace ripstop
