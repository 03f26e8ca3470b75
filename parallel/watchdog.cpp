#include "parallel/watchdog.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>
#include <utility>

namespace ripstop {
namespace {

using std::chrono::milliseconds;

constexpr const char* kLoopback = "127.0.0.1";
constexpr int kLookMs = 500;  // the longest pause between two calls of look_at_guard(), in ms

// All IPv4 addresses of this host, because any of its networks may lead to another node.
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
  result.emplace_back(kLoopback);
  return result;
}

// Whether the main thread is in uninterruptible sleep (the state D of proc(5)).
bool main_thread_is_in_disk_sleep() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") D ") != text.npos;
}

std::string own_host() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "localhost";
  return name.data();
}

// The socket addresses at which `host` may reach the process at `address`: the loopback address if that
// process is on `host`, else all other addresses.
std::vector<sockaddr_in> destinations(const WatchdogAddress& address, const std::string& host) {
  std::vector<sockaddr_in> result;
  if (address.port == 0) return result;
  for (const std::string& ip : address.ip) {
    if ((ip == kLoopback) != (address.host == host)) continue;
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

std::string StepPlace::to_text() const {
  if (step < 0) return "step -";
  return fmt::format("step {}{}", step,
                     micro_batch < 0 ? "" : fmt::format(", stage {}, micro-batch {}", stage, micro_batch));
}

std::string RankState::describe(const std::string& host) const {
  const std::string who = fmt::format("rank {} ({})", rank, host);
  if (!answers) return who + " does not answer";
  const std::string at = place.step < 0 ? "before the first step" : place.to_text();
  if (inside) return fmt::format("{} is in {}, {}", who, operation, at);
  if (waits_for_storage) return fmt::format("{} waits for storage that does not answer, {}", who, at);
  if (operation.empty()) return fmt::format("{} is busy, {}", who, at);
  return fmt::format("{} is busy after {}, {}", who, operation, at);
}

void Watchdog::open(Reach reach) {
  const bool is_local = reach == Reach::kHost;
  address_.ip = is_local ? std::vector<std::string>{kLoopback} : own_addresses();
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof own;
  if (socket < 0) return;
  if (bind(socket, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    close(socket);
    return;  // the port stays 0, so other ranks cannot reach this rank
  }
  address_.port = ntohs(own.sin_port);
  socket_.store(socket);
  wake();
}

void Watchdog::wake() {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
}

void Watchdog::start(bool several, Hung hung) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) fail(ExitCode::kResources, "the watchdog cannot be woken: {}", std::strerror(errno));
  hung_ = std::move(hung);
  several_ = several;
  looked_at_ = Clock::now();
  thread_ = std::thread([this] { listen(); });
}

void Watchdog::guard(const std::string& operation, double seconds) {
  const std::lock_guard lock(mutex_);
  guarded_ = operation;
  guard_seconds_ = seconds;
  guarded_for_ = 0;
}

void Watchdog::unguard() {
  const std::lock_guard lock(mutex_);
  guarded_.clear();
}

void Watchdog::listen() {
  while (!ends_.load()) {
    const int socket = socket_.load();
    pollfd ready[] = {{wake_, POLLIN, 0}, {socket, POLLIN, 0}};
    // Once a failure is announced, look more often, because this process must end soon after seconds_to_end_.
    ::poll(ready, socket < 0 ? 1 : 2, failure_.load() != 0 ? 20 : kLookMs);
    uint64_t count = 0;
    static_cast<void>(!read(wake_, &count, sizeof count));
    if (socket >= 0) receive();
    end_if_due();
    look_at_guard();
  }
}

void Watchdog::receive() {
  for (;;) {
    Message message;
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const ssize_t bytes =
        recvfrom(socket_.load(), &message, sizeof message, 0, reinterpret_cast<sockaddr*>(&from), &length);
    // The error is from an earlier datagram to a closed port. More datagrams may be waiting.
    if (bytes < 0 && errno == ECONNREFUSED) continue;
    if (bytes < 0) return;
    if (bytes == sizeof message && message.magic == kMagic) take(message, from);
  }
}

void Watchdog::look_at_guard() {
  const Clock::time_point now = Clock::now();
  // A longer gap means that this process was suspended. That time does not count.
  const double passed = std::min(std::chrono::duration<double>(now - looked_at_).count(), 1.5e-3 * kLookMs);
  looked_at_ = now;
  if (tells_ && std::chrono::duration<double>(now - hung_at_).count() > kSecondsToTell)
    _exit(static_cast<int>(ExitCode::kCommunication));
  const std::lock_guard lock(mutex_);
  if (guarded_.empty() || tells_) return;
  guarded_for_ += passed;
  if (guarded_for_ <= guard_seconds_) return;
  tells_ = true;
  hung_at_ = now;
  // Run hung_ on a thread of its own, because hung_ waits for answers, which this thread receives, and reads
  // files, which may hang.
  std::thread(hung_, guarded_, guarded_for_).detach();
}

void Watchdog::take(const Message& message, const sockaddr_in& from) {
  const std::lock_guard lock(mutex_);
  // Ignore messages for an ended watchdog of another run, which had this port.
  if (rank_ < 0 || message.run != own_.run || message.from < 0 ||
      message.from >= static_cast<int64_t>(peers_.size()))
    return;
  const auto sender = static_cast<size_t>(message.from);
  Message reply = own_;
  switch (message.kind) {
    case Kind::kQuestion:
      reply.kind = Kind::kAnswer;
      if (main_thread_is_in_disk_sleep()) reply.waits_for_storage = 1;
      break;
    case Kind::kFailure:
      reply.kind = Kind::kConfirmed;
      // Keep the first announcement only. A rank that has its own failure ends by its own error.
      if (failure_.load() == 0 && !failing_.load()) {
        failed_at_ = Clock::now();
        failure_.store(message.code);
      }
      break;
    case Kind::kAnswer:
      if (sender < answers_.size())
        answers_[sender] = {
            message.from,        true,
            message.inside != 0, message.waits_for_storage != 0,
            message.place,       std::string(message.operation, strnlen(message.operation, kTextBytes))};
      return;
    case Kind::kConfirmed:
      if (sender < confirmed_.size()) confirmed_[sender] = true;
      return;
  }
  // Replies to the sender's address, which is known to work.
  sendto(socket_.load(), &reply, sizeof reply, 0, reinterpret_cast<const sockaddr*>(&from), sizeof from);
}

void Watchdog::send(Message message, int64_t to) {
  const std::lock_guard lock(mutex_);
  message.run = own_.run;
  message.from = rank_;
  // Sends to all addresses, because only some of the rank's networks may be reachable.
  for (const sockaddr_in& peer : peers_[static_cast<size_t>(to)])
    sendto(socket_.load(), &message, sizeof message, 0, reinterpret_cast<const sockaddr*>(&peer),
           sizeof peer);
}

void Watchdog::end_if_due() {
  const std::chrono::duration<double> grace(seconds_to_end_);
  // _exit skips destructors and MPI_Finalize, which would wait for the failed rank.
  if (failure_.load() != 0 && Clock::now() - failed_at_ > grace) _exit(failure_.load());
  // PR_SET_PDEATHSIG is no help: it fires when the launcher's *thread* that forked this process ends.
  if (several_ && getppid() != parent_) _exit(static_cast<int>(ExitCode::kCommunication));
}

Watchdog::Watchdog(double seconds_to_end) : seconds_to_end_(seconds_to_end), parent_(getppid()) {
  address_.host = own_host();
}

Watchdog::~Watchdog() {
  ends_.store(true);
  if (wake_ >= 0) wake();
  if (thread_.joinable()) thread_.join();
  if (socket_.load() >= 0) close(socket_.load());
  if (wake_ >= 0) close(wake_);
}

void Watchdog::connect(int64_t rank, const std::vector<WatchdogAddress>& addresses, uint64_t run) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
  own_.run = run;
  own_.from = rank;
  for (const WatchdogAddress& address : addresses) peers_.push_back(destinations(address, address_.host));
}

