// StopSignal: turns the signals that end a process into a stop request.
#pragma once
#include <atomic>
#include <optional>
#include <thread>

#include "data/process/blocked_signals.h"

namespace ripstop {

/// The work of the process after a stop request. Decides how a second Ctrl-C ends it.
enum class StopFor {
  kCheckpoint,  ///< at once, with code 75
  kCleanUp,     ///< at once, by SIGINT
};

/// Handles SIGTERM, SIGINT, SIGUSR1 and SIGHUP while it lives: the first one is remembered as a stop request.
/// A SIGINT more than a second after the first SIGINT (a second Ctrl-C) ends the process at once; other
/// repetitions are ignored. The first SIGINT ends nothing, whatever came before: the person who types it may
/// not know of another request. If standard error is a terminal, kCheckpoint answers a SIGINT there in a
/// line. A SIGHUP that is ignored (nohup) stays ignored. At most one object at a time.
///
/// A thread of its own takes the signals. Make the object before other threads: its thread, and all that it
/// starts from then on, take none. oneDNN's float32 products for processors without AVX-512 point the stack
/// pointer into memory from the allocator (`mov(rsp, ARG_WS)` in its src/cpu/x64/gemm/f32/
/// jit_avx_gemm_f32.cpp), and the frame of a handler would overwrite the memory before it.
class StopSignal {
 public:
  explicit StopSignal(StopFor purpose);
  /// Restores the default actions. After a request the signals are ignored instead: one that is repeated
  /// while the process ends does not change its exit code.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether a stop was requested on this rank.
  bool requested() const;
  /// Ends the process by the signal that came first, so that the shell sees that it was killed by it. Call it
  /// after the clean-up. Returns only if no signal has come.
  void end_process() const;

 private:
  std::atomic<bool> ended_ = false;
  std::thread listener_;                   ///< takes the signals; none if the system gives no more threads
  std::optional<BlockedSignals> blocked_;  ///< here, while another thread listens
};

/// While it lives, a stop request ends the process at once with code 75, and so does a request before it: for
/// a wait that may have no end, such as for the writer of a pipe. At most one object at a time.
class StopEndsProcess {
 public:
  explicit StopEndsProcess(const StopSignal& stop);
  ~StopEndsProcess();
  StopEndsProcess(const StopEndsProcess&) = delete;
  StopEndsProcess& operator=(const StopEndsProcess&) = delete;
};

}  // namespace ripstop
