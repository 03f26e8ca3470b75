// The verdict of a check: every error beside its tolerance, and values that must be equal to the bit.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/check/rank_findings.h"

namespace ripstop {

/// Values that may differ by rounding. Errors are relative: of a whole parameter root(squared error / squared
/// norm), of a block ParameterError::worst_block. The update of a weight is its change by all steps.
enum class CheckedKind { kLoss, kGradientNorm, kGradient, kGradientBlock, kUpdate, kUpdateBlock };
inline constexpr std::array<CheckedKind, 6> kCheckedKinds{CheckedKind::kLoss,     CheckedKind::kGradientNorm,
                                                          CheckedKind::kGradient, CheckedKind::kGradientBlock,
                                                          CheckedKind::kUpdate,   CheckedKind::kUpdateBlock};
/// "loss", "gradient_norm", "gradient", "gradient_block", "update", "update_block".
std::string_view to_string(CheckedKind kind);

/// One error and its bound.
struct CheckedValue {
  CheckedKind kind = CheckedKind::kLoss;
  int64_t step = 0;       ///< from 1; 0: of all steps
  std::string parameter;  ///< logical name; "" for loss and norm
  double error = 0;       ///< infinite if a value is not finite
  double tolerance = 0;
  int64_t row = 0, column = 0, rank = 0;  ///< of a block: where it begins, and the rank that holds it

  bool holds() const { return error <= tolerance; }
  /// "the gradient of layers.1.attention.wq.weight in step 1".
  std::string text() const;
};

/// The tolerances on a mesh, by CheckedKind. docs/check.md derives them.
std::array<double, kCheckedKinds.size()> check_tolerances(const CheckSettings& settings,
                                                          const MeshSizes& mesh);

/// The result of a check of one mesh. Equal on all ranks, but for `sent`.
struct MeshVerdict {
  MeshSizes mesh;
  std::array<StepSums, kCheckSteps> steps, reference;
  std::vector<CheckedValue> values;  ///< loss and norm of each step, then each parameter
  /// Failures that no tolerance excuses, in words: replicas with other bits, padding that is not zero, a
  /// wrong number of targets, values that are not finite.
  std::vector<std::string> broken;
  std::vector<std::string> notes;
  AxisBytes sent;  ///< by this rank in the last step

  bool holds() const;
  /// The value of one kind with the largest ratio of error to tolerance.
  const CheckedValue& worst(CheckedKind kind) const;
  /// The worst value of any parameter. If some fail, the worst of the first step with a failure, because
  /// later failures follow from it.
  const CheckedValue& worst_parameter() const;
  /// One line with all failures, in the order of steps: the worst parameter, loss, norm; then `broken`. "" if
  /// the verdict holds.
  std::string complaint() const;
};

/// Judges the findings of all ranks of a mesh, in mesh order. `hosts`: by rank, for messages. Pure.
MeshVerdict judge(const std::vector<RankFindings>& ranks, const MeshSizes& mesh,
                  const std::vector<std::string>& hosts, const CheckSettings& settings);

}  // namespace ripstop
