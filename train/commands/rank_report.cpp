#include "train/commands/rank_report.h"

#include <filesystem>
#include <utility>

#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "parallel/agreement.h"
#include "train/machine/slow_ranks.h"
#include "train/machine/version.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

// A hash of the file's content, or the error from reading it.
std::string content_text(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  try {
    const std::string bytes = read_plain_file(path, kMostBytes, ExitCode::kUsage);
    return fmt::format("{:016x}", hash64(bytes.data(), std::ssize(bytes)));
  } catch (const Error& error) {
    return error.what();
  }
}

// "program differs between ranks: ...", or "" if all ranks give the same text. Collective.
std::string difference(Communicator& all, const std::vector<std::string>& hosts, const std::string& what,
                       const std::string& text) {
  const std::string groups = rank_groups_text(all.all_gather_text(text), hosts);
  return groups.empty() ? "" : fmt::format("{} differs between ranks: {}", what, groups);
}

std::string rate_text(double value, const char* unit) {
  return value > 0 ? fmt::format("{:.1f} {}", 1e-9 * value, unit) : std::string("-");
}

std::string row(const std::string& rank, const std::string& host, const std::string& products,
                const std::string& memory, const std::string& inside, const std::string& between) {
  return fmt::format("{:>6}  {:<20}{:>16}{:>14}{:>14}{:>14}\n", rank, host, products, memory, inside,
                     between);
}

}  // namespace

RankReport report_ranks(MpiWorld& world, const Device& device, const std::string& config_file) {
  Communicator& all = world.communicator();
  RankReport report;
  for (const RankHost& place : world.places()) report.hosts.push_back(place.host);
  // The program's bytes tell apart two builds of one commit with different options.
  const std::string program =
      fmt::format("{} {}, content {}", version(), git_commit(), content_text("/proc/self/exe"));
  const auto compare = [&](const std::string& what, const std::string& text) {
    if (std::string found = difference(all, report.hosts, what, text); !found.empty())
      report.differences.push_back(std::move(found));
  };
  compare("program", program);
  compare("MPI", world.library());
  // Each rank calls this, even with an empty name: launchers may give ranks different options.
  compare("config", config_file.empty() ? "" : content_text(config_file));
  report.speeds = measure_ranks(world, device);
  report.slow = slow_ranks_of(report.speeds);
  std::vector<std::string> slow_hosts;
  for (const SlowRankFound& each : report.slow)
    slow_hosts.push_back(report.hosts[static_cast<size_t>(each.rank)]);
  report.exclude = exclude_option(slow_hosts);
  return report;
}

Json rank_report_json(const RankReport& report) {
  Json document;
  document["rank_speeds"] = Json::array();
  const auto rate = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  for (size_t r = 0; r < report.speeds.size(); ++r) {
    const RankSpeed& speed = report.speeds[r];
    document["rank_speeds"].push_back(
        {{"rank", r},
         {"host", report.hosts[r]},
         {"products_flops_per_second", rate(speed.flops_per_second)},
         {"memory_bytes_per_second", rate(speed.memory_bytes_per_second)},
         {"inside_node_bytes_per_second", rate(speed.inside_bytes_per_second)},
         {"between_nodes_bytes_per_second", rate(speed.between_bytes_per_second)}});
  }
  document["slow_ranks"] = Json::array();
  for (const SlowRankFound& each : report.slow)
    document["slow_ranks"].push_back({{"rank", each.rank},
                                      {"host", report.hosts[static_cast<size_t>(each.rank)]},
                                      {"what", each.what},
                                      {"share_of_median", each.share}});
  document["exclude"] = report.exclude;
  document["differences"] = report.differences;
  return document;
}

std::string rank_report_text(const RankReport& report) {
  constexpr size_t kShown = 16;
  std::string text = row("rank", "host", "products", "memory", "in the node", "between");
  for (size_t r = 0; r < report.speeds.size() && r < kShown; ++r) {
    const RankSpeed& speed = report.speeds[r];
    text += row(std::to_string(r), report.hosts[r], rate_text(speed.flops_per_second, "GFLOP/s"),
                rate_text(speed.memory_bytes_per_second, "GB/s"),
                rate_text(speed.inside_bytes_per_second, "GB/s"),
                rate_text(speed.between_bytes_per_second, "GB/s"));
  }
  if (report.speeds.size() > kShown)
    text += fmt::format("  and {} more ranks (--json shows all)\n", report.speeds.size() - kShown);
  for (size_t i = 0; i < report.slow.size() && i < kShown; ++i) {
    const SlowRankFound& each = report.slow[i];
    text += fmt::format("! rank {} ({}): {} at {:.2f} of the median\n", each.rank,
                        report.hosts[static_cast<size_t>(each.rank)], each.what, each.share);
  }
  if (report.slow.size() > kShown)
    text += fmt::format("! and {} more that are slow (--json shows all)\n", report.slow.size() - kShown);
  if (!report.exclude.empty())
    text += fmt::format("  to leave these nodes out of a job: {}\n", report.exclude);
  for (const std::string& each : report.differences) text += fmt::format("! {}\n", each);
  return text;
}

}  // namespace ripstop
