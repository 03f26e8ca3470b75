// The stages of a run's pipeline, and the time for which its ranks are idle.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Settles the layers of each stage (ShardingOptions::stage_layers): mesh.pipeline_layers if the config has
/// them for this number of stages, else split_stages() with the share of targets in the data set. None
/// without a pipeline. Throws like with_layers() and split_stages().
void split_layers(const RunConfig& config, const RunTarget& target, ResolvedRun& run);

/// The share of a step of `micro_batches` in which the ranks of the pipeline compute nothing: before their
/// first, after their last, and while they wait for a longer stage. Counts operations, so messages take no
/// time. 0 without a pipeline. The layers must be split.
double pipeline_idle_share(const ResolvedRun& run, double target_share, int64_t micro_batches);

/// "4 stages of 8, 8, 8 and 8 layers, 15.8% idle; 7, 5, 3 and 1 micro-batches in flight; 30.1, 28.0, 26.4 and
/// 27.9 GiB a rank; units kept whole after forward". Plans each rank of the pipeline.
std::string pipeline_text(const ResolvedRun& run, DeviceKind device);

/// Notes on a pipeline with fewer micro-batches than stages, and on one whose stages span nodes.
std::vector<std::string> pipeline_notes(const RunConfig& config, const RunTarget& target,
                                        const ResolvedRun& run);

}  // namespace ripstop
