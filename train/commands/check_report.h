#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/check/check_settings.h"
#include "train/check/check_verdict.h"

namespace ripstop {

/// The result for the ranks along one axis of the mesh, checked as a mesh of their own.
struct AxisCheck {
  MeshAxis axis = MeshAxis::kReplicate;
  int64_t ranks = 1;
  /// Whether all groups along the axis compute what one rank computes; nullopt: no memory for the check.
  std::optional<bool> holds;
};

struct CheckReport {
  std::string config_file;
  CheckSettings settings;
  MeshVerdict verdict;
  std::vector<SentByOperation> sent;  ///< planned traffic of this rank in a step
  std::vector<AxisCheck> axes_alone;  ///< empty if the verdict holds or no two axes have several ranks
  std::vector<std::string> notes;
};

/// The report for people, without the last line end.
std::string check_text(const CheckReport& report);

/// The document of --json. Scripts rely on its keys.
std::string check_document(const CheckReport& report);

/// The suspect axes: "alone tensor 8 fails, too; fsdp 2 alone holds", "each axis alone holds: ..." or "only
/// fsdp moves data on this mesh"; "" if none is known.
std::string suspects_text(const CheckReport& report);

}  // namespace ripstop
