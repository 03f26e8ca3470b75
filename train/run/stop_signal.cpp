#include "train/run/stop_signal.h"

#include <unistd.h>

#include <csignal>

#include "model/core/error.h"

namespace ripstop {
namespace {

// Global, because a signal handler gets no argument of ours.
volatile std::sig_atomic_t signals_seen = 0;

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};

// `timeout`, launchers and job scripts send one request twice: to the process and to its group. So a second
// SIGTERM or SIGUSR1 must not prevent the checkpoint that the first one requested. _exit is safe in a
// handler.
void remember(int signal) {
  if (signals_seen > 0 && signal == SIGINT) _exit(static_cast<int>(ExitCode::kRequeue));
  signals_seen = 1;
}

}  // namespace

StopSignal::StopSignal() {
  signals_seen = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

StopSignal::~StopSignal() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

bool StopSignal::requested() const {
  return signals_seen > 0;
}

}  // namespace ripstop
