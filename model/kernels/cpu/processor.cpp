#include "model/kernels/cpu/processor.h"

#include <omp.h>

#include "model/kernels/cpu/linear.h"

namespace ripstop {

#define RIPSTOP_TABLES(set)                    \
  namespace set {                              \
  extern const KernelTable kernel_table;       \
  extern const WorkspaceTable workspace_table; \
  }
RIPSTOP_TABLES(generic)
#ifdef RIPSTOP_X86_64_KERNELS
RIPSTOP_TABLES(x86_64_v3)
RIPSTOP_TABLES(x86_64_v4)
RIPSTOP_TABLES(avx512_bf16)
#endif
#undef RIPSTOP_TABLES

namespace {

// An instruction set with kernels. present() says whether this processor has it.
struct InstructionSet {
  const char* name;
  bool (*present)();
  const KernelTable* kernels;
  const WorkspaceTable* workspaces;
};

#ifdef RIPSTOP_X86_64_KERNELS
// Whether this processor has -march=x86-64-v3 and -v4 (model/CMakeLists.txt). Unchecked: f16c and more.
bool has_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2");
}
bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() {
  return has_v4() && __builtin_cpu_supports("avx512bf16");
}
#endif
bool always() {
  return true;
}

// The best set comes first.
constexpr InstructionSet kInstructionSets[] = {
#ifdef RIPSTOP_X86_64_KERNELS
    {"avx512_bf16", has_avx512_bf16, &avx512_bf16::kernel_table, &avx512_bf16::workspace_table},
    {"x86-64-v4", has_v4, &x86_64_v4::kernel_table, &x86_64_v4::workspace_table},
    {"x86-64-v3", has_v3, &x86_64_v3::kernel_table, &x86_64_v3::workspace_table},
#endif
    {"generic", always, &generic::kernel_table, &generic::workspace_table},
};

// The set is chosen at run time, because one build runs on all nodes of a cluster.
const InstructionSet& chosen() {
  for (const auto& set : kInstructionSets)
    if (set.present()) return set;
  fail(ExitCode::kBug, "no kernels for this processor");
}

}  // namespace

std::vector<std::string> cpu_instruction_sets() {
  std::vector<std::string> names;
  for (const auto& set : kInstructionSets)
    if (set.present()) names.emplace_back(set.name);
  return names;
}

int64_t cpu_threads() {
  return omp_get_max_threads();
}

void set_cpu_threads(int64_t threads) {
  omp_set_num_threads(static_cast<int>(threads));
}

std::string cpu_instruction_set() {
  return fmt::format("{}, {}", chosen().name, onednn::library_instruction_set());
}

bool cpu_has_fast_bfloat16() {
#ifdef RIPSTOP_X86_64_KERNELS
  return has_avx512_bf16();
#else
  return false;
#endif
}

const KernelTable& cpu_kernels(std::string_view instruction_set) {
  for (const auto& set : kInstructionSets)
    if (instruction_set == set.name && set.present()) return *set.kernels;
  fail(ExitCode::kBug, "no kernels for the instruction set {}", instruction_set);
}

// The reference is static, because every operation asks for the table.
const KernelTable& cpu_kernels() {
  static const KernelTable& table = *chosen().kernels;
  return table;
}

const WorkspaceTable& cpu_workspaces() {
  static const WorkspaceTable& table = *chosen().workspaces;
  return table;
}

}  // namespace ripstop
