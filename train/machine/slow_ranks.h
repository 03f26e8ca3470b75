// The test for slow ranks, and the option that leaves their nodes out of a job.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// The share of the median speed below which a rank is slow.
inline constexpr double kSlowShare = 0.8;

/// The rates as multiples of their median. The median is of the known rates alone, which are above 0; for an
/// even number of them it is the mean of the two middle ones. The multiple of an unknown rate is 1. Pure.
std::vector<double> relative_to_median(std::span<const double> rates);

/// The option of sbatch and srun that keeps `hosts` out of a job: "--exclude=n2,n7", each host once and
/// without its domain; "" if there are no hosts. Pure.
std::string exclude_option(std::span<const std::string> hosts);

}  // namespace ripstop
