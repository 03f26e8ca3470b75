// Linked instead of nccl_*.cpp if ripstop is built without CUDA.
#include "parallel/communicator.h"

namespace ripstop {

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator>, const Device&) {
  throw Error(ExitCode::kResources, "this ripstop was built without NCCL",
              "build the preset cuda, or set run.device = \"cpu\"");
}

CudaLibrary nccl_library() {
  return {"NCCL", "2.19", "", ""};
}

}  // namespace ripstop
