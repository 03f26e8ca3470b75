// RankFindings: what one rank has found, in the form in which it travels to the others.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "train/check/check_settings.h"
#include "train/check/comparison.h"

namespace ripstop {

/// The compared states, by number: the gradients of step 1 and of step 2, then the updates of both steps
/// together.
inline constexpr int64_t kComparedStates = kCheckSteps + 1;

/// The state of a unit's shard in a few numbers.
struct UnitFacts {
  uint64_t shard_hash = 0;       ///< of the bytes of the whole shard
  uint64_t replicated_hash = 0;  ///< hash of the part that all ranks of the tensor axis hold alike
  double padding = 0;            ///< largest_padding
  bool operator==(const UnitFacts&) const = default;
};

/// The numbers of a step that are equal on all ranks of a mesh.
struct StepSums {
  double loss = 0, gradient_norm = 0;
  int64_t target_count = 0;
  bool skipped = false;
  bool operator==(const StepSums&) const = default;
};

/// One rank's findings. All ranks have as many of each.
struct RankFindings {
  std::array<StepSums, kCheckSteps> steps;      ///< on the mesh
  std::array<StepSums, kCheckSteps> reference;  ///< of this rank alone
  /// By state, then by parameter in the order of the parameter table: this rank's part of its error, and the
  /// squared norm of the whole parameter, of this rank alone.
  std::array<std::vector<ParameterError>, kComparedStates> errors;
  std::array<std::vector<double>, kComparedStates> norms;
  std::array<std::vector<UnitFacts>, kComparedStates> units;  ///< by state, then by unit
};

/// Serializes the findings; parses them. Throws Error(kBug) if `bytes` has another number of parameters or
/// units.
std::string to_bytes(const RankFindings& findings);
RankFindings findings_of(const std::string& bytes, size_t parameters, size_t units);

}  // namespace ripstop
