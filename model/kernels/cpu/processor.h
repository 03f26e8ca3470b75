// The instruction sets of this processor, and the kernels chosen for it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/ops/kernel_table.h"

namespace ripstop {

/// The instruction sets of this processor for which kernels were compiled, best first: some of "avx512_bf16",
/// "x86-64-v4", "x86-64-v3", "generic". Never empty.
std::vector<std::string> cpu_instruction_sets();

/// The first of `cpu_instruction_sets`, and oneDNN's version and instruction set, as text. All ranks of a run
/// must have the same, else their results differ in the last bits.
std::string cpu_instruction_set();

/// Whether the processor multiplies bfloat16 in hardware (AVX512-BF16 or AMX). If not, float32 is faster.
bool cpu_has_fast_bfloat16();

/// The number of threads of an operation. Sizes of workspaces depend on it.
int64_t cpu_threads();

/// Sets the number of threads for operations of the calling thread, as OMP_NUM_THREADS does: for plans of
/// launches with another number.
void set_cpu_threads(int64_t threads);

/// The kernels of one of `cpu_instruction_sets`, for tests and benchmarks; `cpu_kernels()` returns the
/// kernels of the first. Throws Error(kBug) for other names.
const KernelTable& cpu_kernels(std::string_view instruction_set);

}  // namespace ripstop
