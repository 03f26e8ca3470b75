#include "parallel/launcher.h"

#include <cstdlib>
#include <initializer_list>
#include <optional>

#include "model/core/number.h"

namespace ripstop {
namespace {

// Open MPI, PMIx, PMI (MPICH, Intel MPI), Slurm, MVAPICH2, PALS, Flux.
// An MPI's own variables come before Slurm's, because mpirun inside a Slurm step inherits the step's numbers.
constexpr std::initializer_list<const char*> kRank = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK",   "PMI_RANK",       "PMI_ID",
    "MV2_COMM_WORLD_RANK",  "PALS_RANKID", "FLUX_TASK_RANK", "SLURM_PROCID"};
constexpr std::initializer_list<const char*> kSize = {
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",  "SLURM_STEP_NUM_TASKS",
    "MV2_COMM_WORLD_SIZE",  "PALS_SIZE", "FLUX_JOB_SIZE"};
// SLURM_PROCID is missing here because a batch script's own process has it too; only a step has
// SLURM_STEP_NUM_TASKS.
constexpr std::initializer_list<const char*> kLaunched = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK",       "PMI_RANK",    "PMI_ID",        "SLURM_STEP_NUM_TASKS",
    "MV2_COMM_WORLD_RANK",  "MPI_LOCALRANKID", "PALS_RANKID", "FLUX_TASK_RANK"};

// The value of the first variable that holds a whole number.
std::optional<int64_t> number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    if (const auto value = parse_whole_number(text)) return value;
  }
  return std::nullopt;
}

}  // namespace

bool was_launched() {
  for (const char* name : kLaunched)
    if (const char* value = std::getenv(name); value != nullptr && *value != 0) return true;
  return false;
}

int64_t launch_rank() {
  return number(kRank).value_or(0);
}

int64_t launch_size() {
  const int64_t size = number(kSize).value_or(1);
  // A launcher that sets 0 knows nothing.
  return size > 0 ? size : 1;
}

}  // namespace ripstop
