// Linked in place of cuda_device.cpp where CUDA is not built in.
#include "model/device/device.h"

namespace ripstop {

const DeviceTable& cuda_device() {
  throw Error(ExitCode::kResources, "this ripstop was built without CUDA",
              "build the preset cuda, or set run.device = \"cpu\"");
}

}  // namespace ripstop
