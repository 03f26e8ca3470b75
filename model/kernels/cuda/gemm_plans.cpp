#include "model/kernels/cuda/gemm_plans.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "model/device/cuda_device.h"
#include "model/kernels/cuda_workspace_sizes.h"

namespace ripstop::cuda {
namespace {

// Limits the number of plans, because prompts have many different numbers of rows.
constexpr size_t kMostPlans = 2048;
constexpr int kMostCandidates = 32;  // suggestions of cuBLASLt that are timed
constexpr int kRounds = 5;           // timed rounds, after one that is not counted

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(status == CUBLAS_STATUS_INVALID_VALUE ? ExitCode::kBug : ExitCode::kResources,
              fmt::format("{}: {}", call, cublasLtGetStatusString(status)),
              "`ripstop doctor` shows driver, GPUs and the versions that ripstop was built for");
}

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Split-K algorithms must add their partial sums in float32: in the workspace, or in a float32 output.
uint32_t reduction_schemes(const Gemm& gemm) {
  return gemm.out == DType::kFloat32
             ? CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
             : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

std::string owner(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return fmt::format("{}, cuBLASLt {}", properties.name, cublasLtGetVersion());
}

/// Device memory for one measurement, not counted in memory plans; null if none is left. Freed in stream
/// order, because cudaFree would wait for the whole device, perhaps for other ranks, without a deadline.
class SpareMemory {
 public:
  SpareMemory(int64_t bytes, cudaStream_t stream) : stream_(stream) {
    if (bytes == 0 || cudaMallocAsync(&data_, static_cast<size_t>(bytes), stream) == cudaSuccess) return;
    data_ = nullptr;
    static_cast<void>(cudaGetLastError());
  }
  ~SpareMemory() {
    if (data_ != nullptr) static_cast<void>(cudaFreeAsync(data_, stream_));
  }
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;
  void* data() const { return data_; }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
};

/// Fills the L2 cache with other bytes before each measurement, as other work of a step does. Algorithms
/// that read operands twice would look too fast with operands in the cache. Does nothing if memory is full.
class CacheFlush {
 public:
  CacheFlush(int device, cudaStream_t stream)
      : bytes_(2 * cache_bytes(device)), stream_(stream), memory_(bytes_, stream) {}
  void operator()() const {
    if (memory_.data() == nullptr) return;
    check_cuda(cudaMemsetAsync(memory_.data(), 0, static_cast<size_t>(bytes_), stream_), "cudaMemsetAsync");
  }

 private:
  static int64_t cache_bytes(int device) {
    int bytes = 0;
    check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    return bytes;
  }
  int64_t bytes_;
  cudaStream_t stream_;
  SpareMemory memory_;
};

}  // namespace

GemmDescriptors::GemmDescriptors(const Gemm& g) {
  // CUBLAS_COMPUTE_32F uses no TF32, so that float32 products keep their precision.
  check_cublas(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
  const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_cublas(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_a);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_b);
  const auto layout = [](cublasLtMatrixLayoutOpaque_t& matrix, DType dtype, int64_t rows, int64_t columns,
                         int64_t leading) {
    check_cublas(cublasLtMatrixLayoutInit(&matrix, cuda_type(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), leading),
                 "cublasLtMatrixLayoutInit");
  };
  // Extents as stored: a transposed operand is [k, m] or [n, k] in memory.
  layout(a, g.in, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k, g.lda);
  layout(b, g.in, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n, g.ldb);
  layout(d, g.out, g.m, g.n, g.ldd);
}

GemmPlans::GemmPlans(int device)
    : device_(device), choices_(gemm_choices_path(owner(device)), owner(device)) {
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
}

GemmPlans::~GemmPlans() {
  static_cast<void>(cublasLtDestroy(handle_));
}

void GemmPlans::multiply(const KernelCall& call, const Gemm& gemm, const void* a, const void* b, void* d,
                         Accumulate accumulate) {
  const bool measures =
      !call.stream.device().deterministic && gemm.rows > 0 && gemm.rows % kMeasuredRows == 0;
  auto found = plans_.find(gemm);
  if (found == plans_.end()) {
    if (plans_.size() >= kMostPlans) plans_.clear();
    found = plans_.emplace(gemm, make(gemm, measures)).first;
  }
  Plan& plan = found->second;
  const Work work{call, gemm, a, b, d};
  if (!plan.settled && ++plan.uses >= kUsesBeforeMeasuring) measure(work, plan, accumulate);
  check_cublas(run(work, plan.descriptors, plan.algorithm, accumulate == Accumulate::kYes ? 1.0F : 0.0F),
               "cublasLtMatmul");
}

GemmPlans::Plan GemmPlans::make(const Gemm& gemm, bool measures) {
  Plan plan(gemm);
  if (const auto known = measures ? chosen(gemm, plan.descriptors) : std::nullopt) {
    plan.algorithm = *known;
    plan.settled = true;
    return plan;
  }
  const auto guesses = candidates(gemm, plan.descriptors, 1);
  if (guesses.empty())
    throw Error(ExitCode::kResources, fmt::format("cuBLASLt has no algorithm for {}", gemm_name(gemm)),
                gemm.in == DType::kBFloat16 ? "set precision.compute = \"float32\"" : "");
  plan.algorithm = guesses.front();
  plan.settled = !measures;
  return plan;
}

// Returns the file's choice if cuBLASLt accepts it, since the file may be damaged or from another machine.
std::optional<cublasLtMatmulAlgo_t> GemmPlans::chosen(const Gemm& gemm,
                                                      const GemmDescriptors& descriptors) const {
  const GemmChoice* choice = choices_.find(gemm_name(gemm));
  if (choice == nullptr) return std::nullopt;
  cublasLtMatmulAlgo_t algorithm;
  static_assert(sizeof algorithm == sizeof choice->algorithm);
  std::memcpy(&algorithm, choice->algorithm.data(), sizeof algorithm);
  GemmDescriptors d = descriptors;
  cublasLtMatmulHeuristicResult_t result{};
  const bool fits = cublasLtMatmulAlgoCheck(handle_, &d.operation, &d.a, &d.b, &d.d, &d.d, &algorithm,
                                            &result) == CUBLAS_STATUS_SUCCESS &&
                    result.workspaceSize <= static_cast<size_t>(kGemmWorkspaceBytes);
  return fits ? std::optional(algorithm) : std::nullopt;
}

std::vector<cublasLtMatmulAlgo_t> GemmPlans::candidates(const Gemm& gemm, const GemmDescriptors& descriptors,
                                                        int most) const {
  cublasLtMatmulPreferenceOpaque_t preference;
  check_cublas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto bytes = [](int64_t alignment) { return static_cast<uint32_t>(alignment); };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kGemmWorkspaceBytes));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction_schemes(gemm));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(gemm.alignment_a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(gemm.alignment_b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(gemm.alignment_d));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(gemm.alignment_d));
  GemmDescriptors d = descriptors;
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, &d.operation, &d.a, &d.b, &d.d, &d.d,
                                                               &preference, most, results.data(), &count);
  // cuBLASLt has no algorithm: make() throws for the empty list.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i)
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[static_cast<size_t>(i)].algo);
  return algorithms;
}

