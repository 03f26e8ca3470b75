// Stand-ins of cuBLASLt's calls that need a GPU. Descriptors, preferences and texts stay the real library's:
// what ripstop wrote into them is read back with the library's own functions. See CALLS.md for what the real
// ones do.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tests/emulated_device/cuda_runtime.h"
#include "tests/emulated_device/matrix_product.h"
#include "tests/emulated_device/scheduler.h"

struct cublasLtContext {
  int device = 0;
};

namespace ripstop::emulated {
namespace {

// The library's opaque 64 bytes, here. The three algorithms give equal bits, but differ in what they
// need.
struct Algorithm {
  uint64_t mark = kMark;
  uint32_t number = 0;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;
  uint32_t alignment_a = 1, alignment_b = 1, alignment_c = 1, alignment_d = 1;
  uint64_t workspace_bytes = 0;
  static constexpr uint64_t kMark = 0x656d'756c'6174'6564;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr uint64_t kWorkspaceAlignment = 16;

std::set<cublasLtHandle_t>& handles() {
  static auto& living = *new std::set<cublasLtHandle_t>;
  return living;
}
bool is_living(cublasLtHandle_t handle) {
  const DeviceLock lock;
  return handles().count(handle) > 0;
}

// One attribute, of the type that the library's header says it has.
template <class T, class Get, class Descriptor, class Attribute>
T attribute(Get get, Descriptor descriptor, Attribute name) {
  T value{};
  size_t written = 0;
  if (get(descriptor, name, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS ||
      written != sizeof value)
    refuse("cuBLASLt", fmt::format("attribute {} of a descriptor cannot be read", static_cast<int>(name)));
  return value;
}
template <class T>
T of_operation(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t name) {
  return attribute<T>(cublasLtMatmulDescGetAttribute, descriptor, name);
}
template <class T>
T of_layout(cublasLtMatrixLayout_t descriptor, cublasLtMatrixLayoutAttribute_t name) {
  return attribute<T>(cublasLtMatrixLayoutGetAttribute, descriptor, name);
}
template <class T>
T of_preference(cublasLtMatmulPreference_t descriptor, cublasLtMatmulPreferenceAttributes_t name) {
  return attribute<T>(cublasLtMatmulPreferenceGetAttribute, descriptor, name);
}

// A matrix as its layout describes it.
struct Layout {
  explicit Layout(cublasLtMatrixLayout_t layout)
      : type(static_cast<cudaDataType_t>(of_layout<uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE))),
        order(static_cast<cublasLtOrder_t>(of_layout<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER))),
        rows(static_cast<int64_t>(of_layout<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS))),
        columns(static_cast<int64_t>(of_layout<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS))),
        leading(of_layout<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD)),
        batches(of_layout<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)) {}

  int64_t element() const { return type == CUDA_R_16BF ? 2 : 4; }
  bool by_rows() const { return order == CUBLASLT_ORDER_ROW; }
  bool holds() const { return rows > 0 && columns > 0 && leading >= (by_rows() ? columns : rows); }
  bool is_supported() const {
    return (type == CUDA_R_16BF || type == CUDA_R_32F) && (order == CUBLASLT_ORDER_COL || by_rows()) &&
           batches == 1;
  }
  // From the first element to the end of the last.
  int64_t bytes() const {
    return element() * (by_rows() ? leading * (rows - 1) + columns : leading * (columns - 1) + rows);
  }
  Matrix at(const void* data, bool transposed) const {
    Matrix m{const_cast<void*>(data), type == CUDA_R_16BF,    rows, columns,
             by_rows() ? leading : 1, by_rows() ? 1 : leading};
    if (transposed) {
      std::swap(m.rows, m.columns);
      std::swap(m.row_step, m.column_step);
    }
    return m;
  }
  bool operator==(const Layout&) const = default;

  cudaDataType_t type;
  cublasLtOrder_t order;
  int64_t rows, columns, leading;
  int32_t batches;
};

// A product as its descriptors describe it.
struct Product {
  Product(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t b_layout,
          cublasLtMatrixLayout_t c_layout, cublasLtMatrixLayout_t d_layout)
      : a(a_layout), b(b_layout), c(c_layout), d(d_layout) {
    const auto transposes = [&](cublasLtMatmulDescAttributes_t name) {
      return static_cast<cublasOperation_t>(of_operation<int32_t>(operation, name)) != CUBLAS_OP_N;
    };
    transposes_a = transposes(CUBLASLT_MATMUL_DESC_TRANSA);
    transposes_b = transposes(CUBLASLT_MATMUL_DESC_TRANSB);
    plain =
        !transposes(CUBLASLT_MATMUL_DESC_TRANSC) &&
        of_operation<int32_t>(operation, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) == CUBLAS_COMPUTE_32F &&
        of_operation<int32_t>(operation, CUBLASLT_MATMUL_DESC_SCALE_TYPE) == CUDA_R_32F &&
        of_operation<int32_t>(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE) == CUBLASLT_POINTER_MODE_HOST &&
        of_operation<uint32_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_DEFAULT;
  }

