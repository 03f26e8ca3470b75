#include "train/machine/equal_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "model/kernels/cpu/processor.h"
#include "parallel/agreement.h"
#include "train/config/config_keys.h"
#include "train/machine/version.h"

namespace ripstop {

void require_equal_programs(Communicator& world, const std::string& where) {
  require_equal(world, ExitCode::kResources, "program", fmt::format("{} {}", version(), git_commit()), where,
                "start the same build on every node");
  require_equal(world, ExitCode::kResources, "instruction set", cpu_instruction_set(), where,
                "use nodes of one kind");
}

void require_equal_configs(Communicator& world, const RunConfig& config, const std::string& where) {
  constexpr size_t kShown = 6;  // keys named in the message; all may differ
  const std::vector<std::string> texts = world.all_gather_text(to_toml(config)),
                                 places = world.all_gather_text(where);
  if (rank_groups_text(texts, places).empty()) return;
  std::vector<RunConfig> configs;
  for (size_t r = 0; r < texts.size(); ++r)
    configs.push_back(texts[r] == texts[0] && r > 0 ? configs[0]
                                                    : parse_run_config(texts[r], fmt::format("rank {}", r)));
  std::vector<std::string> differences;
  for (const ConfigKey& key : config_keys()) {
    std::vector<std::string> values;
    for (RunConfig& each : configs) values.push_back(value_as_toml(key, each));
    for (std::string& value : values)
      if (value.empty()) value = "(none)";
    const std::string groups = rank_groups_text(values, places);
    if (!groups.empty()) differences.push_back(fmt::format("{}: {}", key.path(), groups));
  }
  const size_t more = differences.size() - std::min(differences.size(), kShown);
  differences.resize(differences.size() - more);
  throw Error(ExitCode::kUsage,
              fmt::format("config differs between ranks: {}{}", fmt::join(differences, " | "),
                          more > 0 ? fmt::format(" | and {} more keys", more) : ""),
              "give every rank the same file and overrides");
}

}  // namespace ripstop
