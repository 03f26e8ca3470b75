// The stages of a run's pipeline, and the time for which its ranks are idle.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/resolved_run.h"

namespace ripstop {

/// Sets ShardingOptions::stage_layers, the layers of each stage: to mesh.pipeline_layers if the config has a
/// number for each stage, else by split_stages() with the share of rows that have a target. Empty without a
/// pipeline and without that key. Throws like with_layers() and split_stages().
void split_layers(const RunConfig& config, const RunTarget& target, ResolvedRun& run);

/// The share of a step of `micro_batches` micro-batches in which ranks of the pipeline are idle: before their
/// first operation, after their last, and while they wait for a longer stage. Messages take no time. 0
/// without a pipeline. Call split_layers() first.
double pipeline_idle_share(const ResolvedRun& run, double target_share, int64_t micro_batches);

/// "2 stages of 16 and 16 layers, 14.3% idle; 3 and 1 micro-batches in flight; 30.1 GiB and 28.0 GiB a rank;
/// units kept whole after forward". Plans each rank of the pipeline.
std::string pipeline_text(const ResolvedRun& run, DeviceKind device);

/// Notes on a pipeline with fewer micro-batches than stages, and on one whose stages span nodes.
std::vector<std::string> pipeline_notes(const RunConfig& config, const RunTarget& target,
                                        const ResolvedRun& run);

}  // namespace ripstop
