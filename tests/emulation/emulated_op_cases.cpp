// The op tests of tests/model on the emulated CUDA kernels, with threads in forward, reversed and shuffled
// order.
#include "tests/emulation/emulated_kernels.h"
#include "tests/emulation/emulator.h"
#include "tests/model/op_test.h"

namespace ripstop {
namespace {

void set_variation(int run) {
  using emulation::Order;
  emulation::set_order(run == 1 ? Order::kReversed : run == 2 ? Order::kShuffled : Order::kForward);
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16})
    cases.push_back({.name = fmt::format("emulated_cuda_{}", to_string(dtype)),
                     .device = Device::cpu(),
                     .kernels = &emulation::kernels(),
                     .workspaces = &cuda_workspaces(),
                     .dtype = dtype,
                     .set_variation = set_variation,
                     .slow = true});
  return cases;
}

}  // namespace ripstop
