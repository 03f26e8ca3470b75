#include "train/run/stop_signal.h"

#include <unistd.h>

#include <array>
#include <csignal>

#include "model/core/error.h"

namespace ripstop {
namespace {

// Global, because a signal handler gets no argument of ours.
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t second_interrupt_requeues = 0;

// SIGUSR1 is Slurm's warning before the time limit, and what slurm/launch.sh passes on. SIGHUP is a closed
// terminal.
constexpr std::array kSignals = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

// `timeout`, launchers and job scripts send one request twice: to the process and to its group. So a second
// SIGTERM or SIGUSR1 must not prevent the checkpoint or the clean-up that the first one requested. _exit,
// write, signal and raise are safe in a handler.
void remember(int signal) {
  if (first_signal == 0) {
    first_signal = signal;
    return;
  }
  if (signal != SIGINT) return;
  // A live line may be on the terminal: what comes next, as the shell's prompt, begins on a line of its own.
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, "\n", 1);
  if (second_interrupt_requeues != 0) _exit(static_cast<int>(ExitCode::kRequeue));
  std::signal(SIGINT, SIG_DFL);
  raise(SIGINT);  // blocked inside this handler: it ends the process on return
}

}  // namespace

StopSignal::StopSignal(StopFor purpose) {
  first_signal = 0;
  second_interrupt_requeues = purpose == StopFor::kCheckpoint ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = remember;
  // System calls under way go on, so that no read fails because of a signal.
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) {
    struct sigaction before {};
    // nohup ignores SIGHUP for its program: it stays ignored.
    const bool is_ignored =
        signal == SIGHUP && sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!is_ignored) sigaction(signal, &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  // Signals that are not watched keep their action: it may be one that was set outside, as by nohup.
  for (const int signal : kSignals) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == remember)
      std::signal(signal, SIG_DFL);
  }
}

bool StopSignal::requested() const {
  return first_signal != 0;
}

void StopSignal::end_process() const {
  if (first_signal == 0) return;
  // By the signal itself and not by an exit code: shells and launchers then see what happened.
  std::signal(first_signal, SIG_DFL);
  raise(first_signal);
}

}  // namespace ripstop
