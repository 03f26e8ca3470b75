// Tests of the stand-in of cuBLASLt: its products against plain loops in float64, through the real library's
// descriptors, and what it refuses.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "model/device/cuda_device.h"
#include "model/kernels/cuda/gemm_plans.h"
#include "model/kernels/cuda_workspace_sizes.h"

namespace ripstop::emulated {
namespace {

// A small GPU for all tests of the program: one of them fills its memory. Set before the device reads it.
[[maybe_unused]] const int memory_is_small = setenv("RIPSTOP_EMULATED_MEMORY", "512", /*overwrite=*/1);

void succeed(cudaError_t result) {
  ASSERT_EQ(result, cudaSuccess) << cudaGetErrorName(result);
}
void succeed(cublasStatus_t result) {
  ASSERT_EQ(result, CUBLAS_STATUS_SUCCESS) << cublasLtGetStatusString(result);
}

struct Case {
  int64_t m = 70, n = 300, k = 130;
  bool transpose_a = false, transpose_b = false, row_major = false;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;
  int64_t padding = 3;  // of each leading dimension
  float alpha = 1, beta = 0;
};

/// A matrix in device memory, written and read element by element.
class StoredMatrix {
 public:
  StoredMatrix(int64_t rows, int64_t columns, const Case& c, cudaDataType_t type)
      : rows_(rows), columns_(columns), leading_((c.row_major ? columns : rows) + c.padding), type_(type) {
    by_rows_ = c.row_major;
    succeed(cudaMalloc(&data, static_cast<size_t>(bytes())));
    host_.resize(static_cast<size_t>(bytes()));
    succeed(cublasLtMatrixLayoutInit(&layout, type, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), leading_));
    const int32_t order = by_rows_ ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    succeed(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
  }
  ~StoredMatrix() { succeed(cudaFree(data)); }
  StoredMatrix(const StoredMatrix&) = delete;
  StoredMatrix& operator=(const StoredMatrix&) = delete;

  double get(int64_t row, int64_t column) const {
    const size_t i = place(row, column);
    return type_ == CUDA_R_16BF ? static_cast<double>(static_cast<float>(as<BFloat16>()[i]))
                                : static_cast<double>(as<float>()[i]);
  }
  void set(int64_t row, int64_t column, float value) {
    const size_t i = place(row, column);
    if (type_ == CUDA_R_16BF) {
      as<BFloat16>()[i] = BFloat16(value);
    } else {
      as<float>()[i] = value;
    }
  }
  void fill(float step) {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < columns_; ++c) set(r, c, std::sin(step * static_cast<float>(r * columns_ + c)));
    put();
  }
  // NaN too where the leading dimension leaves a gap.
  void fill_with_nan() {
    std::fill(host_.begin(), host_.end(), std::byte{0xff});
    put();
  }
  void take() { copy(host_.data(), data, cudaMemcpyDeviceToHost); }

  cublasLtMatrixLayoutOpaque_t layout{};
  void* data = nullptr;

 private:
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(host_.data()));
  }
  size_t place(int64_t row, int64_t column) const {
    return static_cast<size_t>(by_rows_ ? row * leading_ + column : column * leading_ + row);
  }
  int64_t bytes() const { return (by_rows_ ? rows_ : columns_) * leading_ * (type_ == CUDA_R_16BF ? 2 : 4); }
  void put() { copy(data, host_.data(), cudaMemcpyHostToDevice); }
  void copy(void* to, const void* from, cudaMemcpyKind kind) const {
    succeed(cudaMemcpyAsync(to, from, host_.size(), kind, nullptr));
    succeed(cudaDeviceSynchronize());
  }

  int64_t rows_, columns_, leading_;
  cudaDataType_t type_;
  bool by_rows_ = false;
  std::vector<std::byte> host_;
};

class CublasLt : public testing::Test {
 protected:
  static constexpr size_t kWorkspaceBytes = 1 << 20;

  CublasLt() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    succeed(cublasLtCreate(&handle));
    succeed(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    succeed(cudaMalloc(&workspace, kWorkspaceBytes));
  }
  ~CublasLt() override {
    succeed(cublasLtDestroy(handle));
    succeed(cudaStreamSynchronize(stream));
    succeed(cudaStreamDestroy(stream));
    succeed(cudaFree(workspace));
  }

