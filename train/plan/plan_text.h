#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// The plan of the fullest rank in aligned lines: bytes by category, their total and the device's memory (if
/// known), parts for summaries and saves (if any), bytes sent per step by axis. No last line end.
std::string plan_text(const ResolvedRun& run, const std::optional<int64_t>& device_memory_bytes);

/// "6738415616 parameters", or "6738415616 frozen parameters and 8388608 of adapters (rank 16 on q_proj,
/// v_proj)".
std::string parameters_text(const ResolvedRun& run);

/// "none", or "selective (14.2% more operations than none)".
std::string recompute_text(const ResolvedRun& run);

/// "resharded after forward", or "kept whole after forward": the gathered units.
std::string_view units_text(bool reshard_after_forward);

/// "80.0 GiB", or "80.0 GiB, of which CUDA's libraries take 3.0 GiB".
std::string device_memory_text(const ResolvedRun& run, int64_t device_memory_bytes);

}  // namespace ripstop
