// oneDNN's matmul splits the work over the OpenMP threads. Weights stay row-major, because oneDNN's packed
// layout is at most a tenth faster, and weights would have to be packed after each gather. Where oneDNN
// cannot multiply bfloat16, float32 copies of the operands are multiplied.
#include "model/kernels/cpu/linear.h"

#include <omp.h>

#include <compare>
#include <cstring>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>

#include "model/core/rounding.h"
#include "model/kernels/cpu/processor.h"

namespace ripstop::onednn {
namespace {

using Tag = dnnl::memory::format_tag;

/// The product c [m, n] (+)= a [m, k] * b [k, n]. A transposed operand is stored as [k, m] or [n, k]. Strides
/// are elements from one stored row to the next.
struct Product {
  int64_t m = 0, k = 0, n = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool a_transposed = false, b_transposed = false, accumulate = false;
  DType in = DType::kFloat32, out = DType::kFloat32;

  auto operator<=>(const Product&) const = default;
};

dnnl::memory::desc matrix(int64_t rows, int64_t columns, DType dtype, bool transposed, int64_t stride) {
  const auto type = dtype == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  if (stride == (transposed ? rows : columns)) return {{rows, columns}, type, transposed ? Tag::ba : Tag::ab};
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, type, strides};
}

/// Product `p` for float32 copies of its operands, with contiguous rows. A float32 c is not copied.
Product widened(Product p) {
  p.a_stride = p.a_transposed ? p.m : p.k;
  p.b_stride = p.b_transposed ? p.k : p.n;
  if (p.out == DType::kBFloat16) p.c_stride = p.n;
  p.in = p.out = DType::kFloat32;
  return p;
}

struct Primitive {
  dnnl::memory::desc a, b, c, scratch;
  dnnl::matmul run;
  bool of_copies = false;  ///< whether `run` computes widened(product) on float32 copies
};

/// Compiled primitives, one for each product and number of threads, since their code depends on both. One
/// cache per process, because a KernelCall has no object that could own a cache. Results do not depend on the
/// cache. Thread-safe; emptied when full.
class PrimitiveCache {
 public:
  static PrimitiveCache& of_process() {
    static PrimitiveCache cache;
    return cache;
  }

  dnnl::engine& engine() { return engine_; }

  /// Returns a cheap copy, because another thread may empty the cache at any time.
  Primitive get(const Product& product) {
    const std::lock_guard lock(mutex_);
    const std::pair key{product, omp_get_max_threads()};
    const auto found = primitives_.find(key);
    if (found != primitives_.end()) return found->second;
    if (primitives_.size() >= kCapacity) primitives_.clear();
    return primitives_.emplace(key, make_or_widen(product)).first->second;
  }

 private:
  static constexpr size_t kCapacity = 1024;

  /// Compiles p, or widened(p) if oneDNN has no primitive for p. Tries p first even if another product had no
  /// primitive, because support may depend on the shape, and results must not depend on earlier products.
  Primitive make_or_widen(const Product& p) {
    try {
      return make(p);
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented || p.in == DType::kFloat32)
        fail(ExitCode::kResources, "oneDNN cannot multiply {} [{} x {} x {}] on this processor: {}",
             to_string(p.in), p.m, p.k, p.n, error.what());
    }
    Primitive primitive = make_or_widen(widened(p));
    primitive.of_copies = true;
    return primitive;
  }

  Primitive make(const Product& p) {
    const auto a = matrix(p.m, p.k, p.in, p.a_transposed, p.a_stride);
    const auto b = matrix(p.k, p.n, p.in, p.b_transposed, p.b_stride);
    const auto c = matrix(p.m, p.n, p.out, false, p.c_stride);
    dnnl::primitive_attr attributes;
    // The caller passes the scratchpad, because a memory plan would not count one that oneDNN allocates.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
// oneDNN 3 removed operation descriptors.
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc descriptor(engine_, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(a, b, c), attributes, engine_);
#endif
    return {a, b, c, descriptor.scratchpad_desc(), dnnl::matmul(descriptor)};
  }

  std::mutex mutex_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  std::map<std::pair<Product, int>, Primitive> primitives_;
};

/// Offsets in bytes: oneDNN's scratchpad is at 0, and the float32 copies of a, b and c follow.
struct Workspace {
  int64_t a = 0, b = 0, c = 0, bytes = 0;
};

Workspace workspace_of(const Product& p, const Primitive& primitive) {
  Workspace at;
  at.bytes = static_cast<int64_t>(primitive.scratch.get_size());
  if (!primitive.of_copies) return at;
  const auto place = [&](int64_t elements) {
    const int64_t begin = round_up(at.bytes, kMemoryAlignment);
    at.bytes = begin + elements * element_bytes(DType::kFloat32);
    return begin;
  };
  at.a = place(p.m * p.k);
  at.b = place(p.k * p.n);
  if (p.out == DType::kBFloat16) at.c = place(p.m * p.n);
  return at;
}

