#include "train/machine/energy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>

#include "data/process/blocked_signals.h"
#include "data/text/utf8.h"
#include "model/core/number.h"
#include "model/device/cuda_machine.h"
#include "parallel/agreement.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// The shortest measurement: NVML renews its counters up to ten times a second, RAPL every millisecond.
constexpr double kLeastSeconds = 0.5;

std::string reason_text(int error) {
  std::string text = std::generic_category().message(error);
  // Linux 5.10 left RAPL to root, because power reveals secrets of other processes (CVE-2020-8694).
  if (error == EACCES || error == EPERM)
    text += " (root alone may read it, unless an administrator allows it)";
  return text;
}

}  // namespace

EnergyShare energy_share(const std::vector<RankHost>& places,
                         const std::vector<std::vector<std::string>>& gpus, size_t rank) {
  const int64_t node = places[rank].node;
  EnergyShare share{.host = node == static_cast<int64_t>(rank), .gpus = {}};
  for (const std::string& gpu : gpus[rank]) {
    bool is_new = std::ranges::count(share.gpus, gpu) == 0;
    for (size_t lower = 0; lower < rank; ++lower)
      is_new = is_new && (places[lower].node != node || std::ranges::count(gpus[lower], gpu) == 0);
    if (is_new) share.gpus.push_back(gpu);
  }
  return share;
}

EnergyShare energy_share(MpiWorld& world, const std::vector<std::string>& gpus) {
  std::vector<std::vector<std::string>> of_ranks;
  for (const std::string& text :
       world.communicator().all_gather_text(fmt::format("{}", fmt::join(gpus, " ")))) {
    const std::vector<std::string_view> words = words_in(text);
    of_ranks.emplace_back() = {words.begin(), words.end()};
  }
  return energy_share(world.places(), of_ranks, static_cast<size_t>(world.communicator().rank()));
}

EnergyMeter::EnergyMeter(Io& io, const fs::path& powercap, const EnergyShare& share,
                         std::chrono::milliseconds read_every)
    : io_(io), read_every_(read_every) {
  if (share.host) try_to(host_, [&] { host_.counters = rapl_counters(powercap); });
  for (const std::string& gpu : share.gpus)
    gpus_.counters.push_back({.name = "GPU " + gpu, .zone = {}, .gpu = gpu});
  for (Source* source : {&host_, &gpus_})
    try_to(*source, [&] {
      for (Counter& counter : source->counters) counter.last = now(counter);
    });
  if (host_.counters.empty() && gpus_.counters.empty()) return;
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // Without the thread, only calls of read() keep up with the counters.
  }
}

EnergyMeter::~EnergyMeter() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EnergyMeter::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, read_every_, [this] { return stops_; }))
    for (Source* source : {&host_, &gpus_}) read(*source);
}

double EnergyMeter::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

// The first line of a file.
std::string EnergyMeter::text(const fs::path& path) {
  const int file = io_.open(path, O_RDONLY);
  char bytes[128];
  const ssize_t count = file < 0 ? -1 : TEMP_FAILURE_RETRY(io_.read(file, bytes, sizeof bytes));
  const int error = errno;
  if (file >= 0) io_.close(file);
  if (count < 0) fail(ExitCode::kResources, "{}: {}", path.string(), reason_text(error));
  const std::string text(bytes, static_cast<size_t>(count));
  return text.substr(0, text.find('\n'));
}

int64_t EnergyMeter::number(const fs::path& path) {
  const std::string digits = text(path);
  const std::optional<int64_t> value = parse_whole_number(digits);
  if (!value) fail(ExitCode::kResources, "{}: has '{}' where a number was expected", path.string(), digits);
  return *value;
}

// The zones that add up to the node: packages, and the memory beside them. "core" and "uncore"
// are parts of a package, "psys" is a platform with its packages, and the zones intel-rapl-mmio:N are the
// packages by another path. AMD's processors have the same names. Source: Linux,
// Documentation/power/powercap/powercap.rst and drivers/powercap/intel_rapl_common.c; Intel's manual (see
// kReadEvery), "RAPL Domains and Platform Specificity": DRAM of servers is a domain beside the package.
std::vector<EnergyMeter::Counter> EnergyMeter::rapl_counters(const fs::path& powercap) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  std::vector<Io::Entry> zones;
  if (io_.list(powercap, zones) != 0)
    fail(ExitCode::kResources, "{}: {}", powercap.string(), reason_text(errno));
  std::ranges::sort(zones, {}, &Io::Entry::name);
  std::vector<Counter> found;
  for (const Io::Entry& entry : zones) {
    if (!entry.name.starts_with(kPrefix)) continue;
    const fs::path zone = powercap / entry.name;
    const size_t colon = entry.name.find(':', kPrefix.size());  // in names of subzones: "intel-rapl:0:1"
    std::string name = text(zone / "name");
    if (name.empty()) fail(ExitCode::kResources, "{}: is empty", (zone / "name").string());
    if (colon == std::string::npos ? !name.starts_with("package-") : name != "dram") continue;
    if (colon != std::string::npos) name = text(powercap / entry.name.substr(0, colon) / "name") + " dram";
    found.push_back({.name = name, .zone = zone, .gpu = {}, .range = number(zone / "max_energy_range_uj")});
  }
  if (found.empty()) fail(ExitCode::kResources, "{}: has no counter of a processor", powercap.string());
  return found;
}

