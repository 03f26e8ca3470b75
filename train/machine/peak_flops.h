#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/device/dtype.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// The denominator of model FLOPs utilization (MFU).
struct PeakFlops {
  double per_second = 0;  ///< FLOP/s of all ranks together
  std::string source;     ///< "data sheet: ..." or "measured: ..."
};

/// The PeakFlops::source for CPUs whose peak is not known (fastest_round).
inline constexpr const char* kNoCpuPeak = "measured: not known, other programs keep the processors busy";

/// The peaks of one GPU by its data sheet.
struct DataSheet {
  std::string_view name;  ///< words that the device name must have as whole words
  double bfloat16;        ///< TFLOP/s on tensor cores, sums in float32, without sparsity
  double float32;  ///< TFLOP/s without tensor cores: model/kernels/cuda/gemm_plans.cpp does not use TF32
  double memory;   ///< GB/s; the least, where cards of one name differ
  double link;  ///< GB/s each way to the other GPUs of a node: NVLink, or PCIe x16 where cards have no more
};
/// The data sheet of the GPU that CUDA calls `name`. Null if the table has no such GPU, and for cut-down
/// models (MIG instances, "Laptop", "D", "Max-Q"), which are slower than the full model. Pure.
const DataSheet* find_data_sheet(const std::string& name);

/// The peak FLOP/s of a GPU for dense matrix products in `compute`; nullopt if no data sheet has it. Pure.
std::optional<double> data_sheet_flops(const std::string& name, DType compute);

/// A round of measurement: all ranks compute the same products at once.
struct PeakRound {
  double seconds = 0;  ///< time of the slowest rank
  /// The smallest of all ranks' CPU time / (own time * threads), at most 1. 1 if a rank has no cores of its
  /// own (has_own_cores), because then the ranks may slow each other.
  double cpu_share = 1;
};

inline constexpr int64_t kMostRounds = 24;

/// The seconds of the fastest round, if three rounds (including it) agree within 3 %; else nullopt. Skips
/// rounds in which other programs took more than 15 % of the processors. Pure.
std::optional<double> fastest_round(std::span<const PeakRound> rounds);

/// Whether this rank may use a core for each thread of the ranks that may use the same cores. Collective.
bool has_own_cores(MpiWorld& world);

/// The peak of all ranks together for products in `compute`: on GPUs from the data sheets, on CPUs measured.
/// The measurement runs the model's own `linear` on all ranks at once (a TimedProduct), in rounds of some 12
/// ms, until fastest_round has an answer, or after 24 rounds or 0.4 s. nullopt on all ranks if any rank's GPU
/// has no known peak, or if other programs disturb the measurement. Collective.
std::optional<PeakFlops> find_peak_flops(MpiWorld& world, const Device& device, DType compute);

}  // namespace ripstop
