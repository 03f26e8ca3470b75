// StopSignal: turns the signals that end a process into a stop request.
#pragma once
#include <atomic>
#include <optional>
#include <thread>

#include "data/process/blocked_signals.h"

namespace ripstop {

/// The work of the process after a stop request, which decides how a second Ctrl-C ends the process at once.
enum class StopFor {
  kCheckpoint,  ///< saves a checkpoint; a second Ctrl-C ends the process with code 75
  kCleanUp,     ///< cleans up; a second Ctrl-C ends the process by SIGINT
};

/// Handles SIGTERM, SIGINT, SIGUSR1 and SIGHUP while it lives: the first signal is a stop request. A second
/// SIGINT, more than a second after the first SIGINT, ends the process at once; other repetitions are
/// ignored. The first SIGINT never ends the process, because the person who types Ctrl-C may not know of an
/// earlier request. With kCheckpoint, a SIGINT is answered by a line if standard error is a terminal. An
/// ignored SIGHUP (nohup) stays ignored. At most one object at a time.
///
/// A thread of the object handles the signals, because oneDNN's float32 products for processors without
/// AVX-512 point the stack pointer into heap memory (`mov(rsp, ARG_WS)` in its src/cpu/x64/gemm/f32/
/// jit_avx_gemm_f32.cpp): a handler's frame would overwrite the memory below. Make the object before other
/// threads: the calling thread, and all threads started later, block the signals.
class StopSignal {
 public:
  explicit StopSignal(StopFor purpose);
  /// Restores the default actions. After a request the signals are ignored instead, so that a repeated signal
  /// does not change the exit code while the process ends.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether a stop was requested on this rank.
  bool requested() const;
  /// Ends the process by the first signal, so that shells and launchers see it. Call it after the clean-up.
  /// Returns only if no signal has come.
  void end_process() const;

 private:
  std::atomic<bool> ended_ = false;
  std::thread listener_;                   ///< handles the signals; none if the system gives no more threads
  std::optional<BlockedSignals> blocked_;  ///< blocks the signals in the thread that made the object
};

/// While it lives, a stop request, also an earlier one, ends the process at once with code 75. For waits
/// without end, such as for the writer of a pipe. At most one object at a time.
class StopEndsProcess {
 public:
  explicit StopEndsProcess(const StopSignal& stop);
  ~StopEndsProcess();
  StopEndsProcess(const StopEndsProcess&) = delete;
  StopEndsProcess& operator=(const StopEndsProcess&) = delete;
};

}  // namespace ripstop
