// The linear kernels, on oneDNN, which chooses its own instruction set.
#pragma once
#include <string>
#include <type_traits>

#include "model/ops/kernel_table.h"

namespace ripstop::onednn {

std::remove_pointer_t<decltype(KernelTable::linear)> linear;
std::remove_pointer_t<decltype(KernelTable::linear_backward_input)> linear_backward_input;
std::remove_pointer_t<decltype(KernelTable::linear_backward_weight)> linear_backward_weight;

std::remove_pointer_t<decltype(WorkspaceTable::linear)> linear_bytes;
std::remove_pointer_t<decltype(WorkspaceTable::linear_backward_input)> linear_backward_input_bytes;
std::remove_pointer_t<decltype(WorkspaceTable::linear_backward_weight)> linear_backward_weight_bytes;

/// The version and the instruction set of oneDNN at run time, such as "oneDNN 2.6.3 isa 0x7e7".
std::string library_instruction_set();

}  // namespace ripstop::onednn
