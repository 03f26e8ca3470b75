#include "data/process/blocked_signals.h"

#include <pthread.h>

namespace ripstop {
namespace {

sigset_t set_of(std::span<const int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

BlockedSignals::BlockedSignals() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&set, fault);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BlockedSignals::BlockedSignals(std::span<const int> signals) {
  const sigset_t set = set_of(signals);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void unblock_signals(std::span<const int> signals) {
  const sigset_t set = set_of(signals);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace ripstop
