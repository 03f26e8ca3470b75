#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "parallel/mesh_axes.h"

namespace ripstop {

/// The curves of a report.
enum class Series : uint8_t {
  kLoss,
  kValidation,
  kRouge1,
  kRouge2,
  kRougeL,
  kLearningRate,
  kNorm,
  kSpeed,
  kUtilization,
  kExposed,  ///< exposed communication of the first axis; that of the other axes follows (exposed())
  kMemory = kExposed + kMeshAxes.size(),
};
/// Exposed communication of `axis` as a share of the step.
constexpr Series exposed(MeshAxis axis) {
  return static_cast<Series>(static_cast<size_t>(Series::kExposed) + static_cast<size_t>(axis));
}
inline constexpr size_t kSeriesCount = static_cast<size_t>(Series::kMemory) + 1;

/// Least, largest, sum and count of many numbers.
struct Extent {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double sum = 0;
  int64_t count = 0;       ///< number of finite numbers; `least`, `most` and `sum` are over these
  int64_t not_finite = 0;  ///< NaN and numbers beyond 1e300

  void add(double value);
  void add(const Extent& other);
  double mean() const { return sum / static_cast<double>(count); }
};

/// Losses of one of several data sets.
struct SetExtents {
  Extent loss, validation;
};

/// One point of the curves: consecutive steps.
struct Column {
  int64_t index = 0;  ///< any step of the column, divided by Columns::width()
  int64_t step = 0;   ///< the last step
  double tokens = 0;  ///< tokens seen up to `step`
  double hours = 0;   ///< hours spent in steps and validations up to `step`
  std::array<Extent, kSeriesCount> values;
  std::vector<SetExtents> sets;  ///< by the data set's number; empty if the run has one data set

  Extent& operator[](Series series) { return values[static_cast<size_t>(series)]; }
  const Extent& operator[](Series series) const { return values[static_cast<size_t>(series)]; }
  /// The losses of data set `number`. Lengthens `sets` if needed.
  SetExtents& set(size_t number) {
    if (sets.size() <= number) sets.resize(number + 1);
    return sets[number];
  }
};

/// The curves of a run of any length in bounded memory: columns of equally many steps, whose width doubles
/// whenever there are too many.
class Columns {
 public:
  /// `most`: the maximum number of columns, at least 2.
  explicit Columns(size_t most) : most_(most) {}

  /// The column of `step`, valid until the next call. A step before the last column gets the last column.
  Column& at(int64_t step, double tokens, double hours);
  const std::vector<Column>& all() const { return columns_; }
  int64_t width() const { return width_; }  ///< steps of a column

 private:
  void halve();

  size_t most_;
  int64_t width_ = 1;
  std::vector<Column> columns_;
};

}  // namespace ripstop
