#include "train/page/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "train/page/html_text.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

constexpr double kLeft = 58, kRight = 26, kTop = 24, kBottom = 40;

struct Size {
  double width, height;
};
Size size_of(bool wide) {
  return wide ? Size{1100, 380} : Size{540, 260};
}

double value_of(const Column& column, Abscissa abscissa) {
  if (abscissa == Abscissa::kTokens) return column.tokens;
  return abscissa == Abscissa::kHours ? column.hours : static_cast<double>(column.step);
}

std::string text_of(double value, Unit unit) {
  if (unit == Unit::kShare) return number_text(100 * value) + "%";
  if (unit == Unit::kBytes) {
    const std::string text = bytes_text(static_cast<int64_t>(value));
    const size_t zero = text.find(".0 ");
    return zero == text.npos ? text : text.substr(0, zero) + text.substr(zero + 2);
  }
  return number_text(value);
}

// A round number near or above `least`: 1, 2 or 5 times a power of ten; for bytes a power of two.
double round_step(double least, Unit unit) {
  if (unit == Unit::kBytes) return std::exp2(std::ceil(std::log2(least)));
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1, 2, 5})
    if (factor * power >= least * 0.999) return factor * power;
  return 10 * power;
}

// An axis, which maps numbers to places in the picture.
struct Scale {
  double low = 0, high = 1;      // numbers at the axis's ends
  double begin = 0, length = 1;  // place of `low`, and the axis's length
  bool logarithmic = false;

  double at(double value) const {
    const double share =
        logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return begin + length * std::clamp(share, 0.0, 1.0);
  }
  std::vector<double> ticks(Unit unit, int count) const {
    std::vector<double> ticks;
    if (logarithmic) {
      const double decades = std::log10(high / low);
      for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
        for (const double factor : {1, 2, 5})
          if ((factor == 1 || decades < 2.5) && factor * power >= low && factor * power <= high)
            ticks.push_back(factor * power);
      const size_t every = (ticks.size() - 1) / 8 + 1;
      for (size_t i = 0; i * every < ticks.size(); ++i) ticks[i] = ticks[i * every];
      ticks.resize((ticks.size() + every - 1) / every);
      return ticks;
    }
    const double step = round_step((high - low) / count, unit);
    for (double n = std::ceil(low / step - 1e-9); n * step <= high + step * 1e-9; ++n)
      ticks.push_back(n * step + 0.0);  // not -0
    return ticks;
  }
};

// The number of columns on each side over which a smoothed line takes the mean.
std::ptrdiff_t neighbours(const RunRecord& run) {
  return std::ssize(run.columns.all()) / 60;
}

std::optional<double> smoothed(const Chart& chart, const RunRecord& run, Series series, std::ptrdiff_t i,
                               std::ptrdiff_t each_side) {
  const std::vector<Column>& all = run.columns.all();
  const auto numbers = [&](std::ptrdiff_t n) -> const Extent& {
    return numbers_of(chart, run, all[static_cast<size_t>(n)], series);
  };
  if (numbers(i).count == 0) return std::nullopt;
  Extent mean;
  const std::ptrdiff_t reach = std::min({each_side, i, std::ssize(all) - 1 - i});  // the same on both sides
  for (std::ptrdiff_t n = i - reach; n <= i + reach; ++n) mean.add(numbers(n));
  return mean.mean();
}

// The attribute `d` of an SVG path, in tenths of a unit.
class Path {
 public:
  void lift() { is_down_ = false; }
  void to(double x, double y) {
    const auto tenths = [](double value) { return static_cast<int>(std::lround(10 * value)); };
    const int next_x = tenths(x), next_y = tenths(y);
    if (is_down_)
      text_ += fmt::format("{}{}{}{}",
                           is_first_     ? "l"
                           : next_x < x_ ? ""
                                         : " ",
                           next_x - x_, next_y < y_ ? "" : " ", next_y - y_);
    else
      text_ += fmt::format("M{} {}", next_x, next_y);
    is_first_ = !is_down_;
    is_down_ = true;
    x_ = next_x, y_ = next_y;
  }
  /// An SVG path of the class `style`; "" if nothing was drawn.
  std::string element(const std::string& style) const {
    if (text_.empty()) return "";
    return fmt::format("<path class=\"{}\" transform=\"scale(.1)\" d=\"{}\"/>", style, text_);
  }

 private:
  std::string text_;
  bool is_down_ = false, is_first_ = false;
  int x_ = 0, y_ = 0;
};

std::string color(size_t run) {
  return fmt::format("c{}{}", run % kColors, run >= kColors ? " dash" : "");
}

class Drawing {
 public:
  Drawing(const Chart& chart, std::span<const RunRecord> runs, Abscissa abscissa, bool wide)
      : chart_(chart), runs_(runs), abscissa_(abscissa), size_(size_of(wide)), wide_(wide) {}