cublasStatus_t GemmPlans::run(const Work& work, const GemmDescriptors& descriptors,
                              const cublasLtMatmulAlgo_t& algorithm, float beta) const {
  const float one = 1;
  GemmDescriptors d = descriptors;
  return cublasLtMatmul(handle_, &d.operation, &one, work.a, &d.a, work.b, &d.b, &beta, work.d, &d.d, work.d,
                        &d.d, &algorithm, work.call.workspace, static_cast<size_t>(kGemmWorkspaceBytes),
                        native_stream(work.call.stream));
}

// Timing repeats the product, so a product that accumulates writes to extra memory. Without extra memory,
// counts the uses again from 0 and may measure later.
void GemmPlans::measure(const Work& work, Plan& plan, Accumulate accumulate) {
  const Gemm& gemm = work.gemm;
  const bool adds = accumulate == Accumulate::kYes;
  const SpareMemory spare(adds ? gemm.ldd * gemm.n * element_bytes(gemm.out) : 0,
                          native_stream(work.call.stream));
  if (adds && spare.data() == nullptr) {
    plan.uses = 0;
    plan.settled = ++plan.tries == kMostTries;
    return;
  }
  plan.settled = true;
  // Earlier work may wait for other ranks. This wait has a deadline, unlike the waits of microseconds().
  work.call.stream.synchronize();
  const auto algorithms = candidates(gemm, plan.descriptors, kMostCandidates);
  const Work timed{work.call, gemm, work.a, work.b, adds ? spare.data() : work.d};
  const auto times = microseconds(timed, plan.descriptors, algorithms);
  const auto best = std::min_element(times.begin(), times.end());
  if (best == times.end() || *best == std::numeric_limits<double>::infinity()) return;
  plan.algorithm = algorithms[static_cast<size_t>(best - times.begin())];
  GemmChoice choice{.microseconds = *best};
  std::memcpy(choice.algorithm.data(), &plan.algorithm, sizeof plan.algorithm);
  choices_.add(gemm_name(gemm), choice);
}

// The shortest time of several rounds for each candidate. Each round runs all candidates, so that a changing
// clock of the GPU affects all of them, but skips candidates far slower than the best so far. A candidate
// that fails gets an infinite time.
std::vector<double> GemmPlans::microseconds(const Work& work, const GemmDescriptors& descriptors,
                                            const std::vector<cublasLtMatmulAlgo_t>& algorithms) const {
  constexpr double kNever = std::numeric_limits<double>::infinity(), kFarOff = 1.5;
  std::vector<double> times(algorithms.size(), kNever);
  std::vector<bool> failed(algorithms.size(), false);
  const CudaEvent begin(cudaEventDefault), end(cudaEventDefault);
  const cudaStream_t stream = native_stream(work.call.stream);
  const CacheFlush flush(device_, stream);
  for (int round = -1; round < kRounds; ++round) {  // round -1 loads the kernels
    const double best = times.empty() ? kNever : *std::min_element(times.begin(), times.end());
    for (size_t i = 0; i < algorithms.size(); ++i) {
      if (failed[i] || (round > 0 && times[i] > kFarOff * best)) continue;
      flush();
      begin.record(stream);
      failed[i] = run(work, descriptors, algorithms[i], 0.0F) != CUBLAS_STATUS_SUCCESS;
      end.record(stream);
      end.synchronize();
      const double taken = 1e3 * end.milliseconds_since(begin);
      if (failed[i]) times[i] = kNever;
      if (!failed[i] && round >= 0) times[i] = std::min(times[i], taken);
    }
  }
  return times;
}

}  // namespace ripstop::cuda
