#include "parallel/mpi_transfer.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "parallel/rank_names.h"

namespace ripstop::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsToAsk = 2;  // the longest wait for the states of all ranks

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::vector<std::string> hosts_of(const World& world) {
  std::vector<std::string> hosts;
  for (const RankHost& place : world.places) hosts.push_back(place.host);
  return hosts;
}

// Describes the group's ranks in `missing`. If the watchdogs are not connected, only names them: "no data
// from rank 3 (node07)".
std::string name_missing(const Group& group, const std::set<int64_t>& missing) {
  std::vector<int64_t> ranks;
  for (const int64_t r : missing) ranks.push_back(group.world_rank[static_cast<size_t>(r)]);
  std::sort(ranks.begin(), ranks.end());
  World& world = *group.world;
  std::string text = world.connected ? describe_missing(world, ranks) : "";
  return text.empty() ? "no data from " + ranks_and_hosts(ranks, hosts_of(world)) : text;
}

// Whether the main thread of any rank waits for storage.
bool any_waits_for_storage(World& world) {
  if (!world.connected) return false;
  std::vector<int64_t> all(world.places.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  const std::vector<RankState> states = world.watchdog.ask(all, kSecondsToAsk);
  return std::any_of(states.begin(), states.end(),
                     [](const RankState& rank) { return rank.waits_for_storage; });
}

// Adds its lifetime to the group's waits. Even a call that only posts or tests may wait: Open MPI gives the
// core away if there are more ranks than cores, and the progress thread may hold the lock.
class CountedWait {
 public:
  explicit CountedWait(Group& group) : group_(group), counted_(group.seconds_waited) {}
  // Overwrites the time that CountedWaits inside this one have added.
  ~CountedWait() { group_.seconds_waited = counted_ + seconds_between(begin_, Clock::now()); }
  CountedWait(const CountedWait&) = delete;
  CountedWait& operator=(const CountedWait&) = delete;

 private:
  Group& group_;
  double counted_;
  Clock::time_point begin_ = Clock::now();
};

// Gives the core to other processes for a moment, because there may be more ranks than cores.
void rest(double waited) {
  if (waited < 1e-3)
    sched_yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(waited < 1 ? 20 : 200));
}

}  // namespace

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail(ExitCode::kCommunication, "{} failed: {}", call, std::string(text, static_cast<size_t>(length)));
}

std::string describe_missing(World& world, const std::vector<int64_t>& waited_for) {
  constexpr int kNamed = 4;  // answering ranks that a message names
  // Name silent ranks first, because ranks that answer may be waiting for them; then ranks inside no
  // operation, because the others may be waiting for those.
  std::vector<int64_t> all(world.places.size()), silent;
  std::iota(all.begin(), all.end(), int64_t{0});
  const std::vector<std::string> hosts = hosts_of(world);
  std::vector<RankState> states = world.watchdog.ask(all, kSecondsToAsk);
  std::ranges::stable_partition(states, [](const RankState& state) { return !state.inside; });
  std::string busy;
  int named = 0;
  for (const RankState& state : states) {
    const bool counts = !waited_for.empty() &&
                        (!state.inside || std::ranges::find(waited_for, state.rank) != waited_for.end());
    if (!state.answers)
      silent.push_back(state.rank);
    else if (counts && named++ < kNamed)
      busy += ", " + state.describe(hosts[static_cast<size_t>(state.rank)]);
  }
  if (silent.empty()) return busy.empty() ? "" : busy.substr(2);
  return fmt::format("{} {} not answer{}", ranks_and_hosts(silent, hosts), silent.size() == 1 ? "does" : "do",
                     busy);
}

