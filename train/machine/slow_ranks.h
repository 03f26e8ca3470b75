#pragma once
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// A rank below this share of the median speed is slow.
inline constexpr double kSlowShare = 0.8;

/// The rates as multiples of the median of the known rates, which are above 0; for an even number of them,
/// the mean of the two middle rates. 1 for an unknown rate. Pure.
std::vector<double> relative_to_median(std::span<const double> rates);

/// The option of sbatch and srun that keeps `hosts` out of a job: "--exclude=n2,n7", each host once and
/// without its domain; "" without hosts. Pure.
std::string exclude_option(std::span<const std::string> hosts);

}  // namespace ripstop