void Watchdog::set_place(const StepPlace& place) {
  const std::lock_guard lock(mutex_);
  own_.place = place;
}

StepPlace Watchdog::place() const {
  const std::lock_guard lock(mutex_);
  return own_.place;
}

void Watchdog::begin_operation(std::string_view operation, std::string_view axis) {
  const std::lock_guard lock(mutex_);
  char* to = own_.operation;
  const auto append = [&](std::string_view text) {
    // Truncate instead of allocating, because this function runs at every collective.
    const size_t room = static_cast<size_t>(own_.operation + kTextBytes - 1 - to);
    const size_t bytes = std::min(room, text.size());
    to = std::copy_n(text.data(), bytes, to);
  };
  append(operation);
  append(" on ");
  append(axis);
  *to = 0;
  own_.inside = 1;
}

void Watchdog::end_operation() {
  const std::lock_guard lock(mutex_);
  own_.inside = 0;
}

void Watchdog::set_waits_for_storage(bool waits) {
  const std::lock_guard lock(mutex_);
  own_.waits_for_storage = waits ? 1 : 0;
}

// Sends `message` again and again to the members of `ranks` that have not replied, because datagrams may be
// lost. Returns once all have replied or after `seconds`.
void Watchdog::repeat(const Message& message, const std::vector<int64_t>& ranks, double seconds,
                      milliseconds pause, FunctionRef<bool(size_t rank)> replied) {
  for (const auto until = Clock::now() + std::chrono::duration<double>(seconds);;) {
    std::vector<int64_t> silent;
    {
      const std::lock_guard lock(mutex_);
      std::ranges::copy_if(ranks, std::back_inserter(silent),
                           [&](int64_t rank) { return !replied(static_cast<size_t>(rank)); });
    }
    if (silent.empty() || Clock::now() > until) return;
    for (const int64_t rank : silent) send(message, rank);
    std::this_thread::sleep_for(pause);
  }
}

std::vector<RankState> Watchdog::ask(const std::vector<int64_t>& ranks, double seconds) {
  {
    const std::lock_guard lock(mutex_);
    answers_.assign(peers_.size(), RankState{});
    for (size_t r = 0; r < answers_.size(); ++r) answers_[r].rank = static_cast<int64_t>(r);
  }
  repeat({.kind = Kind::kQuestion}, ranks, seconds, milliseconds(100),
         [&](size_t rank) { return answers_[rank].answers; });
  const std::lock_guard lock(mutex_);
  std::vector<RankState> result;
  for (const int64_t rank : ranks) result.push_back(answers_[static_cast<size_t>(rank)]);
  return result;
}

void Watchdog::announce_failure(ExitCode code, double seconds) {
  // Another rank's failure must not end this rank before it prints its own error.
  failing_.store(true);
  std::vector<int64_t> ranks;
  {
    const std::lock_guard lock(mutex_);
    ranks.resize(peers_.size());
    confirmed_.assign(peers_.size(), false);
    if (rank_ >= 0) confirmed_[static_cast<size_t>(rank_)] = true;
  }
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  repeat({.kind = Kind::kFailure, .code = static_cast<int32_t>(code)}, ranks, seconds, milliseconds(30),
         [&](size_t rank) { return confirmed_[rank]; });
}

}  // namespace ripstop
