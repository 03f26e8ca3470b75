#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "train/check/check_settings.h"
#include "train/check/comparison.h"

namespace ripstop {

/// States 0 and 1 of a unit are the gradients of steps 1 and 2, state 2 is the update by both steps.
inline constexpr int64_t kComparedStates = kCheckSteps + 1;

/// Facts about one state of a unit's shard.
struct UnitFacts {
  uint64_t shard_hash = 0;       ///< hash of the whole shard
  uint64_t replicated_hash = 0;  ///< hash of the elements that all ranks of the tensor axis hold
  double padding = 0;            ///< largest_padding of the shard
  bool is_held = false;          ///< false: another stage of the pipeline has the unit; all else is unset
  bool operator==(const UnitFacts&) const = default;
};

/// The results of a step that are equal on all ranks of a mesh.
struct StepSums {
  double loss = 0, gradient_norm = 0;
  int64_t target_count = 0;
  bool skipped = false;
  bool operator==(const StepSums&) const = default;
};

/// The results of one rank's comparison. All ranks have lists of the same lengths.
struct RankFindings {
  std::array<StepSums, kCheckSteps> steps;      ///< results on the mesh
  std::array<StepSums, kCheckSteps> reference;  ///< results of this rank alone
  /// By state, then by parameter in the order of the parameter table: the error of this rank's part;
  /// 0 if another stage has the parameter.
  std::array<std::vector<ParameterError>, kComparedStates> errors;
  /// By state, then by parameter: the squared norm of the whole parameter, computed by this rank alone.
  std::array<std::vector<double>, kComparedStates> norms;
  std::array<std::vector<UnitFacts>, kComparedStates> units;  ///< by state, then by unit
};

}  // namespace ripstop
