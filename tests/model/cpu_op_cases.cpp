// The back ends of the op tests on the CPU: every compiled instruction set that this processor has, under
// one, two and three threads.
#include <omp.h>

#include <algorithm>

#include "model/kernels/cpu/processor.h"
#include "tests/model/op_test.h"

namespace ripstop {
namespace {

void set_variation(int run) {
  static const int at_start = omp_get_max_threads();
  constexpr int kThreads[] = {1, 3, 2, 2};
  omp_set_num_threads(run < 0 ? at_start : kThreads[run]);
}

}  // namespace

std::vector<OpCase> op_cases() {
  set_variation(-1);
  std::vector<OpCase> cases;
  for (const std::string& set : cpu_instruction_sets())
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      std::string name = fmt::format("{}_{}", set, to_string(dtype));
      std::replace(name.begin(), name.end(), '-', '_');
      cases.push_back({.name = name,
                       .device = Device::cpu(),
                       .kernels = &cpu_kernels(set),
                       .workspaces = &cpu_workspaces(),
                       .dtype = dtype,
                       .set_variation = set_variation,
                       .threads_matter = true});
    }
  return cases;
}

}  // namespace ripstop
