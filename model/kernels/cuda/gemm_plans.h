// Matrix products with cuBLASLt: a plan per product, and the choice of its algorithm by measurement.
#pragma once
#include <cublasLt.h>

#include <map>
#include <optional>
#include <vector>

#include "model/kernels/cuda/gemm.h"
#include "model/kernels/cuda/gemm_choices.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// A Gemm as descriptors for cuBLASLt, without an algorithm. Needs no GPU.
struct GemmDescriptors {
  explicit GemmDescriptors(const Gemm& gemm);
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;
};

/// The plans of one stream, made when a product is first asked for. A plan uses the algorithm in the file of
/// choices if there is one. Otherwise it uses cuBLASLt's first suggestion until the product has been asked
/// for kUsesBeforeMeasuring times; then all suggestions are timed, and the plan uses the fastest from then
/// on.
/// Two kinds of products always use cuBLASLt's first suggestion: those on deterministic devices, since the
/// choice must not depend on time, and those whose number of rows is not a multiple of kMeasuredRows, since
/// they hardly occur again.
class GemmPlans {
 public:
  static constexpr int64_t kUsesBeforeMeasuring = 3;
  static constexpr int64_t kMostTries = 2;
  static constexpr int64_t kMeasuredRows = 64;

  explicit GemmPlans(int device);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  /// D (+)= op(A) op(B) on the call's stream, with kGemmWorkspaceBytes of workspace. Asynchronous, except in
  /// a call that measures. Throws Error(kResources) if cuBLASLt has no algorithm for the product.
  void multiply(const KernelCall& call, const Gemm& gemm, const void* a, const void* b, void* d,
                Accumulate accumulate);

 private:
  struct Plan {
    explicit Plan(const Gemm& gemm) : descriptors(gemm) {}
    GemmDescriptors descriptors;
    cublasLtMatmulAlgo_t algorithm{};
    int64_t uses = 0;      ///< calls so far; not counted any more once `settled`
    bool settled = false;  ///< whether the choice of the algorithm is final
  };
  /// A product with its operands.
  struct Work {
    const KernelCall& call;
    const Gemm& gemm;
    const void *a, *b;
    void* d;
  };

  /// Makes the plan of a product. With `measures` the plan may use the file of choices, or be measured later;
  /// otherwise it keeps cuBLASLt's first suggestion.
  Plan make(const Gemm& gemm, bool measures);
  /// Returns the algorithm in the file of choices, if the file has one and cuBLASLt accepts it.
  std::optional<cublasLtMatmulAlgo_t> chosen(const Gemm& gemm, const GemmDescriptors& descriptors) const;
  /// At most `most` suggestions of cuBLASLt, the best guess first.
  std::vector<cublasLtMatmulAlgo_t> candidates(const Gemm& gemm, const GemmDescriptors& descriptors,
                                               int most) const;
  /// D = op(A) op(B) + beta D with this algorithm. Asynchronous.
  cublasStatus_t run(const Work& work, const GemmDescriptors& descriptors,
                     const cublasLtMatmulAlgo_t& algorithm, float beta) const;
  /// Times cuBLASLt's suggestions and sets the plan's algorithm to the fastest. Blocks the host.
  void measure(const Work& work, Plan& plan, Accumulate accumulate);
  /// The shortest time of each algorithm on the stream; infinite if it fails. Blocks the host.
  std::vector<double> microseconds(const Work& work, const GemmDescriptors& descriptors,
                                   const std::vector<cublasLtMatmulAlgo_t>& algorithms) const;

  int device_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Gemm, Plan> plans_;
  GemmChoices choices_;
};

}  // namespace ripstop::cuda
