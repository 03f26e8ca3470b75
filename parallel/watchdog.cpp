#include "parallel/watchdog.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kMagic = 0x52697073;
constexpr size_t kTextBytes = 64;

enum class Kind : uint32_t { kQuestion, kAnswer, kFailure, kConfirmed };

// One datagram. All ranks run the same binary on the same kind of machine (checked at start-up).
struct Message {
  uint32_t magic = kMagic;
  Kind kind = Kind::kQuestion;
  uint64_t run = 0;
  int64_t from = 0;
  int64_t step = -1;
  int32_t code = 0;
  int32_t inside = 0;
  char operation[kTextBytes] = {};
};

std::vector<std::string> own_addresses() {
  std::vector<std::string> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      char text[INET_ADDRSTRLEN] = "";
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) result.emplace_back(text);
    }
    freeifaddrs(list);
  }
  result.emplace_back("127.0.0.1");
  return result;
}

std::string own_host() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "localhost";
  return name.data();
}

// Where to send what is meant for the process at `address`: loopback reaches the own host alone.
std::vector<sockaddr_in> destinations(const WatchdogAddress& address, const std::string& host) {
  std::vector<sockaddr_in> result;
  if (address.port == 0) return result;
  for (const std::string& ip : address.ip) {
    if ((ip == "127.0.0.1") != (address.host == host)) continue;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(address.port));
    if (inet_pton(AF_INET, ip.c_str(), &to.sin_addr) == 1) result.push_back(to);
  }
  return result;
}

}  // namespace

std::string WatchdogAddress::to_text() const {
  std::string text = fmt::format("{} {}", port, host);
  for (const std::string& address : ip) text += " " + address;
  return text;
}

WatchdogAddress WatchdogAddress::from_text(const std::string& text) {
  WatchdogAddress address;
  std::istringstream words(text);
  if (!(words >> address.port >> address.host) || address.port < 0 || address.port > 65535)
    fail(ExitCode::kCommunication, "a rank gave '{}' as its watchdog's address", text);
  for (std::string ip; words >> ip;) address.ip.push_back(ip);
  return address;
}

std::string RankState::describe(const std::string& host) const {
  const std::string who = fmt::format("rank {} ({})", rank, host);
  if (!answers) return who + " does not answer";
  const std::string at = step < 0 ? "before the first step" : fmt::format("step {}", step);
  if (inside) return fmt::format("{} is in {}, {}", who, operation, at);
  if (operation.empty()) return fmt::format("{} is busy, {}", who, at);
  return fmt::format("{} is busy after {}, {}", who, operation, at);
}

struct Watchdog::State {
  double seconds_to_end = 0;
  WatchdogAddress address;
  int socket = -1;
  int wake = -1;  // written once, when the thread is to end
  pid_t parent = 0;
  std::thread thread;
  std::atomic<bool> ends{false};
  std::atomic<int> failure{0};       // the code that another rank announced
  std::atomic<bool> failing{false};  // this rank announced one itself
  Clock::time_point failed_at;       // of the thread

  std::mutex mutex;  // guards all below
  int64_t rank = -1;
  uint64_t run = 0;
  std::vector<std::vector<sockaddr_in>> peers;
  Message own;                     // what is answered
  std::vector<RankState> answers;  // to the question under way, by rank
  std::vector<bool> confirmed;     // of the failure under way, by rank

  void open();
  void listen();
  void take(const Message& message, const sockaddr_in& from);
  void send(Message message, int64_t to);
  void end_when_due();
};

void Watchdog::State::open() {
  address.host = own_host();
  address.ip = own_addresses();
  socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof any;
  if (wake < 0) fail(ExitCode::kResources, "the watchdog cannot be woken: {}", std::strerror(errno));
  if (socket < 0 || bind(socket, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&any), &length) != 0)
    return;  // port 0: not reachable
  address.port = ntohs(any.sin_port);
}

void Watchdog::State::listen() {
  while (!ends.load()) {
    pollfd ready[] = {{socket, POLLIN, 0}, {wake, POLLIN, 0}};
    ::poll(ready, 2, failure.load() != 0 ? 20 : 1000);
    for (;;) {
      Message message;
      sockaddr_in from{};
      socklen_t length = sizeof from;
      const ssize_t bytes =
          recvfrom(socket, &message, sizeof message, 0, reinterpret_cast<sockaddr*>(&from), &length);
      if (bytes < 0 && errno == ECONNREFUSED) continue;
      if (bytes < 0) break;
      if (bytes == sizeof message && message.magic == kMagic) take(message, from);
    }
    end_when_due();
  }
}

