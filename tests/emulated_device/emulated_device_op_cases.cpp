// The op tests of tests/model on the emulated GPU: the entries of the CUDA back end's table, with cuBLASLt's
// and cuDNN's share.
#include "tests/model/op_test.h"

namespace ripstop {

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const bool deterministic : {false, true})
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      Device device = Device::cuda(0);
      device.deterministic = deterministic;
      cases.push_back({.name = fmt::format("{}{}", deterministic ? "deterministic_" : "", to_string(dtype)),
                       .device = device,
                       .kernels = &cuda_kernels(),
                       .workspaces = &cuda_workspaces(),
                       .dtype = dtype,
                       .set_variation = [](int) {},
                       .threads_matter = !deterministic,
                       .repeatable = deterministic,
                       .slow = true});
    }
  return cases;
}

}  // namespace ripstop
