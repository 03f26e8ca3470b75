// The rates from which `ripstop plan` computes times, and amounts with a unit on its command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/run_target.h"

namespace ripstop {

/// The bytes in "64GiB", "80 gb" or "1.5T"; nullopt for "". GB means 10^9 bytes, GiB and G (as in Slurm)
/// 2^30. Throws CommandLineError for other texts, and for a number without a unit: nobody means bytes.
std::optional<int64_t> parse_memory(const std::string& option, const std::string& text);

struct RateArguments {
  std::string rates;          ///< --rates: a file of `doctor --output`, or the name of a GPU
  std::string between_nodes;  ///< --between-nodes: a node's link each way, "25Gbit"
  std::string rank_flops;     ///< --rank-flops: "400T"

  bool any() const { return !(rates.empty() && between_nodes.empty() && rank_flops.empty()); }
};

/// The rates for the ranks of `target`, whose ranks_per_node must be set: the file's or the GPU's rates,
/// overwritten by the values of the other options. nullopt without options. Throws CommandLineError for a bad
/// amount, and Error(kInputData) for a bad file, an unknown GPU or another kind of device.
std::optional<Rates> rates_for_plan(const RateArguments& given, const RunTarget& target, DType compute);

/// Notes for people: if the job has other numbers of ranks a node or, on CPUs, of threads a rank (`threads`)
/// than the measured rates; if --between-nodes has no effect.
std::vector<std::string> rates_notes(const RateArguments& given, const RunTarget& target, int64_t threads);

}  // namespace ripstop
