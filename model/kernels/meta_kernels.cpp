// Kernels that compute nothing. A step that runs with them is the plan of the step on a real device.
#include "model/ops/kernel_table.h"

namespace ripstop {
namespace {

template <class Kernel>
struct Nothing;
template <class Result, class... Args>
struct Nothing<Result (*)(Args...)> {
  static Result run(Args...) { return Result(); }
};

}  // namespace

const KernelTable& meta_kernels() {
#define RIPSTOP_NOTHING(kernel) .kernel = Nothing<decltype(KernelTable::kernel)>::run,
  static constexpr KernelTable table{RIPSTOP_PRODUCTS(RIPSTOP_NOTHING)
                                         RIPSTOP_OTHER_KERNELS(RIPSTOP_NOTHING)};
#undef RIPSTOP_NOTHING
  return table;
}

}  // namespace ripstop
