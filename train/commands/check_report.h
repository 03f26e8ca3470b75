// Output of `ripstop check`: a table for people, a document for scripts.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/check/check_settings.h"
#include "train/check/check_verdict.h"

namespace ripstop {

/// One axis of the mesh, checked alone.
struct AxisCheck {
  MeshAxis axis = MeshAxis::kReplicate;
  int64_t ranks = 1;
  std::optional<bool> holds;  ///< nullopt: not checked, because a rank has too little memory for it
};

/// A check as rank 0 reports it.
struct CheckReport {
  std::string config_file;
  CheckSettings settings;
  MeshVerdict verdict;
  std::vector<SentByOperation> sent;  ///< planned traffic of rank 0 in a step
  std::vector<AxisCheck> axes_alone;  ///< empty if the verdict holds or the mesh has one axis
  std::vector<std::string> notes;
};

/// The report for people, without the last line end.
std::string check_text(const CheckReport& report);

/// The document of --json. Scripts rely on its keys.
std::string check_document(const CheckReport& report);

/// Which axis is suspect: "the tensor axis fails alone, too; fsdp alone holds". "" if nothing is known.
std::string suspects_text(const CheckReport& report);

}  // namespace ripstop
