#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "model/device/device.h"
#include "model/device/dtype.h"

namespace ripstop {

/// Up to four extents, outermost first. A shape of zero dims has no elements.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    RIPSTOP_CHECK(extents.size() <= 4, "{} dims", extents.size());
    for (const auto e : extents) extents_[static_cast<size_t>(dims_++)] = e;
  }
  int dims() const { return dims_; }
  int64_t operator[](int dim) const { return extents_[static_cast<size_t>(dim)]; }
  int64_t count() const {
    int64_t n = dims_ > 0 ? 1 : 0;
    for (int d = 0; d < dims_; ++d) n *= (*this)[d];
    return n;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, 4> extents_{};
  int dims_ = 0;
};

/// A view of row-major elements, contiguous unless row_stride is set. Owns nothing. As with a pointer, the
/// elements of a `const Tensor&` may be written. A default Tensor is null ("no tensor"), and empty() is true.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape;
  Device device;
  int64_t row_stride = 0;  ///< elements from one row to the next in a view of some columns, else 0

  bool empty() const { return data == nullptr; }
  int64_t count() const { return shape.count(); }
  bool is_contiguous() const { return row_stride == 0; }
  /// Bytes of all elements. Requires a contiguous tensor (checked).
  int64_t bytes() const {
    RIPSTOP_CHECK(is_contiguous(), "the bytes of {} columns of {}", cols(), row_stride);
    return count() * element_bytes(dtype);
  }
  int64_t rows() const { return shape[0]; }
  /// Elements of one row: the product of all extents except the first.
  int64_t cols() const {
    int64_t n = 1;
    for (int d = 1; d < shape.dims(); ++d) n *= shape[d];
    return n;
  }

  /// Elements from the beginning of one row to the beginning of the next.
  int64_t stride() const { return row_stride != 0 ? row_stride : cols(); }

  /// T must be the stored type (checked). On kMeta the elements must not be read.
  template <class T>
  T* as() const {
    RIPSTOP_CHECK(dtype == DTypeOf<T>::value, "a {} tensor read as {}", to_string(dtype),
                  to_string(DTypeOf<T>::value));
    return static_cast<T*>(data);
  }
  /// The same elements in another shape. Requires a contiguous tensor and a shape of equal count (checked).
  Tensor viewed(const Shape& other) const {
    RIPSTOP_CHECK(other.count() == count() && is_contiguous(), "{} elements viewed as {}", count(),
                  other.count());
    return {data, dtype, other, device};
  }
  /// Rows [first, first + row_count) of the first dim (checked).
  Tensor row_range(int64_t first, int64_t row_count) const {
    RIPSTOP_CHECK(first >= 0 && row_count >= 0 && first + row_count <= rows(), "rows {}+{} of {}", first,
                  row_count, rows());
    void* begin = static_cast<std::byte*>(data) + first * stride() * element_bytes(dtype);
    const Shape part = shape.dims() == 1   ? Shape{row_count}
                       : shape.dims() == 2 ? Shape{row_count, shape[1]}
                       : shape.dims() == 3 ? Shape{row_count, shape[1], shape[2]}
                                           : Shape{row_count, shape[1], shape[2], shape[3]};
    return {begin, dtype, part, device, row_stride};
  }
  /// Columns [first, first + column_count) of a matrix (checked). Only the linear functions of ops.h
  /// take a view of some columns.
  Tensor column_range(int64_t first, int64_t column_count) const {
    RIPSTOP_CHECK(shape.dims() == 2 && first >= 0 && column_count >= 0 && first + column_count <= cols(),
                  "columns {}+{} of {}", first, column_count, cols());
    if (column_count == cols()) return *this;
    void* begin = static_cast<std::byte*>(data) + first * element_bytes(dtype);
    return {begin, dtype, {rows(), column_count}, device, stride()};
  }
};

/// A tensor at byte `offset_bytes` of a buffer. Throws Error(kBug) if the tensor does not fit.
inline Tensor tensor_in(const Buffer& buffer, int64_t offset_bytes, DType dtype, const Shape& shape) {
  const Tensor t{static_cast<std::byte*>(buffer.data()) + offset_bytes, dtype, shape, buffer.device()};
  RIPSTOP_CHECK(offset_bytes >= 0 && offset_bytes + t.bytes() <= buffer.bytes(),
                "{} bytes at {} of a buffer of {}", t.bytes(), offset_bytes, buffer.bytes());
  return t;
}

}  // namespace ripstop
