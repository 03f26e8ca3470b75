// Output of `ripstop check`: a table for people, a document for scripts.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/check/check_settings.h"
#include "train/check/check_verdict.h"
#include "train/check/sent_by_operation.h"

namespace ripstop {

/// One axis of the mesh, checked alone.
struct AxisCheck {
  MeshAxis axis = MeshAxis::kReplicate;
  int64_t ranks = 1;
  std::optional<bool> holds;  ///< nullopt: not tried, because a rank of such a mesh has too little memory
};

/// All that rank 0 knows of a check.
struct CheckReport {
  std::string config_file;
  CheckSettings settings;
  MeshVerdict verdict;
  std::vector<SentByOperation> sent;  ///< planned, in a step
  std::vector<AxisCheck> axes_alone;  ///< if the verdict does not hold and the mesh has several axes
  std::vector<std::string> notes;
};

/// The lines for people, without the last line end.
std::string check_text(const CheckReport& report);

/// The document of --json. Its keys are a contract with people's scripts.
std::string check_document(const CheckReport& report);

/// Which axis is suspect: "the tensor axis fails alone, too; fsdp alone holds". "" if nothing is known.
std::string suspects_text(const CheckReport& report);

}  // namespace ripstop