// Called from the thread: a datagram of this world, or a stranger's, which is ignored.
void Watchdog::State::take(const Message& message, const sockaddr_in& from) {
  const std::lock_guard lock(mutex);
  if (rank < 0 || message.run != run || message.from < 0 ||
      message.from >= static_cast<int64_t>(peers.size()))
    return;
  const auto sender = static_cast<size_t>(message.from);
  Message reply = own;
  switch (message.kind) {
    case Kind::kQuestion:
      reply.kind = Kind::kAnswer;
      break;
    case Kind::kFailure:
      reply.kind = Kind::kConfirmed;
      if (failure.load() == 0 && !failing.load()) {
        failed_at = Clock::now();
        failure.store(message.code);
      }
      break;
    case Kind::kAnswer:
      if (sender < answers.size())
        answers[sender] = {message.from, true, message.inside != 0, message.step,
                           std::string(message.operation, strnlen(message.operation, kTextBytes))};
      return;
    case Kind::kConfirmed:
      if (sender < confirmed.size()) confirmed[sender] = true;
      return;
  }
  sendto(socket, &reply, sizeof reply, 0, reinterpret_cast<const sockaddr*>(&from), sizeof from);
}

void Watchdog::State::send(Message message, int64_t to) {
  const std::lock_guard lock(mutex);
  message.run = run;
  message.from = rank;
  for (const sockaddr_in& peer : peers[static_cast<size_t>(to)])
    sendto(socket, &message, sizeof message, 0, reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
}

void Watchdog::State::end_when_due() {
  const std::chrono::duration<double> grace(seconds_to_end);
  if (failure.load() != 0 && Clock::now() - failed_at > grace) _exit(failure.load());
  // PR_SET_PDEATHSIG would fire when the launcher's *thread* that forked this process ends.
  const std::lock_guard lock(mutex);
  if (peers.size() > 1 && getppid() != parent) _exit(static_cast<int>(ExitCode::kCommunication));
}

Watchdog::Watchdog(double seconds_to_end) : state_(std::make_unique<State>()) {
  state_->seconds_to_end = seconds_to_end;
  state_->parent = getppid();
  state_->open();
}

Watchdog::~Watchdog() {
  state_->ends.store(true);
  const uint64_t one = 1;
  static_cast<void>(!write(state_->wake, &one, sizeof one));
  if (state_->thread.joinable()) state_->thread.join();
  if (state_->socket >= 0) close(state_->socket);
  close(state_->wake);
}

const WatchdogAddress& Watchdog::address() const {
  return state_->address;
}

void Watchdog::connect(int64_t rank, std::vector<WatchdogAddress> addresses, uint64_t run) {
  const std::lock_guard lock(state_->mutex);
  state_->rank = rank;
  state_->run = run;
  state_->own.run = run;
  state_->own.from = rank;
  for (const WatchdogAddress& address : addresses)
    state_->peers.push_back(destinations(address, state_->address.host));
  state_->thread = std::thread([state = state_.get()] { state->listen(); });
}

void Watchdog::set_step(int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->own.step = step;
}

int64_t Watchdog::step() const {
  const std::lock_guard lock(state_->mutex);
  return state_->own.step;
}

void Watchdog::begin_operation(std::string_view operation, std::string_view axis) {
  const std::lock_guard lock(state_->mutex);
  char* to = state_->own.operation;
  const auto append = [&](std::string_view text) {
    const size_t room = static_cast<size_t>(state_->own.operation + kTextBytes - 1 - to);
    const size_t bytes = std::min(room, text.size());
    to = std::copy_n(text.data(), bytes, to);
  };
  append(operation);
  append(" on ");
  append(axis);
  *to = 0;
  state_->own.inside = 1;
}

void Watchdog::end_operation() {
  const std::lock_guard lock(state_->mutex);
  state_->own.inside = 0;
}

std::vector<RankState> Watchdog::ask(const std::vector<int64_t>& ranks, double seconds) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->answers.assign(state_->peers.size(), RankState{});
    for (size_t r = 0; r < state_->answers.size(); ++r) state_->answers[r].rank = static_cast<int64_t>(r);
  }
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    std::vector<RankState> answers;
    {
      const std::lock_guard lock(state_->mutex);
      answers = state_->answers;
    }
    std::vector<RankState> result;
    bool complete = true;
    for (const int64_t rank : ranks) {
      result.push_back(answers[static_cast<size_t>(rank)]);
      if (result.back().answers) continue;
      complete = false;
      state_->send({.kind = Kind::kQuestion}, rank);
    }
    if (complete || Clock::now() > until) return result;
    std::this_thread::sleep_for(milliseconds(100));
  }
}

void Watchdog::announce_failure(ExitCode code, double seconds) {
  state_->failing.store(true);
  size_t ranks = 0;
  int64_t own = 0;
  {
    const std::lock_guard lock(state_->mutex);
    ranks = state_->peers.size();
    own = state_->rank;
    state_->confirmed.assign(ranks, false);
    if (own >= 0) state_->confirmed[static_cast<size_t>(own)] = true;
  }
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  for (bool complete = false; !complete && Clock::now() < until;) {
    std::vector<bool> confirmed;
    {
      const std::lock_guard lock(state_->mutex);
      confirmed = state_->confirmed;
    }
    complete = true;
    for (size_t r = 0; r < ranks; ++r) {
      if (confirmed[r]) continue;
      complete = false;
      state_->send({.kind = Kind::kFailure, .code = static_cast<int32_t>(code)}, static_cast<int64_t>(r));
    }
    if (!complete) std::this_thread::sleep_for(milliseconds(30));
  }
}

bool Watchdog::failure_announced() const {
  return state_->failure.load() != 0;
}

}  // namespace ripstop
