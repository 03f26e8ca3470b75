// The test for slow ranks, and the option that leaves their nodes out of a job.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// A rank is slow below this share of the median speed.
inline constexpr double kSlowShare = 0.8;

/// Each rate divided by the median of the known rates, which are above 0 (the mean of the two middle ones if
/// their number is even). An unknown rate gives 1. Pure.
std::vector<double> relative_to_median(std::span<const double> rates);

/// The option of sbatch and srun that leaves `hosts` out: "--exclude=n2,n7", each host once and without its
/// domain; "" without hosts. Pure.
std::string exclude_option(std::span<const std::string> hosts);

}  // namespace ripstop
