// Which ranks are slower than the others, and how a job leaves their nodes out.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// A rank is slow below this share of the median speed.
inline constexpr double kSlowShare = 0.8;

/// Each rate by the median of all rates that are above 0; the median of an even number is the mean of the
/// two in the middle. A rate that is not above 0 is not known and gives 1. Pure.
std::vector<double> relative_to_median(std::span<const double> rates);

/// The option of sbatch and srun that leaves `hosts` out, each once and without its domain:
/// "--exclude=n2,n7"; "" without hosts. Pure.
std::string exclude_option(std::span<const std::string> hosts);

}  // namespace ripstop