  static cublasLtMatmulDescOpaque_t operation_of(const Case& c) {
    cublasLtMatmulDescOpaque_t operation{};
    succeed(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t kinds[] = {CUBLAS_OP_N, CUBLAS_OP_T};
    succeed(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                           &kinds[c.transpose_a ? 1 : 0], sizeof kinds[0]));
    succeed(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                           &kinds[c.transpose_b ? 1 : 0], sizeof kinds[0]));
    return operation;
  }
  /// The algorithms for addresses that are multiples of `alignment`.
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(cublasLtMatmulDescOpaque_t& operation,
                                                          StoredMatrix& a, StoredMatrix& b, StoredMatrix& d,
                                                          uint32_t alignment = 4) {
    cublasLtMatmulPreferenceOpaque_t preference{};
    succeed(cublasLtMatmulPreferenceInit(&preference));
    const size_t bytes = kWorkspaceBytes;
    succeed(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &bytes, sizeof bytes));
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      succeed(cublasLtMatmulPreferenceSetAttribute(&preference, name, &alignment, sizeof alignment));
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int count = 0;
    status = cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a.layout, &b.layout, &d.layout, &d.layout,
                                            &preference, 8, results.data(), &count);
    results.resize(static_cast<size_t>(count));
    return results;
  }
  void expect_product(const Case& c);

  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
};

void CublasLt::expect_product(const Case& c) {
  StoredMatrix a(c.transpose_a ? c.k : c.m, c.transpose_a ? c.m : c.k, c, c.in);
  StoredMatrix b(c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n, c, c.in);
  StoredMatrix d(c.m, c.n, c, c.out);
  auto operation = operation_of(c);
  a.fill(0.7F);
  b.fill(0.3F);
  const auto choices = algorithms(operation, a, b, d);
  ASSERT_EQ(choices.size(), 3U);
  for (const auto& choice : choices) {
    if (c.beta == 0) {
      d.fill_with_nan();
    } else {
      d.fill(0.1F);
    }
    succeed(cublasLtMatmul(handle, &operation, &c.alpha, a.data, &a.layout, b.data, &b.layout, &c.beta,
                           d.data, &d.layout, d.data, &d.layout, &choice.algo, workspace,
                           choice.workspaceSize, stream));
    succeed(cudaStreamSynchronize(stream));
    d.take();
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < c.k; ++p)
          sum += (c.transpose_a ? a.get(p, i) : a.get(i, p)) * (c.transpose_b ? b.get(j, p) : b.get(p, j));
        double expected = static_cast<double>(c.alpha) * sum;
        if (c.beta != 0)
          expected += static_cast<double>(c.beta * std::sin(0.1F * static_cast<float>(i * c.n + j)));
        ASSERT_NEAR(d.get(i, j), expected, (c.out == CUDA_R_16BF ? 0.02 : 1e-4) * (1 + std::abs(expected)))
            << i << ", " << j;
      }
  }
}

TEST_F(CublasLt, MultipliesAsTheDescriptorsSay) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const bool row_major : {false, true})
        expect_product({.transpose_a = transpose_a, .transpose_b = transpose_b, .row_major = row_major});
  expect_product({.in = CUDA_R_16BF, .out = CUDA_R_16BF});
  expect_product({.transpose_b = true, .in = CUDA_R_16BF, .out = CUDA_R_32F, .alpha = 0.5F, .beta = 1});
  expect_product({.m = 1, .n = 1, .k = 1, .padding = 0, .beta = -2});
}

