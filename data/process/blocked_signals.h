#pragma once
#include <csignal>
#include <span>

namespace ripstop {

/// Blocks signals in the constructing thread until the destructor runs there. A thread that is started
/// meanwhile keeps them blocked. A signal that every thread blocks stays pending.
class BlockedSignals {
 public:
  /// Blocks all signals except fault signals, such as SIGSEGV: a blocked fault signal would end the process
  /// without calling its handler.
  BlockedSignals();
  /// Blocks `signals` in addition to those already blocked.
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
