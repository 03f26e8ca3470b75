// Compares results on a mesh with results on one rank alone, by logical parameter, whatever shard and slice a
// rank holds.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/unit_layout.h"

namespace ripstop {

struct ParameterError {
  double squared_error = 0;  ///< sum over elements of (found - expected)^2
  /// The largest relative error of a block: sqrt(squared error / squared norm). The norm is of the expected
  /// elements less the Baseline, and at least that of an average block of the parameter.
  double worst_block = 0;
  int64_t row = 0, column = 0;  ///< start of the worst block
  bool finite = true;           ///< all found and expected elements are finite

  /// Adds the error of another part of the same parameter.
  void add(const ParameterError& part);
};

/// Maximum elements of a block (a part of one row): few enough that wrong elements at the edge of a shard
/// stand out, many enough that rounding evens out.
inline constexpr int64_t kComparedBlock = 256;

/// Copies elements [first, first + to.size()) of a unit's flat buffer, perhaps on a device, to `to`.
using ReadElements = FunctionRef<void(int64_t first, std::span<float> to)>;

/// Writes elements [first, first + count) of a parameter's initial values in a check to `out`:
/// initial_values, except that parameters of zeros get uniform values within +-1 / sqrt(rows). Zeros would
/// hide a missing bias and errors in A of an adapter.
void check_values(const ParameterSpec& parameter, uint64_t seed, int64_t first, int64_t count, float* out);

/// Seed of the check_values to subtract from the expected elements before norms are taken, so that errors are
/// relative to the update and not to the weights; nullopt: subtract nothing.
using Baseline = std::optional<uint64_t>;

/// For each parameter in layout.slices(): the squared norm of its elements less the baseline. `layout` is the
/// unit's layout on one rank alone.
std::vector<double> squared_norms(const UnitLayout& layout, ReadElements read, const Baseline& baseline);

/// Compares a shard, elements [begin, begin + shard.size()) of `layout`, with the same logical elements on
/// one rank alone, which has the layout `whole`, the reader `read` and the squared_norms `norms`. Returns the
/// error of each parameter in layout.slices().
std::vector<ParameterError> compare_shard(const UnitLayout& layout, int64_t begin,
                                          std::span<const float> shard, const UnitLayout& whole,
                                          ReadElements read, std::span<const double> norms,
                                          const Baseline& baseline);

/// The largest absolute value in the shard's padding, 0 if correct; infinity if one is not finite.
double largest_padding(const UnitLayout& layout, int64_t begin, std::span<const float> shard);

}  // namespace ripstop
