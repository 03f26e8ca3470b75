// The rates of a machine, by which a plan computes times. `ripstop doctor --output` writes them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/device/dtype.h"

namespace ripstop {

/// The speed of one kernel at one size, while all ranks of the node computed.
struct KernelRate {
  std::string kernel, dtype;
  int64_t rows = 1, columns = 1, inner = 1;  ///< KernelWork::sizes
  double per_second = 0;                     ///< FLOP/s of a product or an attention, else bytes/s

  static void fields(auto& self, auto& field) {
    field("kernel", self.kernel);
    field("dtype", self.dtype);
    field("rows", self.rows, 1);
    field("columns", self.columns, 1);
    field("inner", self.inner, 1);
    field("per_second", self.per_second);
  }
};

/// A rank's link to others while all ranks of a node send and receive at once.
struct LinkRate {
  double latency_seconds = 0;
  double bytes_per_second = 0;  ///< sent, while as many are received
  double compute_share = 1;     ///< the speed of compute while messages move, as a share of its speed alone

  static void fields(auto& self, auto& field) {
    field("latency_seconds", self.latency_seconds);
    field("bytes_per_second", self.bytes_per_second);
    field("compute_share", self.compute_share);
  }
};

/// The speeds that a rank of one kind of job reaches. An unknown rate is 0 or nullopt; a plan leaves out the
/// work that would need it.
struct Rates {
  static constexpr int64_t kVersion = 1;

  std::string source;  ///< "rates.json (node07)", "data sheet: H100"
  std::string device;  ///< "cpu" or "cuda"
  std::string model;   ///< the processor's or GPU's name
  std::vector<std::string> hosts;
  int64_t ranks_per_node = 1;
  int64_t threads = 1;  ///< threads of a rank
  std::vector<KernelRate> kernels;
  double memory_bytes_per_second = 0;  ///< read plus written; for kernels that are not in `kernels`
  double flops_per_second = 0;         ///< for products and attention that are not in `kernels`
  std::optional<LinkRate> inside_node, between_nodes;
  bool knows_products() const { return flops_per_second > 0 || !kernels.empty(); }
  std::optional<double> watts_per_rank;

  static void fields(auto& self, auto& field) {
    field("device", self.device);
    field("model", self.model);
    field("hosts", self.hosts);
    field("ranks_per_node", self.ranks_per_node, 1);
    field("threads", self.threads, 1);
    field("memory_bytes_per_second", self.memory_bytes_per_second);
    field("inside_node", self.inside_node);
    field("between_nodes", self.between_nodes);
    field("power_watts", self.watts_per_rank);
    field("kernels", self.kernels);
  }
};

/// One JSON document with "version", indented, with a line end.
std::string rates_document(const Rates& rates);

/// Reads a file of rates_document(). Throws Error(kInputData), whose hint says what to run, if the file is
/// missing or damaged, of another version, or has an impossible rate.
Rates read_rates(const std::filesystem::path& path);

/// The rates of a GPU: shares of its data sheet's peaks that a step may reach. nullopt if the name is unknown
/// or the sheet has no number for `compute`. between_nodes stays unknown.
std::optional<Rates> data_sheet_rates(const std::string& gpu_name, DType compute);

}  // namespace ripstop
