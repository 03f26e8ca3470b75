#include "parallel/launcher.h"

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <system_error>

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

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0;
}

// Whether the plugins of the Open MPI whose libmpi is `library` are files of their own, and none of them
// speaks Slurm's PMI (pmix/s1, pmix/s2). They lie in the folder openmpi beside the library, at some depth.
bool lacks_slurm_pmi(const std::filesystem::path& library) {
  namespace fs = std::filesystem;
  std::error_code error;
  bool has_plugins = false;
  const fs::path folder = fs::canonical(library, error).parent_path() / "openmpi";
  if (error) return false;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == "mca_pmix_s1.so" || name == "mca_pmix_s2.so") return false;
    has_plugins |= std::string_view(name).starts_with("mca_pmix_");
  }
  return has_plugins;
}

}  // namespace

bool was_launched() {
  for (const char* name : kLaunched)
    if (is_set(name)) return true;
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

std::string useless_to_open_mpi(int major_version, const std::filesystem::path& library) {
  const bool by_srun = number({"SLURM_STEP_NUM_TASKS"}).value_or(1) > 1 && !is_set("OMPI_COMM_WORLD_RANK");
  if (!by_srun || is_set("PMIX_RANK") || is_set("PMIX_NAMESPACE")) return "";
  if (!is_set("PMI_RANK")) return "no process manager (none)";
  return major_version >= 5 || lacks_slurm_pmi(library) ? "pmi2" : "";
}

}  // namespace ripstop