  std::string svg() {
    if (!find_scales()) return "";
    std::string out =
        fmt::format("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", size_.width,
                    size_.height, chart_.title);
    out += axes();
    for (size_t run = 0; run < runs_.size(); ++run) out += marks(run);
    for (size_t run = 0; run < runs_.size(); ++run) out += raw_line(run);
    for (size_t run = 0; run < runs_.size(); ++run) out += line(run, chart_.series, chart_.dots);
    if (chart_.with_validation)
      for (size_t run = 0; run < runs_.size(); ++run) out += line(run, Series::kValidation, true);
    return out + strips() + "</svg>";
  }

 private:
  bool find_scales() {
    Extent values;
    double last = 0;
    for (const RunRecord& run : runs_)
      for (const Column& column : run.columns.all()) {
        last = std::max(last, value_of(column, abscissa_));
        values.add(numbers_of(chart_, run, column, chart_.series));
        if (chart_.with_validation) values.add(numbers_of(chart_, run, column, Series::kValidation));
      }
    if (values.count == 0) return false;
    x_ = {0, last > 0 ? last : 1, kLeft, size_.width - kLeft - kRight};
    y_.logarithmic = chart_.may_be_logarithmic && values.least > 1e-300 && values.most > 50 * values.least;
    y_.low = y_.logarithmic     ? values.least / 1.1
             : chart_.from_zero ? std::min(0.0, values.least)
                                : values.least;
    y_.high = y_.logarithmic ? values.most * 1.1 : values.most;
    const double room = y_.logarithmic ? 0 : 0.05 * (y_.high - y_.low);
    y_.high += room;
    if (!chart_.from_zero && !y_.logarithmic) y_.low -= room;
    // Widen a tiny range, because its ticks would all be equal.
    const double size = std::max(std::abs(y_.low), std::abs(y_.high));
    if (y_.high - y_.low <= 1e-9 * size) y_.high = y_.low + (size > 0 ? size : 1);
    y_.begin = size_.height - kBottom;
    y_.length = -(size_.height - kTop - kBottom);
    return true;
  }

