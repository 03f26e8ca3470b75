#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/check/check_settings.h"
#include "train/check/comparison.h"

namespace ripstop {

/// States of a unit: the gradients of steps 1 and 2, and the weights after both less the initial ones.
inline constexpr int64_t kComparedStates = kCheckSteps + 1;

/// Facts about one state of a unit's shard.
struct UnitFacts {
  uint64_t shard_hash = 0;       ///< hash of all elements of the shard
  uint64_t replicated_hash = 0;  ///< hash of the elements that all ranks of the tensor axis hold
  double padding = 0;            ///< largest_padding() of the shard
  bool is_held = false;          ///< false: this rank's stages do not have the unit; all else is unset
  bool operator==(const UnitFacts&) const = default;
};

/// The results of a step that must be equal on all ranks of a mesh.
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
  /// By state, then by parameter in the order of trained_table(): the error of this rank's part; 0 if another
  /// stage has the parameter.
  std::array<std::vector<ParameterError>, kComparedStates> errors;
  /// By state, then by parameter: the squared norm of the whole parameter, computed by this rank alone.
  std::array<std::vector<double>, kComparedStates> norms;
  std::array<std::vector<UnitFacts>, kComparedStates> units;  ///< by state, then by unit
};

/// Kinds of compared values, which may differ by rounding. All errors are relative. A parameter's error is
/// sqrt(squared error / squared norm), a block's error is ParameterError::worst_block. An update is the
/// change of the weights by all steps.
enum class CheckedKind { kLoss, kGradientNorm, kGradient, kGradientBlock, kUpdate, kUpdateBlock };
inline constexpr std::array<CheckedKind, 6> kCheckedKinds{CheckedKind::kLoss,     CheckedKind::kGradientNorm,
                                                          CheckedKind::kGradient, CheckedKind::kGradientBlock,
                                                          CheckedKind::kUpdate,   CheckedKind::kUpdateBlock};
template <>
inline constexpr std::array<std::string_view, 6> kWords<CheckedKind> = {
    "loss", "gradient_norm", "gradient", "gradient_block", "update", "update_block"};

struct CheckedValue {
  CheckedKind kind = CheckedKind::kLoss;
  int64_t step = 0;       ///< from 1; 0: an update
  std::string parameter;  ///< logical name; "" for loss and norm
  double error = 0;       ///< infinite if a value is not finite
  double tolerance = 0;
  int64_t row = 0, column = 0, rank = 0;  ///< start of the worst block; rank that holds it

  bool holds() const { return error <= tolerance; }
  /// "the gradient of layers.1.attention.wq.weight in step 1".
  std::string text() const;
};

/// The largest relative errors to accept on a mesh, indexed by CheckedKind (docs/check.md).
std::array<double, kCheckedKinds.size()> check_tolerances(const CheckSettings& settings,
                                                          const MeshSizes& mesh);

/// The result of the check of one mesh, equal on all ranks except for `sent`.
struct MeshVerdict {
  MeshSizes mesh;
  std::array<StepSums, kCheckSteps> steps, reference;
  /// Each step's loss and gradient norm; then each parameter's error and block error, in each state.
  std::vector<CheckedValue> values;
  /// Failures that no tolerance excuses: ranks that should have the same bits but differ, a unit that no
  /// stage has, padding that is not 0, a wrong number of targets, a skipped step.
  std::vector<std::string> broken;
  /// Differences that are no failures.
  std::vector<std::string> notes;
  AxisBytes sent;  ///< bytes that this rank sent in the last step

  /// Whether every error is within its tolerance and nothing is broken.
  bool holds() const;
  /// The value of kind `kind` with the largest ratio of error to tolerance.
  const CheckedValue& worst(CheckedKind kind) const;
  /// The value of a parameter with the largest ratio of error to tolerance. If parameters fail, the worst
  /// failure of the first failing step, because it may have caused later failures.
  const CheckedValue& worst_parameter() const;
  /// One line for people: the worst failures of parameters, loss and gradient norm, in the order of steps,
  /// then `broken`. "" if the verdict holds.
  std::string complaint() const;
};

/// Judges the findings of all ranks. `ranks` and `hosts` (for messages) are indexed by rank. Pure.
MeshVerdict judge(const std::vector<RankFindings>& ranks, const MeshSizes& mesh,
                  const std::vector<std::string>& hosts, const CheckSettings& settings);

}  // namespace ripstop
