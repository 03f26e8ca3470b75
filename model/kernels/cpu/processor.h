// What the processor at hand can do, and which compiled kernels were chosen for it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/ops/kernel_table.h"

namespace ripstop {

/// Instruction sets that the kernels were compiled for and this processor has, best first: of "avx512_bf16",
/// "x86-64-v4", "x86-64-v3", "generic". Never empty.
std::vector<std::string> cpu_instruction_sets();

/// What computes on this processor: the first of `cpu_instruction_sets` and what oneDNN found. Ranks of one
/// run must agree on it, or their results would differ in the last bits.
std::string cpu_instruction_set();

/// Whether the processor multiplies bfloat16 in hardware (AVX512-BF16 or AMX). Where it does not, float32 is
/// the faster choice, and bfloat16 `linear` may not work at all.
bool cpu_has_fast_bfloat16();

/// Threads that an operation of this process uses, and the size of its workspaces follows.
int64_t cpu_threads();

/// Sets them for the calling thread's operations, as OMP_NUM_THREADS does: for plans of other launches.
void set_cpu_threads(int64_t threads);

/// The kernels of one of `cpu_instruction_sets`; `cpu_kernels()` is those of the first. For tests and
/// benchmarks. Throws Error(kBug) for other names.
const KernelTable& cpu_kernels(std::string_view instruction_set);

}  // namespace ripstop