TEST_F(CublasLt, DifferentExtentsAndTypesAreRefused) {
  const Case c;
  auto operation = operation_of(c);
  StoredMatrix a(c.m, c.k, c, c.in), b(c.k, c.n, c, c.in), d(c.m, c.n, c, c.out),
      other(c.m, c.n + 1, c, c.out);
  StoredMatrix narrow(c.k, c.n, c, CUDA_R_16BF);
  algorithms(operation, a, b, other);
  EXPECT_EQ(status, CUBLAS_STATUS_INVALID_VALUE);
  algorithms(operation, a, narrow, d);
  EXPECT_EQ(status, CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLt, AlignmentWorkspaceAndAlgorithmAreHeldTo) {
  const Case c{.m = 8, .n = 8, .k = 8, .padding = 0};
  auto operation = operation_of(c);
  StoredMatrix a(8, 8, c, c.in), b(8, 8, c, c.in), d(8, 16, c, c.out), all(8, 8, c, c.out);
  const auto choices = algorithms(operation, a, b, all, 256);
  const auto run = [&](void* to, const cublasLtMatmulAlgo_t& algorithm, size_t bytes, ptrdiff_t offset = 0) {
    return cublasLtMatmul(handle, &operation, &c.alpha, a.data, &a.layout, b.data, &b.layout, &c.beta, to,
                          &all.layout, to, &all.layout, &algorithm,
                          static_cast<std::byte*>(workspace) + offset, bytes, stream);
  };
  EXPECT_EQ(run(static_cast<float*>(d.data) + 4, choices[0].algo, kWorkspaceBytes),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(run(d.data, choices[0].algo, choices[0].workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(d.data, choices[0].algo, kWorkspaceBytes, 8), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(run(d.data, cublasLtMatmulAlgo_t{}, kWorkspaceBytes), CUBLAS_STATUS_INVALID_VALUE);
  succeed(run(d.data, choices[0].algo, kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t result{};
  succeed(cublasLtMatmulAlgoCheck(handle, &operation, &a.layout, &b.layout, &all.layout, &all.layout,
                                  &choices[1].algo, &result));
  EXPECT_EQ(result.workspaceSize, choices[1].workspaceSize);
  const auto multiply_host_memory = [&] {
    float memory[64] = {};
    static_cast<void>(run(memory, algorithms(operation, a, b, all)[0].algo, kWorkspaceBytes));
    succeed(cudaStreamSynchronize(stream));
  };
  EXPECT_EXIT(multiply_host_memory(), testing::ExitedWithCode(70),
              "D of 8 x 8.*not in one block of device memory");
}

struct CountingWaiter final : CudaWaiter {
  void await(FunctionRef<bool()> done) override {
    ++waits;
    while (!done()) {
    }
  }
  int waits = 0;
};

// A card that is filled to the brim: an accumulating product cannot be timed, and costs no wait for ever.
TEST_F(CublasLt, WithoutSpareMemoryTheHostDoesNotWaitForProducts) {
  const Stream compute(Device::cuda(0));
  const auto waiter = std::make_shared<CountingWaiter>();
  cuda_stream(compute).set_waiter(waiter);
  constexpr int64_t kRows = 64, kOut = 32, kIn = 16;
  MemoryLedger ledger;
  const Buffer memory(Device::cuda(0), ledger, MemoryCategory::kWorkspace, 1 << 16),
      workspace(Device::cuda(0), ledger, MemoryCategory::kWorkspace, cuda::kGemmWorkspaceBytes);
  const Tensor dy = tensor_in(memory, 0, DType::kFloat32, {kRows, kOut}),
               x = tensor_in(memory, 1 << 14, DType::kFloat32, {kRows, kIn}),
               dw = tensor_in(memory, 1 << 15, DType::kFloat32, {kOut, kIn});
  cuda::GemmPlans plans(0);
  size_t free = 0, total = 0;
  succeed(cudaMemGetInfo(&free, &total));
  void* rest = nullptr;
  succeed(cudaMalloc(&rest, free));
  for (int use = 0; use < 20; ++use)
    plans.multiply({compute, workspace.data()}, cuda::backward_weight_gemm(dy, x, dw), x.data, dy.data,
                   dw.data, Accumulate::kYes);
  EXPECT_EQ(waiter->waits, 0);
  succeed(cudaFree(rest));
  // Nor is the product timed now.
  for (int use = 0; use < 20; ++use)
    plans.multiply({compute, workspace.data()}, cuda::backward_weight_gemm(dy, x, dw), x.data, dy.data,
                   dw.data, Accumulate::kYes);
  EXPECT_EQ(waiter->waits, 0);
}

TEST_F(CublasLt, AHandleThatWasDestroyedIsRefused) {
  cublasLtHandle_t other = nullptr;
  succeed(cublasLtCreate(&other));
  succeed(cublasLtDestroy(other));
  EXPECT_EQ(cublasLtDestroy(other), CUBLAS_STATUS_NOT_INITIALIZED);
}

}  // namespace
}  // namespace ripstop::emulated
