#include "tests/emulated_device/cudnn_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "tests/emulated_device/cudnn_arithmetic.h"

namespace ripstop::emulated {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

// The part of a tensor that belongs to one document and one group of heads: [heads, rows, columns].
struct Slice {
  int64_t heads = 1, rows = 1, columns = 1;
  std::vector<float> values;

  Slice() = default;
  Slice(int64_t h, int64_t r, int64_t c, float fill)
      : heads(h), rows(r), columns(c), values(at(h * r * c), fill) {}
  int64_t place(int64_t h, int64_t i, int64_t j) const { return (h * rows + i) * columns + j; }
  float& operator()(int64_t h, int64_t i, int64_t j) { return values[at(place(h, i, j))]; }
  /// The element that broadcasting gives: an extent of 1 serves every index.
  float broadcast(int64_t h, int64_t i, int64_t j) const {
    return values[at(place(heads == 1 ? 0 : h, rows == 1 ? 0 : i, columns == 1 ? 0 : j))];
  }
};

// The number of groups of heads that can be computed one after another: the least number of heads of an
// operand of a product or a reduction. Heads of a group are neighbours, so query head h uses key-value head
// h / (H / K). Source: cuDNN's documentation of grouped-query attention.
int64_t head_groups(const GraphRecord& graph) {
  int64_t groups = 0;
  const auto count = [&](const TensorHandle& t) {
    groups = groups == 0 ? t->extents[1] : std::min(groups, t->extents[1]);
  };
  for (const OperationRecord& o : graph.operations) {
    if (o.kind != OperationRecord::Kind::kMatmul && o.kind != OperationRecord::Kind::kReduction) continue;
    count(o.x);
    if (o.b != nullptr) count(o.b);
    count(o.y);
  }
  return std::max<int64_t>(groups, 1);
}

// The operations of one pass over all documents and heads, in order.
using Pass = std::vector<size_t>;

// The kernels of a plan, as it were: what one operation leaves in memory, another reads when the whole tensor
// is there. What lies between operations is computed anew in every pass that needs it.
std::vector<Pass> passes(const GraphRecord& graph) {
  const std::vector<OperationRecord>& all = graph.operations;
  std::map<int64_t, size_t> writer;
  for (size_t i = 0; i < all.size(); ++i) writer[all[i].y->id] = i;
  const auto writers = [&](size_t i) {
    std::vector<size_t> found;
    for (const TensorHandle& t : {all[i].x, all[i].b, all[i].t})
      if (t != nullptr && writer.count(t->id) > 0 && writer[t->id] < i) found.push_back(writer[t->id]);
    return found;
  };
  std::vector<size_t> number(all.size(), 0);
  for (size_t i = 0; i < all.size(); ++i)
    for (const size_t w : writers(i))
      number[i] = std::max(number[i], number[w] + (all[w].y->is_virtual ? 0 : 1));
  std::vector<Pass> result;
  for (size_t p = 0; p <= *std::max_element(number.begin(), number.end()); ++p) {
    std::vector<bool> needed(all.size(), false);
    for (size_t i = all.size(); i-- > 0;) {
      if (!all[i].y->is_virtual && number[i] == p) needed[i] = true;
      if (!needed[i]) continue;
      for (const size_t w : writers(i))
        if (all[w].y->is_virtual) needed[w] = true;
    }
    result.emplace_back();
    for (size_t i = 0; i < all.size(); ++i)
      if (needed[i]) result.back().push_back(i);
  }
  return result;
}

// Runs operations for one document and one group of heads. Nothing is summed over documents, so these slices
// are independent.
class SliceRun {
 public:
  SliceRun(const GraphRecord& graph, const GraphMemory& memory, int64_t document, int64_t group,
           int64_t groups)
      : graph_(graph), memory_(memory), document_(document), group_(group), groups_(groups) {
    for (const OperationRecord& o : graph.operations)
      if (o.m != nullptr && length_ == nullptr) length_ = o.m;
  }

