// BlockedSignals: keeps signals from the thread that holds it, and from the threads that it starts meanwhile.
#pragma once
#include <csignal>
#include <span>

namespace ripstop {

/// While it lives, the thread that made it takes fewer signals. A signal that no thread takes stays pending.
/// A thread inherits what is blocked where it is started, so one that is started meanwhile keeps it for
/// good. Destroy it on the thread that made it.
class BlockedSignals {
 public:
  /// Blocks all signals but those that a thread's own faults send: such a signal ends the process before any
  /// handler can tell why if it is blocked.
  BlockedSignals();
  /// Blocks `signals`, beside those that are blocked.
  explicit BlockedSignals(std::span<const int> signals);
  /// Blocks what was blocked before.
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

/// Lets the calling thread take `signals` from now on.
void unblock_signals(std::span<const int> signals);

}  // namespace ripstop
