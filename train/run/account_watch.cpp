#include "train/run/account_watch.h"

#include <cmath>
#include <vector>

#include "model/device/cuda_machine.h"
#include "parallel/agreement.h"

namespace ripstop {
namespace {

std::vector<std::string> gpus_of(const Device& device) {
  if (device.kind != DeviceKind::kCuda) return {};
  return {look_at_cuda().gpus.at(static_cast<size_t>(device.index)).bus};
}

// `before` and `joules` in kWh; nullopt if one of them is not known.
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

void AccountWatch::take(std::span<const RankWork> window) {
  joules_ = {};
  for (const RankWork& rank : window) joules_ += rank.energy;
}

void AccountWatch::gather() {
  joules_ = {};
  for (const Energy& energy : of_all_ranks(world_, meter_.read())) joules_ += energy;
}

std::optional<RunAccount> AccountWatch::now(int64_t tokens) {
  if (!before_) return std::nullopt;
  if (world_.size() == 1) joules_ = meter_.read();
  return RunAccount{.node_hours = before_->node_hours + nodes_ * meter_.seconds() / 3600,
                    .tokens = tokens - first_tokens_,
                    .kwh = plus_joules(before_->kwh, joules_.total()),
                    .gpu_kwh = has_gpus_ ? plus_joules(before_->gpu_kwh, joules_.gpus) : std::nullopt};
}

std::optional<RunAccount> AccountWatch::if_due(int64_t tokens) {
  constexpr std::chrono::seconds kEvery{10};
  if (Clock::now() - told_ < kEvery) return std::nullopt;
  told_ = Clock::now();
  return now(tokens);
}

}  // namespace ripstop
