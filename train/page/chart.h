#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "model/core/words.h"
#include "train/page/run_record.h"

namespace ripstop {

/// Number of colors that the page's style has for runs.
inline constexpr size_t kColors = 8;

/// The quantity along the horizontal axis.
enum class Abscissa { kStep, kTokens, kHours };
inline constexpr std::array<Abscissa, 3> kAbscissas = {Abscissa::kStep, Abscissa::kTokens, Abscissa::kHours};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Abscissa> = {"step", "tokens", "hours"};

enum class Unit { kNumber, kShare, kBytes };

/// A chart of one series, with a line for each run.
struct Chart {
  Series series;
  std::string title;  ///< HTML, like `note`
  std::string note;   ///< what the series means
  Unit unit = Unit::kNumber;
  bool smooth = false;              ///< also draws a smoothed line: means of neighbouring columns
  bool dots = false;                ///< draws a dashed line, with dots if there are few
  bool from_zero = true;            ///< the vertical axis includes 0, unless logarithmic
  bool may_be_logarithmic = false;  ///< logarithmic if the numbers span a factor above 50
  bool with_validation = false;     ///< also draws Series::kValidation
  std::string set = {};             ///< if given, draws losses of the data set that has this name
};

/// The numbers of `series` in a column of `run`; if `chart.set` names a data set, that set's losses.
const Extent& numbers_of(const Chart& chart, const RunRecord& run, const Column& column, Series series);

/// An SVG with lines in the colors "c0", "c1" and so on of the page's style, one for each run; "" if no run
/// has a number. Marks restarts and RunRecord::diverged. `wide`: for the page's whole width.
std::string draw(const Chart& chart, std::span<const RunRecord> runs, Abscissa abscissa, bool wide);

/// The number of steps over which a smoothed line of `run` takes the mean.
int64_t smoothed_steps(const RunRecord& run);

}  // namespace ripstop