  void run(const Pass& pass) {
    for (const size_t index : pass) {
      const OperationRecord& o = graph_.operations[index];
      switch (o.kind) {
        case OperationRecord::Kind::kMatmul:
          write(o.y, matmul(o));
          break;
        case OperationRecord::Kind::kPointwise:
          write(o.y, pointwise(o));
          break;
        case OperationRecord::Kind::kReduction:
          write(o.y, reduction(o));
          break;
        case OperationRecord::Kind::kReshape:
          write(o.y, reshape(o));
      }
    }
  }

 private:
  int64_t heads_of(const GraphTensorRecord& t) const {
    return t.extents[1] == 1 ? 1 : t.extents[1] / groups_;
  }
  Slice empty(const GraphTensorRecord& t, float fill = 0) const {
    return {heads_of(t), t.extents[2], t.extents[3], fill};
  }

  std::byte* checked(const GraphTensorRecord& t, int64_t element) const {
    const auto found = memory_.pointers.find(t.id);
    if (found == memory_.pointers.end())
      throw std::runtime_error(fmt::format("no memory is bound to tensor {}", t.id));
    std::byte* data = static_cast<std::byte*>(found->second) + element * bytes_of(t.type);
    if (!memory_.allowed(data, bytes_of(t.type)))
      throw std::runtime_error(fmt::format("tensor {} of document {}: element {} lies outside of its memory",
                                           t.id, document_, element));
    return data;
  }
  // The length of this document, or `extent`.
  int64_t length(const TensorHandle& lengths, int64_t extent) const {
    if (lengths == nullptr) return extent;
    const int64_t index = lengths->extents[0] == 1 ? 0 : document_;
    const auto value = read<int32_t>(checked(*lengths, index * lengths->strides[0]));
    if (value < 0 || value > extent)
      throw std::runtime_error(
          fmt::format("document {} has length {}, at most {} is allowed", document_, value, extent));
    return value;
  }

  // The first element of this document. If a ragged tensor with one part per query head is summed over groups
  // of heads, cuDNN multiplies its offsets by the size of a group. Source: cudnn-frontend,
  // scaled_dot_product_flash_attention.h, "implicit multiplier".
  int64_t beginning(const GraphTensorRecord& t) const {
    if (t.ragged_offset == nullptr) return t.extents[0] == 1 ? 0 : document_ * t.strides[0];
    const GraphTensorRecord& offset = *t.ragged_offset;
    const std::byte* place = checked(offset, document_ * offset.strides[0]);
    const int64_t begin = offset.type == CUDNN_DATA_INT64 ? read<int64_t>(place) : read<int32_t>(place);
    for (const OperationRecord& o : graph_.operations)
      if (o.kind == OperationRecord::Kind::kReduction && o.x->id == t.id && o.y->extents[1] < t.extents[1])
        return begin * (t.extents[1] / o.y->extents[1]);
    return begin;
  }

  // The dim of a ragged tensor in which documents have a length: that of the larger stride.
  static size_t ragged_dim(const GraphTensorRecord& t) {
    if (t.extents[3] == 1) return 2;
    return t.extents[2] == 1 || t.strides[3] > t.strides[2] ? 3 : 2;
  }

  // Calls visit(slice index, element) for each element of this slice that is in memory.
  template <class Visit>
  void each_in_memory(const GraphTensorRecord& t, const Slice& slice, Visit visit) const {
    int64_t rows = slice.rows, columns = slice.columns;
    if (t.ragged_offset != nullptr) {
      int64_t& ragged = ragged_dim(t) == 2 ? rows : columns;
      ragged = length(length_, ragged);
    }
    const int64_t begin = beginning(t), first_head = t.extents[1] == 1 ? 0 : group_ * slice.heads;
    for (int64_t h = 0; h < slice.heads; ++h)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          visit(slice.place(h, i, j),
                begin + (first_head + h) * t.strides[1] + i * t.strides[2] + j * t.strides[3]);
  }

