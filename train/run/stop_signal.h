#pragma once
#include <atomic>
#include <optional>
#include <thread>

#include "data/process/blocked_signals.h"

namespace ripstop {

/// The work after a stop request, and how a second Ctrl-C ends the process at once.
enum class StopFor {
  kCheckpoint,  ///< saves a checkpoint; a second Ctrl-C ends the process with code 75
  kCleanUp,     ///< cleans up; a second Ctrl-C ends the process by SIGINT
};

/// Turns SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGXCPU into a stop request while it lives. Another SIGINT, a
/// second or more after the first SIGINT, ends the process at once; other repetitions are ignored. The
/// first SIGINT only asks, even after other signals: the person at the keyboard may not know of those. With
/// kCheckpoint, if standard error is a terminal, a line answers a SIGINT. An ignored SIGHUP (nohup) stays
/// ignored. At most one object at a time.
///
/// A thread of the object handles the signals, because a handler's frame could overwrite heap memory of
/// oneDNN: its float32 products for processors without AVX-512 point the stack pointer there (`mov(rsp,
/// ARG_WS)` in src/cpu/x64/gemm/f32/jit_avx_gemm_f32.cpp). Make the object before other threads: the calling
/// thread, and all threads started later, block the signals.
class StopSignal {
 public:
  explicit StopSignal(StopFor purpose);
  /// Restores the default actions. After a request the signals are ignored instead, so that a repeated signal
  /// does not change the exit code.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether a stop was requested on this rank.
  bool requested() const;
  /// Ends the process by the first signal, so that shells and launchers see it. Returns if no signal came.
  /// Call it after the clean-up.
  void end_process() const;

 private:
  std::atomic<bool> ended_ = false;
  std::thread listener_;                   ///< handles the signals; not running if the system refused it
  std::optional<BlockedSignals> blocked_;  ///< blocks the signals in the thread that made the object
};

/// While this object lives, a stop request, also an earlier one, ends the process at once with code 75. Use
/// it for waits without end, such as for the writer of a pipe. At most one object at a time.
class StopEndsProcess {
 public:
  explicit StopEndsProcess(const StopSignal& stop);
  ~StopEndsProcess();
  StopEndsProcess(const StopEndsProcess&) = delete;
  StopEndsProcess& operator=(const StopEndsProcess&) = delete;
};

}  // namespace ripstop
