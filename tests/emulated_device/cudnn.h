// The stand-ins of cuDNN on the emulated GPU (cudnn.cpp has the functions of cudnn_graph.h themselves).
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace ripstop::emulated {

/// Who decides which graphs have a plan, and how much workspace it needs.
enum class CudnnMode {
  kRecord,  ///< a written-down rule (cudnn_rule.h): a plan takes no time
  kReal     ///< the installed cuDNN, for a described H100: up to a second a plan
};

/// The mode of this process: $RIPSTOP_EMULATED_CUDNN ("record" or "real"), or record.
CudnnMode cudnn_mode();
/// Changes it; no descriptor may be alive.
void set_cudnn_mode(CudnnMode mode);
/// The version that cudnnGetVersion reports from now on in record mode; nullopt: that of the headers.
void set_cudnn_version(std::optional<size_t> version);
/// The GPU for which plans are made from now on in mode real, as DescribedGpu::json; at first an H100.
void set_cudnn_gpu(const std::string& json);

}  // namespace ripstop::emulated
