// The meshes that would fit, for the hint of a plan that does not.
#pragma once
#include <string>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Plans `run` on every mesh fsdp x tensor of target.ranks ranks, each with the largest micro-batch that
/// fits. Returns them in words, "these fit: ...", or what else to do if none fits. Takes milliseconds a mesh.
std::string fitting_meshes(const RunConfig& config, const RunTarget& target, ResolvedRun run);

}  // namespace ripstop