  const Slice& value(const TensorHandle& t) {
    const auto known = slices_.find(t->id);
    if (known != slices_.end()) return known->second;
    Slice& slice = slices_[t->id];
    if (t->by_value) {
      slice = Slice(1, 1, 1, memory_.scalars.at(t->id));
    } else {
      slice = empty(*t, kNan);
      check_range(*t, slice);
      each_in_memory(*t, slice, [&](int64_t index, int64_t element) {
        slice.values[at(index)] = load(memory_at(*t, element), t->type);
      });
    }
    return slice;
  }

  void write(const TensorHandle& t, Slice slice) {
    if (t->type == CUDNN_DATA_BFLOAT16)
      for (float& v : slice.values) v = rounded(v, t->type);
    if (!t->in_memory()) {
      slices_[t->id] = std::move(slice);
      return;
    }
    check_range(*t, slice);
    each_in_memory(*t, slice, [&](int64_t index, int64_t element) {
      store(memory_at(*t, element), slice.values[at(index)], t->type);
    });
  }

  std::byte* memory_at(const GraphTensorRecord& t, int64_t element) const {
    return static_cast<std::byte*>(memory_.pointers.at(t.id)) + element * bytes_of(t.type);
  }
  // One check for all elements that are touched: from the first to the last.
  void check_range(const GraphTensorRecord& t, const Slice& slice) const {
    int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
    each_in_memory(t, slice, [&](int64_t, int64_t element) {
      first = std::min(first, element);
      last = std::max(last, element);
    });
    if (last < first) return;
    static_cast<void>(checked(t, first));
    if (!memory_.allowed(memory_at(t, first), (last - first + 1) * bytes_of(t.type)))
      throw std::runtime_error(
          fmt::format("tensor {} of document {}: elements {} to {} are not one piece of memory", t.id,
                      document_, first, last));
  }

  Slice matmul(const OperationRecord& o) {
    const bool narrow = o.x->type == CUDNN_DATA_BFLOAT16 || o.b->type == CUDNN_DATA_BFLOAT16;
    // Values of a bfloat16 tensor are rounded already.
    const auto operand = [&](const TensorHandle& t, Slice& copy) -> const Slice& {
      const Slice& s = value(t);
      if (!narrow || t->type == CUDNN_DATA_BFLOAT16) return s;
      copy = s;
      for (float& v : copy.values) v = rounded(v, CUDNN_DATA_BFLOAT16);
      return copy;
    };
    Slice copy_of_a, copy_of_b;
    const Slice &a = operand(o.x, copy_of_a), &b = operand(o.b, copy_of_b);
    Slice c = empty(*o.y, o.padding ? static_cast<float>(*o.padding) : kNan);
    const int64_t m = length(o.m, a.rows), n = length(o.n, b.columns), k = length(o.k, a.columns);
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < m; ++i) {
        float* row = &c.values[at(c.place(h, i, 0))];
        std::fill_n(row, n, 0.0F);
        for (int64_t l = 0; l < k; ++l) {
          const float factor = a.broadcast(h, i, l);
          const float* other = &b.values[at(b.place(b.heads == 1 ? 0 : h, l, 0))];
          for (int64_t j = 0; j < n; ++j) row[j] += factor * other[j];
        }
      }
    return c;
  }

  // A row of a slice, as broadcasting gives it to row i of head h: element j is at j * step.
  struct Row {
    Row(const Slice& slice, int64_t h, int64_t i)
        : first(&slice.values[at(slice.place(slice.heads == 1 ? 0 : h, slice.rows == 1 ? 0 : i, 0))]),
          step(slice.columns == 1 ? 0 : 1) {}
    float operator[](int64_t j) const { return first[j * step]; }
    const float* first;
    int64_t step;
  };
  // y = element(x, b) of each place.
  template <class Element>
  static void each_pair(Slice& y, const Slice& x, const Slice& b, Element element) {
    for (int64_t h = 0; h < y.heads; ++h)
      for (int64_t i = 0; i < y.rows; ++i) {
        const Row of_x(x, h, i), of_b(b, h, i);
        float* to = &y(h, i, 0);
        for (int64_t j = 0; j < y.columns; ++j) to[j] = element(of_x[j], of_b[j]);
      }
  }

