// Products of matrices by cuBLASLt: plans by product, and the choice of their algorithms by measurement.
#pragma once
#include <cublasLt.h>

#include <map>
#include <optional>
#include <vector>

#include "model/kernels/cuda/gemm.h"
#include "model/kernels/cuda/gemm_choices.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// What cuBLASLt must be told of a Gemm: pure descriptions, without an algorithm. Needs no GPU.
struct GemmDescriptors {
  explicit GemmDescriptors(const Gemm& gemm);
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;
};

/// Plans of one stream, made when a product is first asked for. An algorithm is taken from the file of
/// choices; else cuBLASLt's own first guess serves until the product has been asked for kUsesBeforeMeasuring
/// times, and the fastest of its best guesses after that. Not measured: on deterministic devices, where the
/// choice must not depend on time, and where the number of rows is no multiple of kMeasuredRows, as it hardly
/// comes again.
class GemmPlans {
 public:
  static constexpr int64_t kUsesBeforeMeasuring = 3;
  static constexpr int64_t kMeasuredRows = 64;

  explicit GemmPlans(int device);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  /// D (+)= op(A) op(B) with the call's stream and kGemmWorkspaceBytes of workspace. Throws Error(kResources)
  /// where cuBLASLt has no algorithm for it.
  void multiply(const KernelCall& call, const Gemm& gemm, const void* a, const void* b, void* d,
                Accumulate accumulate);

 private:
  struct Plan {
    explicit Plan(const Gemm& gemm) : descriptors(gemm) {}
    GemmDescriptors descriptors;
    cublasLtMatmulAlgo_t algorithm{};
    int64_t uses = 0;
    bool settled = false;
  };
  /// A product with its operands.
  struct Work {
    const KernelCall& call;
    const Gemm& gemm;
    const void *a, *b;
    void* d;
  };

  Plan make(const Gemm& gemm, bool measures);
  std::optional<cublasLtMatmulAlgo_t> chosen(const Gemm& gemm, const GemmDescriptors& descriptors) const;
  std::vector<cublasLtMatmulAlgo_t> candidates(const Gemm& gemm, const GemmDescriptors& descriptors,
                                               int most) const;
  cublasStatus_t run(const Work& work, const GemmDescriptors& descriptors,
                     const cublasLtMatmulAlgo_t& algorithm, float beta) const;
  void measure(const Work& work, Plan& plan, Accumulate accumulate);
  std::vector<double> microseconds(const Work& work, const GemmDescriptors& descriptors,
                                   const std::vector<cublasLtMatmulAlgo_t>& algorithms) const;

  int device_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Gemm, Plan> plans_;
  GemmChoices choices_;
};

}  // namespace ripstop::cuda
