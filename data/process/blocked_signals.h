// BlockedSignals: blocks signals in a thread, and in the threads that it starts meanwhile.
#pragma once
#include <csignal>
#include <span>

namespace ripstop {

/// Blocks signals in the thread that constructs it, until its destruction on the same thread. A thread that
/// is started meanwhile inherits the blocked signals and keeps them. A signal that every thread blocks stays
/// pending.
class BlockedSignals {
 public:
  /// Blocks all signals except SIGSEGV and others of a thread's own faults: while it is blocked, a fault ends
  /// the process without its handler.
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