  Slice pointwise(const OperationRecord& o) {
    Slice y = empty(*o.y);
    if (o.mode == CUDNN_POINTWISE_GEN_INDEX) {
      const int64_t first_head = o.y->extents[1] == 1 ? 0 : group_ * y.heads;
      for (int64_t h = 0; h < y.heads; ++h)
        for (int64_t i = 0; i < y.rows; ++i)
          for (int64_t j = 0; j < y.columns; ++j)
            y(h, i, j) = static_cast<float>(o.axis == 0   ? document_
                                            : o.axis == 1 ? first_head + h
                                            : o.axis == 2 ? i
                                                          : j);
      return y;
    }
    const Slice& x = value(o.x);
    if (o.b == nullptr) {
      each_pair(y, x, x, [&](float v, float) { return unary(o.mode, v); });
      return y;
    }
    const Slice& b = value(o.b);
    if (o.t != nullptr) {
      const Slice& t = value(o.t);
      for (int64_t h = 0; h < y.heads; ++h)
        for (int64_t i = 0; i < y.rows; ++i) {
          const Row of_x(x, h, i), of_b(b, h, i), of_t(t, h, i);
          for (int64_t j = 0; j < y.columns; ++j) y(h, i, j) = of_t[j] != 0 ? of_x[j] : of_b[j];
        }
      return y;
    }
    // Products of attention, in loops that a compiler makes fast.
    if (o.mode == CUDNN_POINTWISE_MUL) {
      each_pair(y, x, b, [](float v, float w) { return v * w; });
    } else if (o.mode == CUDNN_POINTWISE_SUB) {
      each_pair(y, x, b, [](float v, float w) { return v - w; });
    } else if (o.mode == CUDNN_POINTWISE_CMP_GE) {
      each_pair(y, x, b, [](float v, float w) { return v >= w ? 1.0F : 0.0F; });
    } else if (o.mode == CUDNN_POINTWISE_CMP_LT) {
      each_pair(y, x, b, [](float v, float w) { return v < w ? 1.0F : 0.0F; });
    } else {
      each_pair(y, x, b, [&](float v, float w) { return binary(o.mode, v, w); });
    }
    return y;
  }

  Slice reduction(const OperationRecord& o) {
    const Slice& x = value(o.x);
    const bool largest = o.reduce == CUDNN_REDUCE_TENSOR_MAX;
    Slice y = empty(*o.y, largest ? -std::numeric_limits<float>::infinity() : 0);
    for (int64_t h = 0; h < x.heads; ++h)
      for (int64_t i = 0; i < x.rows; ++i) {
        const float* from = &x.values[at(x.place(h, i, 0))];
        float* to = &y(h * y.heads / x.heads, y.rows == 1 ? 0 : i, 0);
        const int64_t step = y.columns == 1 ? 0 : 1;
        for (int64_t j = 0; j < x.columns; ++j)
          to[j * step] = largest ? std::fmax(to[j * step], from[j]) : to[j * step] + from[j];
      }
    return y;
  }

