#include "train/run/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <system_error>
#include <thread>

#include "model/core/error.h"
#include "train/report/terminal.h"

namespace ripstop {
namespace {

// Globals, because a signal handler has no other way to get data.
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t second_interrupt_requeues = 0;
volatile std::sig_atomic_t any_request_ends = 0;
enum Answer { kSilent, kLine, kLineOverLiveLine };
volatile std::sig_atomic_t answer_to_interrupt = kSilent;
std::atomic<int64_t> first_interrupt_ms = 0;  // 0: no SIGINT yet
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler writes it");

// SIGINTs within this time count as one Ctrl-C.
constexpr int64_t kOneRequestMs = 1000;

// SIGUSR1: Slurm's warning before the time limit, and what slurm/launch.sh sends to the ranks to stop them.
// SIGHUP: a closed terminal. SIGXCPU: the soft limit of processor time, `ulimit -S -t`.
constexpr std::array kSignals = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXCPU};

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

// Answers to a Ctrl-C at a terminal, because the step under way may take long. All begin with kClear.
constexpr std::string_view kClear = "\r\x1b[K";
constexpr std::string_view kFirstText = "\r\x1b[Kstop requested; Ctrl-C again ends at once\n";
constexpr std::string_view kSecondText =
    "\r\x1b[Kended at once; the same command goes on from the last checkpoint\n";

void answer_interrupt(std::string_view text) {
  if (answer_to_interrupt == kSilent) return;
  if (answer_to_interrupt == kLine) text.remove_prefix(kClear.size());
  const int error = errno;  // errno of the code that the signal interrupts
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  errno = error;
}

// The handler. `timeout`, launchers and job scripts send one request twice, to the process and to its group.
// So a second SIGTERM or SIGUSR1, or a SIGINT within a second, must not prevent the checkpoint or clean-up.
// _exit, write, clock_gettime, signal and raise are safe in a handler.
void remember(int signal) {
  if (first_signal == 0) first_signal = signal;
  if (any_request_ends != 0) _exit(static_cast<int>(ExitCode::kRequeue));
  if (signal != SIGINT) return;
  int64_t before = 0;
  if (first_interrupt_ms.compare_exchange_strong(before, now_ms())) {
    answer_interrupt(kFirstText);
    return;
  }
  if (now_ms() - before < kOneRequestMs) return;
  answer_interrupt(kSecondText);
  if (answer_to_interrupt == kSilent) {
    // Begins a new line for the shell, because a live line may be on the terminal.
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, "\n", 1);
  }
  if (second_interrupt_requeues != 0) _exit(static_cast<int>(ExitCode::kRequeue));
  std::signal(SIGINT, SIG_DFL);
  raise(SIGINT);  // SIGINT is blocked in this handler, so it ends the process on return
}

}  // namespace

StopSignal::StopSignal(StopFor purpose) {
  first_signal = 0;
  first_interrupt_ms = 0;
  second_interrupt_requeues = purpose == StopFor::kCheckpoint ? 1 : 0;
  const Terminal terminal = terminal_of(stderr);
  answer_to_interrupt = purpose != StopFor::kCheckpoint || !terminal.is_terminal ? kSilent
                        : terminal.rewrites                                      ? kLineOverLiveLine
                                                                                 : kLine;
  struct sigaction action {};
  action.sa_handler = remember;
  for (const int signal : kSignals) sigaddset(&action.sa_mask, signal);
  // SA_RESTART: interrupted reads and writes go on.
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) {
    struct sigaction before {};
    const bool is_ignored =
        signal == SIGHUP && sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!is_ignored) sigaction(signal, &action, nullptr);
  }
  try {
    {
      const BlockedSignals blocked;
      listener_ = std::thread([this] {
        unblock_signals(kSignals);
        ended_.wait(false);
      });
    }
    blocked_.emplace(kSignals);
  } catch (const std::system_error&) {
    // Without the thread, any thread may run the handler, which is safe except inside oneDNN's products (see
    // the header).
  }
}

StopSignal::~StopSignal() {
  const auto action_from_now_on = first_signal == 0 ? SIG_DFL : SIG_IGN;
  // Skips signals with another action, which nohup may have set.
  for (const int signal : kSignals) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == remember)
      std::signal(signal, action_from_now_on);
  }
  blocked_.reset();
  ended_ = true;
  ended_.notify_all();
  if (listener_.joinable()) listener_.join();
}

bool StopSignal::requested() const {
  return first_signal != 0;
}

void StopSignal::end_process() const {
  if (first_signal == 0) return;
  std::signal(first_signal, SIG_DFL);
  unblock_signals(kSignals);
  raise(first_signal);
}

StopEndsProcess::StopEndsProcess(const StopSignal& stop) {
  any_request_ends = 1;
  if (stop.requested()) _exit(static_cast<int>(ExitCode::kRequeue));
}

StopEndsProcess::~StopEndsProcess() {
  any_request_ends = 0;
}

}  // namespace ripstop