  std::string axes() const {
    std::string out;
    for (const double tick : y_.ticks(chart_.unit, wide_ ? 7 : 5))
      out += fmt::format(
          "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" class=\"end\">{}</text>",
          kLeft, y_.at(tick), size_.width - kRight, kLeft - 6, y_.at(tick) + 4, text_of(tick, chart_.unit));
    for (const double tick : x_.ticks(Unit::kNumber, wide_ ? 10 : 6))
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" class=\"mid\">{}</text>", x_.at(tick),
                         size_.height - kBottom + 18, number_text(tick));
    return out + fmt::format("<text x=\"{}\" y=\"{}\" class=\"end dim\">{}{}</text>", size_.width - kRight,
                             size_.height - 5, to_string(abscissa_),
                             y_.logarithmic ? "; vertical axis logarithmic" : "");
  }

  // The x coordinate of `step` of a run.
  double place_of(const RunRecord& run, int64_t step) const {
    if (abscissa_ == Abscissa::kStep) return x_.at(static_cast<double>(step));
    const std::vector<Column>& all = run.columns.all();
    const auto found = std::ranges::lower_bound(all, step, {}, &Column::step);
    return x_.at(found == all.end() ? x_.high : value_of(*found, abscissa_));
  }

  std::string mark(const std::string& style, double x, const std::string& title) const {
    return fmt::format("<path class=\"{}\" d=\"M{:.1f} {}V{}\"><title>{}</title></path>", style, x, kTop,
                       size_.height - kBottom, title);
  }

  std::string marks(size_t number) const {
    constexpr size_t kMostMarks = 60;
    const RunRecord& run = runs_[number];
    std::string out;
    for (size_t i = 0; i < std::min(run.restarts.size(), kMostMarks); ++i) {
      const Restart& restart = run.restarts[i];
      out +=
          mark(fmt::format("restart {}{}", color(number), restart.other_mesh ? " mesh" : ""),
               place_of(run, restart.step),
               html(fmt::format("{}: restarted at step {}, {}; {}", run.name, restart.step,
                                restart.other_mesh ? "on another mesh" : "on the same mesh", restart.mesh)));
    }
    if (run.diverged) {
      const double x = place_of(run, *run.diverged);
      const bool is_right = x > size_.width / 2;
      out += mark("diverged", x, html(fmt::format("{}: no finite loss at step {}", run.name, *run.diverged)));
      if (chart_.series == Series::kLoss && chart_.set.empty())
        out += fmt::format("<text class=\"bad {}\" x=\"{:.1f}\" y=\"{}\">diverged at step {}</text>",
                           is_right ? "end" : "", x + (is_right ? -5 : 5),
                           kTop + 12 + 14 * static_cast<double>(number), *run.diverged);
    }
    return out;
  }

  // A line through the least and the largest value of each column, so that smoothing hides no spike.
  std::string raw_line(size_t number) const {
    const RunRecord& run = runs_[number];
    if (!chart_.smooth || smoothed_steps(run) == 1) return "";
    Path path;
    bool up = true;
    for (const Column& column : run.columns.all()) {
      const Extent& values = numbers_of(chart_, run, column, chart_.series);
      if (values.not_finite > 0) path.lift();
      if (values.count == 0) continue;
      const double x = x_.at(value_of(column, abscissa_));
      path.to(x, y_.at(up ? values.least : values.most));
      if (values.count > 1) path.to(x, y_.at(up ? values.most : values.least));
      up = !up;
    }
    return path.element("raw " + color(number));
  }

  std::string line(size_t number, Series series, bool dots) const {
    constexpr size_t kMostDots = 60;
    const RunRecord& run = runs_[number];
    const std::ptrdiff_t each_side = chart_.smooth && !dots ? neighbours(run) : 0;
    Path path;
    std::vector<std::string> circles;
    for (std::ptrdiff_t i = 0; i < std::ssize(run.columns.all()); ++i) {
      const Column& column = run.columns.all()[static_cast<size_t>(i)];
      const std::optional<double> value = smoothed(chart_, run, series, i, each_side);
      if (!value && numbers_of(chart_, run, column, series).not_finite > 0) path.lift();
      if (!value) continue;
      const double x = x_.at(value_of(column, abscissa_)), y = y_.at(*value);
      path.to(x, y);
      circles.push_back(
          fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", color(number), x, y));
    }
    std::string out = path.element((dots ? "dotted " : "line ") + color(number));
    if (dots && circles.size() <= kMostDots)
      for (const std::string& circle : circles) out += circle;
    return out;
  }

  // Strips that show their numbers while the pointer is over them, without a script.
  std::string strips() const {
    const int count = wide_ ? 100 : runs_.size() == 1 ? 60 : 40;
    const double width = x_.length / count;
    std::string out = "<g class=\"strips\">";
    for (int n = 0; n < count; ++n) {
      const double left = kLeft + n * width;
      const std::string text = numbers_in(left, left + width);
      if (text.empty()) continue;
      out += fmt::format(
          "<g><rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>"
          "<text x=\"{}\" y=\"14\" class=\"end\">{}</text></g>",
          left, kTop, width, size_.height - kTop - kBottom, size_.width - kRight, text);
    }
    return out + "</g>";
  }

  std::string numbers_in(double left, double right) const {
    std::string place, text;
    for (size_t number = 0; number < runs_.size(); ++number) {
      Extent values, validation;
      const RunRecord& run = runs_[number];
      for (const Column& column : run.columns.all()) {
        const double x = x_.at(value_of(column, abscissa_));
        if (x < left || x > right) continue;
        values.add(numbers_of(chart_, run, column, chart_.series));
        if (chart_.with_validation) validation.add(numbers_of(chart_, run, column, Series::kValidation));
        if (values.count > 0) place = number_text(value_of(column, abscissa_));
      }
      if (values.count == 0) continue;
      text += fmt::format(" <tspan class=\"t{}\">{}", number % kColors, text_of(values.mean(), chart_.unit));
      if (runs_.size() == 1 && values.most > values.least)
        text +=
            fmt::format(" ({} to {})", text_of(values.least, chart_.unit), text_of(values.most, chart_.unit));
      if (validation.count > 0)
        text += fmt::format(", validation {}", text_of(validation.mean(), chart_.unit));
      text += "</tspan>";
    }
    return text.empty() ? "" : fmt::format("{} {}:{}", to_string(abscissa_), place, text);
  }

  const Chart& chart_;
  const std::span<const RunRecord> runs_;
  const Abscissa abscissa_;
  const Size size_;
  const bool wide_;
  Scale x_, y_;
};

}  // namespace

const Extent& numbers_of(const Chart& chart, const RunRecord& run, const Column& column, Series series) {
  static const Extent kNone;
  if (chart.set.empty()) return column[series];
  const auto set = static_cast<size_t>(std::ranges::find(run.sets, chart.set) - run.sets.begin());
  if (set >= std::min(run.sets.size(), column.sets.size())) return kNone;
  return series == Series::kValidation ? column.sets[set].validation : column.sets[set].loss;
}

std::string draw(const Chart& chart, std::span<const RunRecord> runs, Abscissa abscissa, bool wide) {
  return Drawing(chart, runs, abscissa, wide).svg();
}

int64_t smoothed_steps(const RunRecord& run) {
  return (2 * neighbours(run) + 1) * run.columns.width();
}

}  // namespace ripstop
