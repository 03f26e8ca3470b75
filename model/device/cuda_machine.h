// The CUDA driver, GPUs and library versions that this process sees.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ripstop {

struct CudaGpu {
  std::string name;      ///< such as "NVIDIA H100 80GB HBM3"
  std::string identity;  ///< the UUID: unique over all nodes
  std::string bus;       ///< PCI address, such as "0000:1b:00.0"; the MIG instances of one GPU share it
  int64_t memory_bytes = 0;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;

  /// Whether the GPU is new enough for ripstop's kernels.
  bool is_supported() const { return major >= kOldestMajor; }
  static constexpr int kOldestMajor = 8;
};

/// A library that the GPU back end needs: the oldest version that works, the version at build time and the
/// version at run time, such as "13.0" or "9.19.0". An unknown version is empty.
struct CudaLibrary {
  std::string name, oldest, built, found;
  /// Why the library cannot work; empty if it can.
  std::string complaint() const;
};

struct CudaMachine {
  std::string architectures;           ///< compute capabilities of the compiled kernels: "80 90 100"
  std::vector<CudaLibrary> libraries;  ///< driver, run time, cuBLASLt, cuDNN
  std::vector<CudaGpu> gpus;
  std::string problem;  ///< why `gpus` is empty, such as no CUDA back end, no driver, no GPU
};

bool cuda_is_built() noexcept;  ///< whether this program has the CUDA back end

/// Fills a CudaMachine. Works without a driver, and takes no GPU memory.
CudaMachine look_at_cuda();

/// Reasons not to use the GPU, one sentence each, from NVIDIA's management library (NVML): the compute mode,
/// uncorrected memory errors, other processes. Empty without CUDA or NVML.
std::vector<std::string> gpu_complaints(const CudaGpu& gpu);

/// The energy that the GPU at the PCI address `bus` has used since the driver was loaded. Thread-safe. Throws
/// Error(kResources) without CUDA, or if NVML does not tell it, as before Volta.
/// Source: NVML API Reference, nvmlDeviceGetTotalEnergyConsumption.
int64_t gpu_millijoules(const std::string& bus);

/// Bytes that are free now on GPU `index`; 0 if CUDA fails. Creates a CUDA context, which takes GPU memory.
int64_t cuda_free_bytes(int index) noexcept;

/// Returns the number of visible GPUs; 0 if CUDA fails or was not built. Cheap.
int cuda_device_count() noexcept;

/// cuBLASLt and cuDNN for CudaMachine::libraries, from model/kernels/cuda/library_versions.cpp.
std::vector<CudaLibrary> cuda_kernel_libraries();

/// Compares number by number: 12.4 is older than 12.10.
bool version_is_older(const std::string& version, const std::string& than);

}  // namespace ripstop
