// Comparison of what a mesh has computed with what one rank has: by logical parameter, whatever shard and
// slice a rank holds of it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// The difference of a parameter, or of the part of it that a rank holds.
struct ParameterError {
  double squared_error = 0;  ///< sum over elements of (found - expected)^2
  /// The error of the block that differs most: the root of its squared error over that of its expected
  /// elements, or over that of an average block if these are smaller.
  double worst_block = 0;
  int64_t row = 0, column = 0;  ///< where that block begins
  bool finite = true;           ///< all elements found and expected

  /// Takes in another part of the same parameter.
  void add(const ParameterError& part);
};

/// Elements of a row that are compared together. So few wrong elements stand out, as a rank's share of a
/// row at the edge of a shard, and yet the rounding of single elements evens out.
inline constexpr int64_t kComparedBlock = 256;

/// Copies elements [first, first + size) of a unit's flat buffer, which may lie on a device, to the span.
using ReadElements = FunctionRef<void(int64_t first, std::span<float> to)>;

/// The values with which a check begins, as initial_values; but b of an adapter, which training begins with
/// zeros, is uniform between -1 and 1 over the root of its rows: zeros would hide what a does.
void check_values(const ParameterSpec& parameter, uint64_t seed, int64_t first, int64_t count, float* out);

/// The values that are subtracted from both sides before they are compared: nothing, or the value of each
/// element in check_values, so that updates and not weights are compared.
struct Baseline {
  bool is_initial = false;
  uint64_t seed = 0;
};

/// The squared norms of the parameters of a unit, in the order of layout.slices(), over the elements of
/// `layout`, less the baseline. `layout` is that of one rank alone.
std::vector<double> squared_norms(const UnitLayout& layout, ReadElements read, const Baseline& baseline);

/// Compares a shard, elements [begin, begin + shard.size()) of `layout`, with the same logical elements of
/// one rank alone, whose layout is `whole` and whose elements `read` gives. `norms` are squared_norms of
/// that rank. Returns an error for every parameter of the unit, in the order of layout.slices().
std::vector<ParameterError> compare_shard(const UnitLayout& layout, int64_t begin,
                                          std::span<const float> shard, const UnitLayout& whole,
                                          ReadElements read, std::span<const double> norms,
                                          const Baseline& baseline);

/// The largest absolute value of the shard's padding, which must be 0: elements that belong to no parameter.
/// Infinite if one is not finite.
double largest_padding(const UnitLayout& layout, int64_t begin, std::span<const float> shard);

}  // namespace ripstop
