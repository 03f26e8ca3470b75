#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "train/evaluate/rouge.h"

namespace ripstop {

/// Three numbers of an example, in the order of named(RougeScores).
using ScoreRow = std::array<double, 3>;

/// The F-measures of `scores`.
ScoreRow fmeasures(const RougeScores& scores);

struct Interval {
  double low = 0, high = 0;
};

/// The 95 % interval of the mean of each column: draws as many rows as there are, with replacement,
/// `resamples` times, and takes the 2.5th and the 97.5th percentile of the means (linear between two means,
/// like numpy.percentile). With the differences of two systems over the same documents as rows, this is the
/// paired bootstrap.
///
/// Draw i of resample r is row w * rows / 2^32, rounded down, where w is word i mod 4 of philox({i / 4, r, 0,
/// 0}, seed). Requires a row and a resample. Sources: B. Efron and R. J. Tibshirani, An Introduction to the
/// Bootstrap, 1993, section 13.3; P. Koehn, Statistical Significance Tests for Machine Translation
/// Evaluation, 2004, section 4.
std::array<Interval, 3> bootstrap_intervals(const std::vector<ScoreRow>& rows, int64_t resamples,
                                            uint64_t seed);

}  // namespace ripstop
