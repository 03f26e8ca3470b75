#include "train/page/columns.h"

#include <algorithm>
#include <cmath>

namespace ripstop {

// Greater numbers count as not finite, because their sums and differences may overflow.
constexpr double kGreatest = 1e300;

void Extent::add(double value) {
  if (!(std::abs(value) <= kGreatest)) {
    ++not_finite;
    return;
  }
  least = std::min(least, value);
  most = std::max(most, value);
  sum += value;
  ++count;
}

void Extent::add(const Extent& other) {
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  sum += other.sum;
  count += other.count;
  not_finite += other.not_finite;
}

Column& Columns::at(int64_t step, double tokens, double hours) {
  step = std::max<int64_t>(step, 0);
  const auto begins_column = [&] { return columns_.empty() || step / width_ > columns_.back().index; };
  while (begins_column() && columns_.size() >= most_) halve();
  if (begins_column()) columns_.emplace_back().index = step / width_;
  Column& column = columns_.back();
  column.step = std::max(column.step, step);
  column.tokens = std::max(column.tokens, tokens);
  column.hours = std::max(column.hours, hours);
  return column;
}

void Columns::halve() {
  width_ *= 2;
  size_t kept = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    Column& from = columns_[i];
    from.index /= 2;
    if (kept == 0 || columns_[kept - 1].index != from.index) {
      columns_[kept++] = from;
      continue;
    }
    Column& to = columns_[kept - 1];
    to.step = from.step;
    to.tokens = from.tokens;
    to.hours = from.hours;
    for (size_t s = 0; s < kSeriesCount; ++s) to.values[s].add(from.values[s]);
    for (size_t s = 0; s < from.sets.size(); ++s) {
      to.set(s).loss.add(from.sets[s].loss);
      to.set(s).validation.add(from.sets[s].validation);
    }
  }
  columns_.resize(kept);
}

}  // namespace ripstop