void wait_until(Group& group, const char* operation, FunctionRef<bool()> done,
                FunctionRef<std::set<int64_t>()> missing) {
  const CountedWait counted(group);
  // Most transfers have arrived by now and need no watchdog.
  if (done()) return;
  World& world = *group.world;
  std::optional<RecordedRange> range;
  if (world.recorder != nullptr)
    range.emplace(world.recorder, fmt::format("wait {} {}", group.name, operation));
  world.watchdog.begin_operation(operation, group.name);
  // Guard `done`, too, because on a broken network a call of MPI inside it may hang.
  constexpr double kSecondsToDescribe = 2 * kSecondsToAsk + 3;
  const std::string what = fmt::format("{} on {}", operation, group.name);
  const GuardedCall guard(world, what, kSecondsToDescribe);
  Clock::time_point before = Clock::now();
  double waited = 0, deadline = world.options.deadline_seconds;
  while (!done()) {
    const Clock::time_point now = Clock::now();
    // A gap above a second means that this process was suspended. Other ranks are not to blame for that time.
    waited += std::min(seconds_between(before, now), 1.0);
    before = now;
    if (waited > deadline && deadline < world.storage_seconds && any_waits_for_storage(world)) {
      deadline = world.storage_seconds;
      world.watchdog.guard(what, deadline + kSecondsToDescribe);
    } else if (waited > deadline) {
      throw Error(
          ExitCode::kCommunication,
          fmt::format("{} on {} ({} ranks) at {} waited {:.0f} s: {}", operation, group.name, group.size,
                      world.watchdog.place().to_text(), waited, name_missing(group, missing())),
          "see that rank's output and its node; run the same command again to go on from the last "
          "checkpoint");
    }
    rest(waited);
  }
  world.watchdog.end_operation();
}

Transfer::Transfer(Group& group, const char* operation) : Transfer(group, operation, group.sequence) {
  // The tag separates the messages of transfers under way.
  group.sequence = (group.sequence + 1) % kMessageTag;
}

Transfer::Transfer(Group& group, const char* operation, int tag)
    : group_(&group), operation_(operation), tag_(tag), messages_(std::make_unique<Messages>()) {
  // Record the operation for errors: a rank that computes after this transfer "is busy after" it.
  group.world->watchdog.begin_operation(operation, group.name);
  group.world->watchdog.end_operation();
}

Transfer::~Transfer() {
  if (messages_ == nullptr) return;
  end_range();
  ProgressThread& progress = group_->world->progress;
  const std::lock_guard lock(progress.calls());
  progress.forget(*messages_);
}

template <class Post>
void Transfer::post_pieces(int64_t bytes, int64_t peer, Post post) {
  RangeRecorder* const recorder = group_->world->recorder;
  if (recorder_ == nullptr && recorder != nullptr && recorder->is_on()) {
    recorder_ = recorder;
    track_ = recorder->begin(group_->name, fmt::format("{} {}", group_->name, operation_));
  }
  const CountedWait counted(*group_);
  ProgressThread& progress = group_->world->progress;
  const std::lock_guard lock(progress.calls());
  progress.forget(*messages_);  // the thread must not see the vector grow
  // MPI counts bytes in an int.
  const int64_t longest = group_->world->options.piece_bytes;
  for (int64_t at = 0; at < bytes; at += longest) {
    MPI_Request request = MPI_REQUEST_NULL;
    post(at, static_cast<int>(std::min(longest, bytes - at)), &request);
    messages_->requests.push_back(request);
    messages_->peers.push_back(peer);
  }
  progress.watch(*messages_);
}

void Transfer::send(const void* data, int64_t bytes, int64_t to) {
  post_pieces(bytes, to, [&](int64_t at, int count, MPI_Request* request) {
    group_->bytes_sent += count;
    sent_bytes_ += count;
    check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + at, count, MPI_BYTE, static_cast<int>(to), tag_,
                        group_->comm, request),
              "MPI_Isend");
  });
}

void Transfer::receive(void* data, int64_t bytes, int64_t from) {
  post_pieces(bytes, from, [&](int64_t at, int count, MPI_Request* request) {
    check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + at, count, MPI_BYTE, static_cast<int>(from), tag_,
                        group_->comm, request),
              "MPI_Irecv");
  });
}

bool Transfer::test() {
  const CountedWait counted(*group_);
  const std::lock_guard lock(group_->world->progress.calls());
  check_mpi(messages_->error, "MPI_Testall");
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(messages_->requests.size()), messages_->requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return done != 0;
}

void Transfer::wait() {
  wait_until(
      *group_, operation_, [&] { return test(); }, [&] { return missing(); });
  end_range();
}

void Transfer::end_range() {
  if (recorder_ != nullptr) std::exchange(recorder_, nullptr)->end(track_, sent_bytes_);
}

std::set<int64_t> Transfer::missing() {
  const std::lock_guard lock(group_->world->progress.calls());
  std::vector<MPI_Request>& requests = messages_->requests;
  std::set<int64_t> ranks;
  std::vector<int> index(requests.size());
  int count = 0;
  MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, index.data(), MPI_STATUSES_IGNORE);
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i] != MPI_REQUEST_NULL) ranks.insert(messages_->peers[i]);
  return ranks;
}

}  // namespace ripstop::mpi
