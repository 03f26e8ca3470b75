// Comparison of a mesh's results with those of one rank alone, by logical parameter, whatever shard and slice
// a rank holds.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// The error of a parameter, or of a part of it.
struct ParameterError {
  double squared_error = 0;  ///< sum over elements of (found - expected)^2
  /// The relative error of the worst block: root(squared error / squared expected elements). A block of small
  /// elements is measured by the squared elements of an average block.
  double worst_block = 0;
  int64_t row = 0, column = 0;  ///< where the worst block begins
  bool finite = true;           ///< all found and expected elements are finite

  /// Adds the error of another part of the same parameter.
  void add(const ParameterError& part);
};

/// The elements of a row in a block: few enough that a few wrong elements at the edge of a shard stand out,
/// many enough that the rounding of single elements evens out.
inline constexpr int64_t kComparedBlock = 256;

/// Copies elements [first, first + to.size()) of a unit's flat buffer, which may be on a device, to the span.
using ReadElements = FunctionRef<void(int64_t first, std::span<float> to)>;

/// The initial values of a check: initial_values, but matrix B of an adapter, which is zero in training, is
/// uniform within 1 / sqrt(rows), because zeros would hide errors in A.
void check_values(const ParameterSpec& parameter, uint64_t seed, int64_t first, int64_t count, float* out);

/// To compare updates and not weights: the seed of check_values, which are subtracted from both sides.
/// nullopt: nothing is subtracted.
using Baseline = std::optional<uint64_t>;

/// The squared norm of each parameter of a unit less the baseline, in the order of layout.slices(). `layout`
/// is the layout on one rank alone.
std::vector<double> squared_norms(const UnitLayout& layout, ReadElements read, const Baseline& baseline);

/// Compares a shard, elements [begin, begin + shard.size()) of `layout`, with the same logical elements on
/// one rank alone, which has the layout `whole`, the reader `read` and the squared_norms `norms`. Returns the
/// error of each parameter of the unit, in the order of layout.slices().
std::vector<ParameterError> compare_shard(const UnitLayout& layout, int64_t begin,
                                          std::span<const float> shard, const UnitLayout& whole,
                                          ReadElements read, std::span<const double> norms,
                                          const Baseline& baseline);

/// The largest absolute value in the shard's padding (elements of no parameter, which must be 0); infinity if
/// an element is not finite.
double largest_padding(const UnitLayout& layout, int64_t begin, std::span<const float> shard);

}  // namespace ripstop