int64_t scratch_bytes(const Product& p) {
  if (p.m == 0 || p.k == 0 || p.n == 0) return 0;
  return workspace_of(p, PrimitiveCache::of_process().get(p)).bytes;
}

/// Converts `from` to the dtype of `to`, which has the same rows and columns.
void convert_rows(const KernelCall& call, const Tensor& from, const Tensor& to) {
  const auto convert = cpu_kernels().convert;
  if (from.is_contiguous() && to.is_contiguous()) return convert(call, from, to);
  for (int64_t r = 0; r < from.rows(); ++r) {
    const Tensor from_row = from.row_range(r, 1), to_row = to.row_range(r, 1);
    convert(call, {from_row.data, from.dtype, {from.cols()}, from.device},
            {to_row.data, to.dtype, {to.cols()}, to.device});
  }
}

void multiply(const KernelCall& call, const Product& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  if (p.m == 0 || p.n == 0) return;
  // oneDNN refuses k = 0, where the product is 0.
  if (p.k == 0) {
    if (!p.accumulate) std::memset(c.data, 0, static_cast<size_t>(c.bytes()));
    return;
  }
  PrimitiveCache& cache = PrimitiveCache::of_process();
  const Primitive primitive = cache.get(p);
  Tensor left = a, right = b, result = c;
  if (primitive.of_copies) {
    const Workspace at = workspace_of(p, primitive);
    const auto copy = [&](const Tensor& t, int64_t offset) {
      return Tensor{
          static_cast<std::byte*>(call.workspace) + offset, DType::kFloat32, {t.rows(), t.cols()}, t.device};
    };
    convert_rows(call, a, left = copy(a, at.a));
    convert_rows(call, b, right = copy(b, at.b));
    if (p.out == DType::kBFloat16) {
      result = copy(c, at.c);
      if (p.accumulate) convert_rows(call, c, result);
    }
  }
  const auto memory = [&](const dnnl::memory::desc& desc, void* data) {
    return dnnl::memory(desc, cache.engine(), data);
  };
  dnnl::stream stream(cache.engine());
  primitive.run.execute(stream, {{DNNL_ARG_SRC, memory(primitive.a, left.data)},
                                 {DNNL_ARG_WEIGHTS, memory(primitive.b, right.data)},
                                 {DNNL_ARG_DST, memory(primitive.c, result.data)},
                                 {DNNL_ARG_SCRATCHPAD, memory(primitive.scratch, call.workspace)}});
  stream.wait();
  if (result.data != c.data) convert_rows(call, result, c);
}

enum class Transposed : uint8_t { kNone, kA, kB };

Product product(const Tensor& a, const Tensor& b, const Tensor& c, Transposed transposed,
                Accumulate accumulate) {
  return {.m = c.rows(),
          .k = transposed == Transposed::kA ? a.rows() : a.cols(),
          .n = c.cols(),
          .a_stride = a.stride(),
          .b_stride = b.stride(),
          .c_stride = c.stride(),
          .a_transposed = transposed == Transposed::kA,
          .b_transposed = transposed == Transposed::kB,
          .accumulate = accumulate == Accumulate::kYes,
          .in = a.dtype,
          .out = c.dtype};
}

}  // namespace

void linear(const KernelCall& call, const Tensor& x, const Tensor& w, const Tensor& y,
            Accumulate accumulate) {
  multiply(call, product(x, w, y, Transposed::kB, accumulate), x, w, y);
}
void linear_backward_input(const KernelCall& call, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           Accumulate accumulate) {
  multiply(call, product(dy, w, dx, Transposed::kNone, accumulate), dy, w, dx);
}
void linear_backward_weight(const KernelCall& call, const Tensor& dy, const Tensor& x, const Tensor& dw,
                            Accumulate accumulate) {
  multiply(call, product(dy, x, dw, Transposed::kA, accumulate), dy, x, dw);
}

int64_t linear_bytes(const Tensor& x, const Tensor& w, const Tensor& y, Accumulate accumulate) {
  return scratch_bytes(product(x, w, y, Transposed::kB, accumulate));
}
int64_t linear_backward_input_bytes(const Tensor& dy, const Tensor& w, const Tensor& dx,
                                    Accumulate accumulate) {
  return scratch_bytes(product(dy, w, dx, Transposed::kNone, accumulate));
}
int64_t linear_backward_weight_bytes(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                     Accumulate accumulate) {
  return scratch_bytes(product(dy, x, dw, Transposed::kA, accumulate));
}

std::string library_instruction_set() {
  const dnnl::version_t* version = dnnl::version();
  return fmt::format("oneDNN {}.{}.{} isa {:#x}", version->major, version->minor, version->patch,
                     static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
}

}  // namespace ripstop::onednn
