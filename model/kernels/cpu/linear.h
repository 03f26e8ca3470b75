// The linear kernels. They are compiled once, because oneDNN chooses an instruction set at run time.
#pragma once
#include <string>
#include <type_traits>

#include "model/ops/kernel_table.h"

namespace ripstop::onednn {

#define RIPSTOP_PRODUCT(kernel)                                \
  std::remove_pointer_t<decltype(KernelTable::kernel)> kernel; \
  std::remove_pointer_t<decltype(WorkspaceTable::kernel)> kernel##_bytes;
RIPSTOP_PRODUCTS(RIPSTOP_PRODUCT)
#undef RIPSTOP_PRODUCT

/// oneDNN's version and instruction set, such as "oneDNN 2.6.3 isa 0x7e7".
std::string library_instruction_set();

}  // namespace ripstop::onednn