  /// CUBLAS_STATUS_SUCCESS, or what the library answers to such a product.
  cublasStatus_t status() const {
    for (const Layout* layout : {&a, &b, &c, &d})
      if (!layout->holds()) return CUBLAS_STATUS_INVALID_VALUE;
    const int64_t m = transposes_a ? a.columns : a.rows, depth = transposes_a ? a.rows : a.columns;
    const int64_t n = transposes_b ? b.rows : b.columns, other = transposes_b ? b.columns : b.rows;
    if (depth != other || d.rows != m || d.columns != n || c.rows != m || c.columns != n)
      return CUBLAS_STATUS_INVALID_VALUE;
    for (const Layout* layout : {&a, &b, &c, &d})
      if (!layout->is_supported()) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool types =
        a.type == b.type && c.type == d.type && (a.type == CUDA_R_16BF || d.type == CUDA_R_32F);
    return plain && types ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }

  Layout a, b, c, d;
  bool transposes_a = false, transposes_b = false, plain = true;
};

Algorithm read(const cublasLtMatmulAlgo_t& algorithm) {
  Algorithm own;
  std::memcpy(static_cast<void*>(&own), &algorithm, sizeof own);
  return own;
}

bool is_aligned(const void* data, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

bool fits(const Algorithm& algorithm, const Product& product) {
  return algorithm.mark == Algorithm::kMark && algorithm.in == product.a.type &&
         algorithm.out == product.d.type;
}

// Addresses and extents that the real library does not look at: there a kernel would read or write other
// memory.
void check_memory(const char* name, const void* data, const Layout& layout) {
  if (on_device(data, layout.bytes())) return;
  refuse("cublasLtMatmul",
         fmt::format("{} of {} x {}, leading dimension {}, {} bytes at {}: not in one block of device memory",
                     name, layout.rows, layout.columns, layout.leading, layout.bytes(), data));
}

// Acts like a kernel that keeps partial sums there: no number is left.
void scribble(void* workspace, uint64_t bytes) {
  constexpr uint64_t kPart = 4096;
  if (bytes == 0) return;
  std::memset(workspace, 0xff, std::min(bytes, kPart));
  std::memset(static_cast<std::byte*>(workspace) + bytes - std::min(bytes, kPart), 0xff,
              std::min(bytes, kPart));
}

}  // namespace
}  // namespace ripstop::emulated

using namespace ripstop::emulated;  // NOLINT: the functions below are C's

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const DeviceLock lock;
  *handle = new cublasLtContext{current_device()};
  handles().insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const DeviceLock lock;
  if (handles().erase(handle) == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  if (!is_living(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (most <= 0 || results == nullptr || count == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  const Product product(operation, a, b, c, d);
  if (product.status() != CUBLAS_STATUS_SUCCESS) return product.status();
  const auto promised = [&](cublasLtMatmulPreferenceAttributes_t name) {
    return of_preference<uint32_t>(preference, name);
  };
  const uint64_t bytes = of_preference<uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  const uint64_t workspaces[] = {bytes / 2, bytes, 0};
  for (uint32_t number = 0; number < 3 && *count < most; ++number) {
    Algorithm own{.number = number, .in = product.a.type, .out = product.d.type};
    own.alignment_a = promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
    own.alignment_b = promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
    own.alignment_c = promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
    own.alignment_d = promised(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
    own.workspace_bytes = workspaces[number];
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    std::memcpy(&result.algo, &own, sizeof own);
    result.workspaceSize = own.workspace_bytes;
    result.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (!is_living(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algorithm == nullptr || result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product(operation, a, b, c, d);
  if (product.status() != CUBLAS_STATUS_SUCCESS) return product.status();
  const Algorithm own = read(*algorithm);
  if (!fits(own, product)) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = own.workspace_bytes;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (!is_living(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  for (const void* needed :
       {static_cast<const void*>(operation), alpha, a, b, beta, static_cast<const void*>(d)})
    if (needed == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product(operation, a_layout, b_layout, c_layout, d_layout);
  if (product.status() != CUBLAS_STATUS_SUCCESS) return product.status();
  // Without an algorithm the library asks its heuristics, which know no alignment.
  const Algorithm own =
      algorithm != nullptr ? read(*algorithm) : Algorithm{.in = product.a.type, .out = product.d.type};
  if (!fits(own, product) || workspace_bytes < own.workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Scheduler::instance().knows(stream, "cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (stream != nullptr && Scheduler::instance().device_of(stream) != handle->device)
    return CUBLAS_STATUS_ARCH_MISMATCH;
  if (own.workspace_bytes > 0 && !is_aligned(workspace, kWorkspaceAlignment))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const float alpha_now = *static_cast<const float*>(alpha), beta_now = *static_cast<const float*>(beta);
  if (c == d && !(product.c == product.d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (beta_now != 0 && c == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_aligned(a, own.alignment_a) || !is_aligned(b, own.alignment_b) || !is_aligned(d, own.alignment_d) ||
      !is_aligned(c, own.alignment_c))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  submit(stream, "cublasLtMatmul", [=] {
    check_memory("A", a, product.a);
    check_memory("B", b, product.b);
    check_memory("D", d, product.d);
    if (beta_now != 0) check_memory("C", c, product.c);
    if (own.workspace_bytes > 0 && !on_device(workspace, static_cast<int64_t>(own.workspace_bytes)))
      refuse("cublasLtMatmul", "the workspace is not in one block of device memory");
    scribble(workspace, own.workspace_bytes);
    multiply(product.a.at(a, product.transposes_a), product.b.at(b, product.transposes_b),
             product.c.at(c, false), product.d.at(d, false), alpha_now, beta_now);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