// Energy in microjoules.
int64_t EnergyMeter::now(const Counter& counter) {
  if (counter.zone.empty()) return gpu_millijoules(counter.gpu) * 1000;
  const int64_t value = number(counter.zone / "energy_uj");
  if (value > counter.range)
    fail(ExitCode::kResources, "{}: {} is above max_energy_range_uj, {}",
         (counter.zone / "energy_uj").string(), value, counter.range);
  return value;
}

// Runs `body`. If it throws, no counter of `source` is read any more.
void EnergyMeter::try_to(Source& source, FunctionRef<void()> body) {
  try {
    body();
  } catch (const Error& error) {
    source.problem = error.what();
    source.counters.clear();
    source.joules = std::numeric_limits<double>::quiet_NaN();
  }
}

void EnergyMeter::read(Source& source) {
  try_to(source, [&] {
    double joules = source.joules;
    for (Counter& counter : source.counters) {
      const int64_t value = now(counter);
      int64_t taken = value - counter.last;
      if (taken < 0) taken += counter.range;
      if (taken < 0) fail(ExitCode::kResources, "{}: the energy went back", counter.name);
      counter.last = value;
      joules += static_cast<double>(taken) / 1e6;
    }
    source.joules = joules;
  });
}

Energy EnergyMeter::read() {
  const std::lock_guard lock(mutex_);
  for (Source* source : {&host_, &gpus_}) read(*source);
  return {host_.joules, gpus_.joules};
}

std::vector<std::string> EnergyMeter::counters() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Source* source : {&host_, &gpus_})
    for (const Counter& counter : source->counters) names.push_back(counter.name);
  return names;
}

std::string EnergyMeter::problem() {
  const std::lock_guard lock(mutex_);
  const bool both = !host_.problem.empty() && !gpus_.problem.empty();
  return host_.problem + (both ? "; " : "") + gpus_.problem;
}

std::vector<NodePower> power_of_nodes(MpiWorld& world, EnergyMeter& meter, bool has_gpus) {
  if (const double left = kLeastSeconds - meter.seconds(); left > 0 && !meter.counters().empty())
    std::this_thread::sleep_for(std::chrono::duration<double>(left));
  struct Own {
    Energy joules;
    double seconds;
    bool has_gpus;
  };
  const std::vector<Own> ranks =
      of_all_ranks(world.communicator(), Own{meter.read(), meter.seconds(), has_gpus});
  const std::vector<std::string> texts = world.communicator().all_gather_text(
      fmt::format("{}\n{}", meter.problem(), fmt::join(meter.counters(), "\n")));
  std::map<int64_t, NodePower> nodes;
  for (size_t r = 0; r < ranks.size(); ++r) {
    NodePower& node = nodes[world.places()[r].node];
    node.watts += {ranks[r].joules.host / ranks[r].seconds, ranks[r].joules.gpus / ranks[r].seconds};
    node.has_gpus = node.has_gpus || ranks[r].has_gpus;
    node.seconds = std::max(node.seconds, ranks[r].seconds);
    std::istringstream lines(texts[r]);
    std::string line;
    if (std::getline(lines, line) && !line.empty()) node.problem += (node.problem.empty() ? "" : "; ") + line;
    while (std::getline(lines, line))
      if (!line.empty()) node.counters.push_back(line);
  }
  std::vector<NodePower> powers;
  for (auto& [lowest_rank, node] : nodes) powers.push_back(std::move(node));
  return powers;
}

std::string power_text(const NodePower& power) {
  std::vector<std::string> known;
  if (!std::isnan(power.watts.host))
    known.push_back(fmt::format("{:.1f} W of processors and memory", power.watts.host));
  if (power.has_gpus && !std::isnan(power.watts.gpus))
    known.push_back(fmt::format("{:.1f} W of GPUs", power.watts.gpus));
  std::string text = fmt::format("{}", fmt::join(known, ", "));
  if (!known.empty())
    text += fmt::format(" over {:.1f} s ({})", power.seconds, fmt::join(power.counters, ", "));
  if (!power.problem.empty()) text += (known.empty() ? "not readable: " : "; not readable: ") + power.problem;
  return text;
}

}  // namespace ripstop
