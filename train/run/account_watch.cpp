#include "train/run/account_watch.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/device/cuda_machine.h"
#include "parallel/agreement.h"

namespace ripstop {
namespace {

std::vector<std::string> gpus_of(const Device& device) {
  const std::vector<CudaGpu> gpus = look_at_cuda().gpus;
  const auto index = static_cast<size_t>(device.index);
  if (device.kind != DeviceKind::kCuda || index >= gpus.size()) return {};
  return {gpus[index].bus};
}

// The sum in kWh of `before`, in kWh, and `joules`; nullopt if one of them is not known.
std::optional<double> plus_joules(std::optional<double> before, double joules) {
  if (!before || std::isnan(joules)) return std::nullopt;
  return *before + joules / 3.6e6;
}

}  // namespace

std::optional<RunAccount> last_account(const MetricsLog& log) {
  std::optional<RunAccount> last;
  // Accounts only grow, so the largest is the last.
  const auto look_at = [&](const auto& events) {
    for (const auto& event : events)
      if (event.account && (!last || event.account->node_hours >= last->node_hours)) last = event.account;
  };
  look_at(log.starts);
  look_at(log.steps);
  look_at(log.ends);
  return last;
}

AccountWatch::AccountWatch(MpiWorld& world, const Device& device, const std::filesystem::path& powercap)
    : world_(world.communicator()),
      has_gpus_(device.kind == DeviceKind::kCuda),
      meter_(posix_io(), powercap, energy_share(world, gpus_of(device))) {
  for (size_t rank = 0; rank < world.places().size(); ++rank)
    nodes_ += world.places()[rank].node == static_cast<int64_t>(rank) ? 1 : 0;
}

void AccountWatch::resume(const std::filesystem::path& log, int64_t tokens, bool begins) {
  const MetricsLog earlier = std::filesystem::exists(log) ? read_log_ends(log, {}) : MetricsLog();
  before_ = last_account(earlier);
  if (!earlier.starts.empty()) first_tokens_ = earlier.starts.front().tokens_seen;
  if (!earlier.starts.empty() || !begins) return;
  first_tokens_ = tokens;
  before_ = RunAccount{.kwh = 0, .gpu_kwh = has_gpus_ ? std::optional(0.0) : std::nullopt};
}

void AccountWatch::gather() {
  struct Own {
    Energy joules;
    double seconds;
  };
  const std::vector<Own> ranks = of_all_ranks(world_, Own{meter_.read(), meter_.seconds()});
  joules_ = {};
  for (const Own& rank : ranks) joules_ += rank.joules;
  seconds_ = ranks.front().seconds;
}

void AccountWatch::after_step() {
  constexpr double kEverySeconds = 10, kMostSteps = 1e6;
  is_read_ = ++steps_ >= window_steps_;
  if (!is_read_) return;
  const double before = seconds_;
  gather();
  const double a_step = std::max(seconds_ - before, 1e-6) / static_cast<double>(steps_);
  window_steps_ = static_cast<int64_t>(std::clamp(kEverySeconds / a_step, 1.0, kMostSteps));
  steps_ = 0;
}

std::optional<RunAccount> AccountWatch::now(int64_t tokens) {
  if (!before_) return std::nullopt;
  if (world_.size() == 1) joules_ = meter_.read();
  return RunAccount{.node_hours = before_->node_hours + nodes_ * meter_.seconds() / 3600,
                    .tokens = tokens - first_tokens_,
                    .kwh = plus_joules(before_->kwh, joules_.total()),
                    .gpu_kwh = has_gpus_ ? plus_joules(before_->gpu_kwh, joules_.gpus) : std::nullopt};
}

}  // namespace ripstop
