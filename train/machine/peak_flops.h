// The peak of the ranks' devices in floating-point operations per second, which model FLOPs utilization (MFU)
// divides by.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "model/device/dtype.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// A peak, and how it is known.
struct PeakFlops {
  double per_second = 0;  ///< of all ranks together
  std::string source;     ///< "data sheet: ..." or "measured: ..."
};

/// Stands as PeakFlops::source if the rounds on CPUs do not tell (fastest_round).
inline constexpr const char* kNoCpuPeak = "measured: not known, other programs keep the processors busy";

/// The data-sheet peak of one GPU for dense matrix products in `compute`, in FLOP/s. `name` is the CUDA
/// device name. nullopt if the table has no such GPU, or no peak of it in `compute`. A GPU that is slower
/// than its namesake is none of the table: a MIG instance, "Laptop", "D", "Max-Q". Pure.
std::optional<double> data_sheet_flops(const std::string& name, DType compute);

/// One timing of the same products on all ranks at once.
struct PeakRound {
  double seconds = 0;  ///< of the slowest rank
  /// The time that the threads of a rank had a processor, over `seconds` times their number: of the rank with
  /// the least. 1 if the ranks have fewer cores than threads, which is no neighbour's fault.
  double cpu_share = 1;
};

/// The rounds that are measured at most.
inline constexpr int64_t kMostRounds = 24;

/// The seconds of the fastest round, if three rounds are as fast within 3 %. A round in which other programs
/// took more than 15 % of the processors does not count. nullopt: the rounds do not tell. Pure.
std::optional<double> fastest_round(std::span<const PeakRound> rounds);

/// The peak of all ranks of `world` on devices like `device`, for products in `compute`. GPUs: from the data
/// sheets; ranks that share a GPU share its peak. CPUs: measured by the model's own `linear`, on all ranks at
/// once, in rounds of some 12 ms until fastest_round has an answer, 24 rounds or 0.4 s at most. The memory
/// for that is given back on return and is in no ledger: 4 MiB, and 2 MiB a thread in float32, and what the
/// kernels need. nullopt on all ranks if one of them has a device without a known peak, or if the rounds do
/// not tell: another program keeps the processors busy. Collective.
std::optional<PeakFlops> find_peak_flops(MpiWorld& world, const Device& device, DType compute);

}  // namespace ripstop
