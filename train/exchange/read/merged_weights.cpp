#include "train/exchange/read/merged_weights.h"

#include <algorithm>
#include <string>

#include "model/core/error.h"

namespace ripstop {
namespace {

// Both matrices of an adapter.
class AdapterProduct {
 public:
  AdapterProduct(const AdapterSpec& adapter, double scale, ReadAdapter read)
      : rank_(adapter.a.rows), columns_(adapter.a.columns), scale_(scale), b_(read(adapter.b)) {
    const std::vector<float> a = read(adapter.a);
    RIPSTOP_CHECK(std::ssize(a) == adapter.a.count() && std::ssize(b_) == adapter.b.count(),
                  "{}: {} and {} elements were read", adapter.matrix.name, a.size(), b_.size());
    a_.assign(a.begin(), a.end());
  }

  // Adds the product to the box of w; `to` is the place of its first element.
  void add(const Box& box, float* to) {
    for (int64_t row = 0; row < box.rows; ++row) {
      // The products of two floats are exact in float64. Row by row of a, so that neighbours in memory are
      // added at once; each sum keeps the order of the rank.
      sums_.assign(static_cast<size_t>(box.columns), 0.0);
      for (int64_t r = 0; r < rank_; ++r) {
        const double factor = b_[static_cast<size_t>((box.row + row) * rank_ + r)];
        const double* const a = a_.data() + r * columns_ + box.column;
        for (int64_t column = 0; column < box.columns; ++column)
          sums_[static_cast<size_t>(column)] += factor * a[column];
      }
      float* const w = to + row * box.stride;
      for (int64_t column = 0; column < box.columns; ++column)
        w[column] = static_cast<float>(w[column] + scale_ * sums_[static_cast<size_t>(column)]);
    }
  }

 private:
  int64_t rank_, columns_;
  double scale_;
  std::vector<float> b_;
  std::vector<double> a_, sums_;
};

}  // namespace

void add_adapters(const UnitLayout& layout, int64_t begin, int64_t end, float* to,
                  std::span<const AdapterSpec> adapters, double scale, ReadAdapter read) {
  const std::vector<Box> boxes = layout.boxes(begin, end);
  for (const AdapterSpec& adapter : adapters) {
    const auto is_its_own = [&](const Box& box) {
      return !box.empty() && box.parameter->name == adapter.matrix.name;
    };
    if (std::ranges::none_of(boxes, is_its_own)) continue;
    AdapterProduct product(adapter, scale, read);
    for (const Box& box : boxes)
      if (is_its_own(box)) product.add(box, to + (box.offset - begin));
  }
}

}  // namespace ripstop