  // The same addresses with other extents: element (i, j) of y is the element of x at its address.
  Slice reshape(const OperationRecord& o) {
    const GraphTensorRecord &x = *o.x, &y = *o.y;
    const bool same = x.extents == y.extents && x.strides == y.strides;
    const bool exchanged = x.extents[2] == y.extents[3] && x.extents[3] == y.extents[2] &&
                           x.strides[2] == y.strides[3] && x.strides[3] == y.strides[2];
    const bool outer = x.extents[0] == y.extents[0] && x.extents[1] == y.extents[1] &&
                       x.strides[0] == y.strides[0] && x.strides[1] == y.strides[1];
    if (!outer || (!same && !exchanged))
      throw std::runtime_error(
          fmt::format("the reshape of tensor {} to {} does not keep addresses", x.id, y.id));
    const Slice& from = value(o.x);
    if (same) return from;
    Slice to = empty(y);
    for (int64_t h = 0; h < to.heads; ++h)
      for (int64_t i = 0; i < to.rows; ++i)
        for (int64_t j = 0; j < to.columns; ++j) to(h, i, j) = from.broadcast(h, j, i);
    return to;
  }

  const GraphRecord& graph_;
  const GraphMemory& memory_;
  int64_t document_, group_, groups_;
  TensorHandle length_;  ///< of documents, for ragged tensors
  std::map<int64_t, Slice> slices_;
};

std::optional<std::string> not_interpreted(const OperationRecord& o, const GraphRecord& graph) {
  const bool exact = o.x != nullptr && o.y != nullptr;
  if (!exact) return "an operation without operands";
  if (o.kind == OperationRecord::Kind::kPointwise) {
    const bool known = o.mode == CUDNN_POINTWISE_GEN_INDEX       ? o.axis >= 0 && o.axis < 4
                       : o.mode == CUDNN_POINTWISE_BINARY_SELECT ? o.b != nullptr && o.t != nullptr
                       : is_binary(o.mode)                       ? o.b != nullptr
                                                                 : is_unary(o.mode) && o.b == nullptr;
    if (!known) return fmt::format("pointwise mode {} with these operands", static_cast<int>(o.mode));
  }
  if (o.kind == OperationRecord::Kind::kReduction && o.reduce != CUDNN_REDUCE_TENSOR_ADD &&
      o.reduce != CUDNN_REDUCE_TENSOR_MAX)
    return fmt::format("reduction {}", static_cast<int>(o.reduce));
  if (o.kind == OperationRecord::Kind::kReduction && o.x->extents[0] != o.y->extents[0])
    return "a reduction over the first dim";
  if (o.kind == OperationRecord::Kind::kMatmul &&
      (o.x->extents[3] != o.b->extents[2] || o.x->extents[2] != o.y->extents[2] ||
       o.b->extents[3] != o.y->extents[3]))
    return "a product of extents that do not fit";
  for (const TensorHandle& t : {o.x, o.b, o.t, o.y})
    if (t != nullptr && t->extents[1] != 1 && t->extents[1] % head_groups(graph) != 0)
      return fmt::format("{} heads in {} groups", t->extents[1], head_groups(graph));
  return std::nullopt;
}

}  // namespace

std::optional<std::string> not_interpreted(const GraphRecord& graph) {
  std::map<int64_t, bool> written;
  TensorHandle lengths;
  for (const OperationRecord& o : graph.operations) {
    if (auto why = not_interpreted(o, graph)) return why;
    for (const TensorHandle& t : {o.x, o.b, o.t})
      if (t != nullptr && t->is_virtual && o.mode != CUDNN_POINTWISE_GEN_INDEX && !written[t->id])
        return fmt::format("virtual tensor {} is read before it is written", t->id);
    for (const TensorHandle& t : {o.m, o.n, o.k}) {
      if (t == nullptr) continue;
      if (lengths == nullptr) lengths = t;
      if (t->id != lengths->id) return "queries and keys of different lengths";
    }
    written[o.y->id] = true;
  }
  return std::nullopt;
}

void interpret(const GraphRecord& graph, const GraphMemory& memory) {
  const int64_t groups = head_groups(graph), documents = graph.operations.front().y->extents[0];
  for (const Pass& pass : passes(graph))
    for (int64_t d = 0; d < documents; ++d)
      for (int64_t g = 0; g < groups; ++g) SliceRun(graph, memory, d, g, groups).run(pass);
}

}  // namespace ripstop::emulated
