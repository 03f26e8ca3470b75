// What this process finds of CUDA: driver, GPUs, versions. Asked by doctor and where a rank chooses its GPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ripstop {

struct CudaGpu {
  std::string name;      ///< "NVIDIA H100 80GB HBM3"
  std::string identity;  ///< differs between any two GPUs of all nodes
  int64_t memory_bytes = 0;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;

  /// Whether ripstop's kernels run on it: 8.0 and later.
  bool is_supported() const { return major >= kOldestMajor; }
  static constexpr int kOldestMajor = 8;
};

/// A library of the CUDA back end, as built and as found at run time. Versions are "13.0", "9.19.0"; empty
/// where not known.
struct CudaLibrary {
  std::string name, oldest, built, found;
  /// Why it cannot work, or empty.
  std::string complaint() const;
};

struct CudaMachine {
  bool built = false;                  ///< this ripstop has the CUDA back end
  std::string architectures;           ///< what its kernels were compiled for: "80 90 100"
  std::vector<CudaLibrary> libraries;  ///< driver, run time, cuBLASLt, cuDNN
  std::vector<CudaGpu> gpus;           ///< that this process may see
  std::string problem;                 ///< why there are none: no driver, too old a driver, no device
};

/// Whether this ripstop has the CUDA back end.
bool cuda_is_built() noexcept;

/// Never throws, and starts where there is no driver. Takes no memory on any GPU.
CudaMachine look_at_cuda();

/// What is free now on GPU `index`, which this process then holds a context on; 0 where it cannot be asked.
int64_t cuda_free_bytes(int index) noexcept;

/// How many GPUs this process may see; 0 where CUDA is not built in or there is no driver. Cheap.
int cuda_device_count() noexcept;

/// cuBLASLt and cuDNN, as `look_at_cuda` lists them. model/kernels/cuda/library_versions.cpp, no_cuda.cpp.
std::vector<CudaLibrary> cuda_kernel_libraries();

/// Compares "12.4" and "12.10" number by number.
bool version_is_older(const std::string& version, const std::string& than);

}  // namespace ripstop
