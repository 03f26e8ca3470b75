#pragma once
#include <cublasLt.h>

#include <map>
#include <optional>
#include <vector>

#include "model/kernels/cuda/gemm.h"
#include "model/kernels/cuda/gemm_choices.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// cuBLASLt's descriptors of a Gemm. Needs no GPU.
struct GemmDescriptors {
  explicit GemmDescriptors(const Gemm& gemm);
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;
};

/// The plans of one stream for products with cuBLASLt. A plan uses the algorithm in the file of choices. If
/// the file has none, the plan uses cuBLASLt's first suggestion for kUsesBeforeMeasuring - 1 calls; then the
/// suggestions are timed, and the fastest is used. While it is timed, a product that accumulates writes to
/// extra memory; after kMostTries attempts without such memory, the first suggestion stays. On deterministic
/// devices (the choice must not depend on time) and for numbers of rows that are no multiple of kMeasuredRows
/// (they rarely occur twice), a plan always uses the first suggestion.
class GemmPlans {
 public:
  static constexpr int64_t kUsesBeforeMeasuring = 3;
  static constexpr int64_t kMostTries = 2;
  static constexpr int64_t kMeasuredRows = 64;

  explicit GemmPlans(int device);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  /// D (+)= op(A) op(B) with kGemmWorkspaceBytes of workspace. Asynchronous, except when it measures. Throws
  /// Error(kResources) if cuBLASLt has no algorithm for the product.
  void multiply(const KernelCall& call, const Gemm& gemm, const void* a, const void* b, void* d,
                Accumulate accumulate);

 private:
  struct Plan {
    explicit Plan(const Gemm& gemm) : descriptors(gemm) {}
    GemmDescriptors descriptors;
    cublasLtMatmulAlgo_t algorithm{};
    int64_t uses = 0;      ///< calls before the measurement
    int64_t tries = 0;     ///< measurements that found no extra memory
    bool settled = false;  ///< the algorithm does not change any more
  };
  struct Work {
    const KernelCall& call;
    const Gemm& gemm;
    const void *a, *b;
    void* d;
  };

  Plan make(const Gemm& gemm, bool measures);
  /// The algorithm in the file of choices, if cuBLASLt accepts it.
  std::optional<cublasLtMatmulAlgo_t> chosen(const Gemm& gemm, const GemmDescriptors& descriptors) const;
  /// At most `most` suggestions of cuBLASLt, the best guess first.
  std::vector<cublasLtMatmulAlgo_t> candidates(const Gemm& gemm, const GemmDescriptors& descriptors,
                                               int most) const;
  cublasStatus_t run(const Work& work, const GemmDescriptors& descriptors,
                     const cublasLtMatmulAlgo_t& algorithm, float beta) const;
  /// Times the candidates, and settles the plan on the fastest. Blocks the host.
  void measure(const Work& work, Plan& plan, Accumulate accumulate);
  std::vector<double> microseconds(const Work& work, const GemmDescriptors& descriptors,
                                   const std::vector<cublasLtMatmulAlgo_t>& algorithms) const;

  int device_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Gemm, Plan> plans_;
  GemmChoices choices_;
};

}  // namespace ripstop::cuda
