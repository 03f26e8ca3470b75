// One execution of a plan on the emulated GPU: the pointers that it binds, and its work.
#pragma once
#include <cudnn.h>

#include <string>

#include "tests/emulated_device/cudnn_interpreter.h"
#include "tests/emulated_device/cudnn_record.h"

namespace ripstop::emulated {

/// The pointers of a variant pack for a graph, as far as they can be checked at the call.
class CudnnBindings {
 public:
  CudnnBindings(const DescriptorRecord& pack, const GraphRecord& graph);
  /// The answer of cudnnBackendExecute, and why if that is an error.
  cudnnStatus_t status() const { return status_; }
  const std::string& why() const { return why_; }
  const GraphMemory& memory() const { return memory_; }

 private:
  void bind(const GraphRecord& graph, int64_t id, void* data);
  void wrong(cudnnStatus_t status, std::string why);

  GraphMemory memory_;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
  std::string why_;
};

/// The plan's kernels. Its workspace holds anything before and after.
void run_plan(const GraphRecord& graph, const GraphMemory& memory, void* workspace, int64_t bytes);

}  // namespace ripstop::emulated
