#pragma once
#include <span>
#include <string>
#include <vector>

namespace ripstop {

/// A rank below this share of the median speed is slow.
inline constexpr double kSlowShare = 0.8;

/// The median of `values`, which must not be empty: for an even number, the mean of the two in the middle.
/// Pure.
double median(std::vector<double> values);

/// Each rate divided by the median of all rates above 0. A rate of 0 is unknown and gives 1. Pure.
std::vector<double> relative_to_median(std::span<const double> rates);

/// The option of sbatch and srun that keeps `hosts` out of a job: "--exclude=n2,n7", each host once and
/// without its domain; "" without hosts. Pure.
std::string exclude_option(std::span<const std::string> hosts);

}  // namespace ripstop
