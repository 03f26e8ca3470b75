#include "parallel/launch_environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/core.h>

#include "model/core/number.h"

namespace ripstop {
namespace {

// Rank variables of Open MPI, PMIx, PMI (MPICH, Intel MPI), MVAPICH2, PALS and Flux. SLURM_PROCID is no
// sign of a launch: mpirun in a Slurm step inherits it, and the process of a batch script has it, too.
constexpr std::initializer_list<const char*> kRank = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK",   "PMI_RANK",      "PMI_ID",
    "MV2_COMM_WORLD_RANK",  "PALS_RANKID", "FLUX_TASK_RANK"};
constexpr std::initializer_list<const char*> kSize = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                                      "MV2_COMM_WORLD_SIZE",  "PALS_SIZE",
                                                      "FLUX_JOB_SIZE",        "SLURM_STEP_NUM_TASKS"};

// Variables of PMIx (Open MPI, srun), Slurm, PMI, PALS and Flux that name the launch. The variables of kJob
// are added, because a requeued job numbers its steps from 0 again.
constexpr std::initializer_list<const char*> kLaunch = {"PMIX_NAMESPACE", "SLURM_STEP_ID", "PMI_JOBID",
                                                        "PALS_APID", "FLUX_JOB_ID"};
constexpr std::initializer_list<const char*> kJob = {"SLURM_JOB_ID", "SLURM_RESTART_COUNT"};

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool is_set(const char* name) {
  return !variable(name).empty();
}

// The value of the first variable in `names` that holds a whole number; nullopt if no variable does.
std::optional<int64_t> number(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto value = parse_whole_number(variable(name))) return value;
  return std::nullopt;
}

// Whether Open MPI has its plugins as files, in the folder openmpi beside its libmpi (`library`), but no
// plugin for Slurm's PMI (pmix/s1, pmix/s2).
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

// Appends the names for `prefix` and one part of a bracket ("3" or "08-11"). False: other text, or too many.
bool add_names(const std::string& prefix, std::string_view part, std::vector<std::string>& names) {
  constexpr size_t kMostNames = 100'000;
  const size_t dash = part.find('-');
  const std::string_view first = part.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
  const std::optional<int64_t> begin = parse_whole_number(first), end = parse_whole_number(last);
  if (!begin || !end || *end < *begin || *end - *begin >= static_cast<int64_t>(kMostNames - names.size()))
    return false;
  for (int64_t number = *begin; number <= *end; ++number)
    names.push_back(fmt::format("{}{:0{}}", prefix, number, first.size()));
  return true;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t comma = list.find(','), open = list.find('[');
    if (open >= comma) {  // the name has no bracket
      names.emplace_back(list.substr(0, comma));
    } else {
      const size_t close = list.find(']', open);
      if (close == std::string_view::npos) return {};
      const std::string prefix(list.substr(0, open));
      for (std::string_view parts = list.substr(open + 1, close - open - 1); !parts.empty();) {
        if (!add_names(prefix, parts.substr(0, parts.find(',')), names)) return {};
        parts.remove_prefix(std::min(parts.size(), std::min(parts.find(','), parts.size()) + 1));
      }
      list.remove_prefix(close + 1);
      // Refuse names with two brackets, "rack[1-2]n[1-8]": a wrong name would be worse than no name.
      if (!list.empty() && list.front() != ',') return {};
    }
    list.remove_prefix(std::min(list.size(), std::min(list.find(','), list.size()) + 1));
  }
  return names;
}

std::vector<std::string> launch_nodes() {
  const std::string_view of_step = variable("SLURM_STEP_NODELIST");
  return expand_node_list(of_step.empty() ? variable("SLURM_JOB_NODELIST") : of_step);
}

std::string launch_name() {
  std::string name;
  for (const char* each : kLaunch)
    if (const std::string_view value = variable(each); !value.empty() && name.empty()) name = value;
  if (name.empty()) return "";
  for (const char* each : kJob)
    if (const std::string_view value = variable(each); !value.empty()) name += fmt::format(".{}", value);
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-' && c != '_'; }, '_');
  constexpr size_t kLongest = 200;  // so that the file name stays within 255 bytes
  return name.substr(0, kLongest);
}

bool was_launched() {
  return std::ranges::any_of(kRank, is_set) || is_set("SLURM_STEP_NUM_TASKS") || is_set("MPI_LOCALRANKID");
}

int64_t launch_rank() {
  const std::optional<int64_t> rank = number(kRank);
  return rank ? *rank : number({"SLURM_PROCID"}).value_or(0);
}

int64_t launch_size() {
  const int64_t size = number(kSize).value_or(1);
  // A launcher that does not know the size may give 0.
  return size > 0 ? size : 1;
}

std::string useless_to_open_mpi(int major_version, const std::filesystem::path& library) {
  const bool by_srun = number({"SLURM_STEP_NUM_TASKS"}).value_or(1) > 1 && !is_set("OMPI_COMM_WORLD_RANK");
  if (!by_srun || is_set("PMIX_RANK") || is_set("PMIX_NAMESPACE")) return "";
  if (!is_set("PMI_RANK")) return "no process manager (none)";
  return major_version >= 5 || lacks_slurm_pmi(library) ? "pmi2" : "";
}

}  // namespace ripstop
