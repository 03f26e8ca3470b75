#include "train/stop_signal.h"

#include <unistd.h>

#include <csignal>

#include "model/error.h"

namespace ripstop {
namespace {

// A handler can reach nothing but a global.
volatile std::sig_atomic_t signals_seen = 0;

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};

void remember(int) {
  signals_seen = signals_seen + 1;
  if (signals_seen > 1) _exit(static_cast<int>(ExitCode::kRequeue));
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

bool StopSignal::asked() const {
  return signals_seen > 0;
}

}  // namespace ripstop
