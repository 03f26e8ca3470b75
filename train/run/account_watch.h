#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>

#include "data/files/io.h"
#include "train/machine/energy.h"
#include "train/report/metrics.h"
#include "train/run/speed_watch.h"

namespace ripstop {

/// The last account in a log; nullopt if it has none.
std::optional<RunAccount> last_account(const MetricsLog& log);

/// Keeps the account of a run. Each rank reads its share of the counters; rank 0 adds them up.
class AccountWatch {
 public:
  /// Begins to count. `world` must outlive this object. Collective.
  AccountWatch(MpiWorld& world, const Device& device, const std::filesystem::path& powercap);

  /// Goes on from the account of earlier starts in metrics.jsonl, which may be absent. Call it on rank 0
  /// before the lines of steps that are made again are removed. `tokens`: CheckpointState::tokens of this
  /// start. `begins`: the run has no checkpoint yet. Throws like read_log_ends.
  void resume(const std::filesystem::path& log, int64_t tokens, bool begins);

  /// The energy of this rank's counters, for RankWork.
  Energy of_rank() const { return meter_.last(); }
  /// Takes the energy of all ranks as of the end of a window.
  void take(std::span<const RankWork> window);
  /// Reads the counters of all ranks. Collective.
  void gather();

  /// The account up to now; with several ranks its energy is of the last take() or gather(). nullopt if the
  /// account of earlier starts is lost. `tokens`: CheckpointState::tokens. On rank 0.
  std::optional<RunAccount> now(int64_t tokens);
  /// Same as now(), once every ten seconds; else nullopt: so much of its account a killed start loses.
  std::optional<RunAccount> if_due(int64_t tokens);

 private:
  using Clock = std::chrono::steady_clock;

  Communicator& world_;
  const bool has_gpus_;
  EnergyMeter meter_;
  double nodes_ = 0;
  Energy joules_;                     ///< of all ranks in this start
  std::optional<RunAccount> before_;  ///< of the starts before this one
  int64_t first_tokens_ = 0;          ///< tokens of the checkpoint with which run.continue_from began the run
  Clock::time_point told_ = Clock::now();
};

}  // namespace ripstop
