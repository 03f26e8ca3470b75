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

/// The first of cpu_instruction_sets(), and oneDNN's version and instruction set, as text. Requires the same
/// text on all ranks of a run: otherwise their results differ in the last bits.
std::string cpu_instruction_set();

/// Whether the processor multiplies bfloat16 in hardware (AVX512-BF16 or AMX). Without, products in float32
/// are faster.
bool cpu_has_fast_bfloat16();

/// The number of threads that an operation uses. The sizes of workspaces depend on it.
int64_t cpu_threads();

/// Sets the number of threads for operations of the calling thread, as OMP_NUM_THREADS does for a process.
/// For the plan of a launch with another number of threads.
void set_cpu_threads(int64_t threads);

/// The kernels compiled for `instruction_set`, for tests and benchmarks. cpu_kernels() returns those of the
/// first of cpu_instruction_sets(). Throws Error(kBug) for a name that is not among cpu_instruction_sets().
const KernelTable& cpu_kernels(std::string_view instruction_set);

}  // namespace ripstop
