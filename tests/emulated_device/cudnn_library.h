// The installed cuDNN, behind its stand-ins. It gets no handle, since there is no device: where the caller
// sets a handle, it gets the properties of a described GPU.
#pragma once
#include <cudnn.h>

#include <string>

namespace ripstop::emulated {

class CudnnLibrary {
 public:
  /// Opens the library. Refuses if there is none. `gpu`: as DescribedGpu::json.
  explicit CudnnLibrary(std::string gpu);
  ~CudnnLibrary();
  CudnnLibrary(const CudnnLibrary&) = delete;
  CudnnLibrary& operator=(const CudnnLibrary&) = delete;

  decltype(&::cudnnBackendCreateDescriptor) create;
  decltype(&::cudnnBackendDestroyDescriptor) destroy;
  decltype(&::cudnnBackendSetAttribute) set;
  decltype(&::cudnnBackendGetAttribute) get;
  decltype(&::cudnnBackendFinalize) finalize;
  decltype(&::cudnnGetLastErrorString) last_error;
  decltype(&::cudnnGetVersion) version;

  /// Sets an attribute that holds device properties to the described GPU.
  cudnnStatus_t set_gpu(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attribute);

 private:
  std::string gpu_;
  cudnnBackendDescriptor_t properties_ = nullptr;
};

}  // namespace ripstop::emulated
