#pragma once
#include <filesystem>
#include <optional>

#include "train/machine/energy.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The last account in a log; nullopt if it has none.
std::optional<RunAccount> last_account(const MetricsLog& log);

/// Keeps the account of a run. Each rank reads its share of the counters, and rank 0 has the account.
class AccountWatch {
 public:
  /// Begins to count. `world` must outlive this object. Collective.
  AccountWatch(MpiWorld& world, const Device& device, const std::filesystem::path& powercap);

  /// Goes on from the account of earlier starts in metrics.jsonl, which may be absent. Call it on rank 0
  /// before the lines of steps that are made again are removed. `tokens`: CheckpointState::tokens of this
  /// start. `begins`: the run has no checkpoint yet. Throws like read_log_ends.
  void resume(const std::filesystem::path& log, int64_t tokens, bool begins);

  /// Reads the counters of all ranks. Collective.
  void gather();
  /// Call it after each step. Calls gather() about every ten seconds, after the same step on all ranks.
  /// Collective.
  void after_step();

  /// The account up to now; with several ranks its energy is of the last gather(). nullopt if the account of
  /// earlier starts is lost. `tokens`: CheckpointState::tokens. On rank 0.
  std::optional<RunAccount> now(int64_t tokens);
  /// Same as now() if the last after_step() has read the counters; else nullopt.
  std::optional<RunAccount> if_read(int64_t tokens) { return is_read_ ? now(tokens) : std::nullopt; }

 private:
  Communicator& world_;
  const bool has_gpus_;
  EnergyMeter meter_;
  double nodes_ = 0;
  Energy joules_;                         ///< energy of all ranks in this start, by the last gather()
  double seconds_ = 0;                    ///< rank 0's time from the construction to that gather()
  int64_t steps_ = 0, window_steps_ = 1;  ///< steps since the last gather(), and from it to the next
  bool is_read_ = false;
  std::optional<RunAccount> before_;  ///< account of earlier starts; nullopt: lost
  int64_t first_tokens_ = 0;          ///< tokens of the checkpoint with which run.continue_from began the run
};

}  // namespace ripstop
