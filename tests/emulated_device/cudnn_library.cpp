#include "tests/emulated_device/cudnn_library.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {

CudnnLibrary::CudnnLibrary(std::string gpu) : gpu_(std::move(gpu)) {
  void* library = dlopen(RIPSTOP_CUDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse("dlopen", dlerror());
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) refuse("dlsym", dlerror());
  };
  find(create, "cudnnBackendCreateDescriptor");
  find(destroy, "cudnnBackendDestroyDescriptor");
  find(set, "cudnnBackendSetAttribute");
  find(get, "cudnnBackendGetAttribute");
  find(finalize, "cudnnBackendFinalize");
  find(last_error, "cudnnGetLastErrorString");
  find(version, "cudnnGetVersion");
}

CudnnLibrary::~CudnnLibrary() {
  if (properties_ != nullptr) static_cast<void>(destroy(properties_));
}

cudnnStatus_t CudnnLibrary::set_gpu(cudnnBackendDescriptor_t descriptor,
                                    cudnnBackendAttributeName_t attribute) {
  if (properties_ == nullptr) {
    const bool made = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties_) == CUDNN_STATUS_SUCCESS &&
                      set(properties_, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                          static_cast<int64_t>(gpu_.size()), gpu_.data()) == CUDNN_STATUS_SUCCESS &&
                      finalize(properties_) == CUDNN_STATUS_SUCCESS;
    if (!made) refuse("cudnnBackendFinalize", "the installed cuDNN does not take the described GPU");
  }
  return set(descriptor, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties_);
}

}  // namespace ripstop::emulated
