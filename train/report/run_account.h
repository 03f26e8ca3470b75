#pragma once
#include <cstdint>
#include <optional>

namespace ripstop {

/// The node-hours and the energy that a run has used over all its starts, and its tokens.
struct RunAccount {
  double node_hours = 0;
  int64_t tokens = 0;             ///< tokens of the run's steps; a step made again counts once
  std::optional<double> kwh;      ///< processors, memory and used GPUs; nullopt: not readable on all nodes
  std::optional<double> gpu_kwh;  ///< the GPUs' part of kwh; nullopt: no GPUs, or not readable on all nodes

  std::optional<double> tokens_per_kwh() const {
    return kwh.value_or(0) > 0 ? std::optional(static_cast<double>(tokens) / *kwh) : std::nullopt;
  }
  /// The mean power of a node.
  std::optional<double> watts() const {
    return kwh && node_hours > 0 ? std::optional(1e3 * *kwh / node_hours) : std::nullopt;
  }
  bool operator==(const RunAccount&) const = default;
  static void fields(auto& self, auto& field) {
    field("node_hours", self.node_hours);
    field("tokens", self.tokens);
    field("kwh", self.kwh);
    field("gpu_kwh", self.gpu_kwh);
    field.derived("tokens_per_kwh", self.tokens_per_kwh());
    field.derived("watts", self.watts());
  }
};

}  // namespace ripstop
