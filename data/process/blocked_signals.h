// BlockedSignals: blocks signals in a thread, and in the threads that this thread starts meanwhile.
#pragma once
#include <csignal>
#include <span>

namespace ripstop {

/// Blocks signals in the thread that constructs the object, until the object is destroyed on the same thread.
/// A thread that is started meanwhile inherits the blocked signals and keeps them blocked. A signal that
/// every thread of the process blocks stays pending.
class BlockedSignals {
 public:
  /// Blocks all signals except those of the thread's own faults, such as SIGSEGV: while such a signal is
  /// blocked, a fault ends the process without calling the handler.
  BlockedSignals();
  /// Blocks `signals` in addition to those that are blocked already.
  explicit BlockedSignals(std::span<const int> signals);
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

/// Unblocks `signals` in the calling thread.
void unblock_signals(std::span<const int> signals);

}  // namespace ripstop
