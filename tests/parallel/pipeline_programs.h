// Sizes of pipelines and the programs of their ranks, for tests.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/pipeline_schedule.h"

namespace ripstop {

using Program = std::vector<PipelineOperation>;

inline std::string text_of(const PipelineSizes& sizes) {
  return fmt::format("{} ranks, {} stages a rank, {} micro-batches, ahead {}, backward {}", sizes.ranks,
                     sizes.stages_per_rank, sizes.micro_batches, sizes.ahead, sizes.backward);
}

/// Calls check(sizes) for all sizes with 1 to 8 ranks and 1 to 24 micro-batches, with backwards and without,
/// until one fails.
template <class Check>
void each_size(Check check) {
  for (int64_t ranks = 1; ranks <= 8; ++ranks)
    for (int64_t micro_batches = 1; micro_batches <= 24; ++micro_batches)
      for (const auto& [stages, ahead] : {std::pair{1, 0.0}, {1, 0.5}, {1, 1.0}, {2, 0.0}})
        for (const bool backward : {true, false}) {
          if (stages > 1 && (ranks == 1 || (backward && micro_batches % ranks != 0))) continue;
          const PipelineSizes sizes{ranks, stages, micro_batches, ahead, backward};
          SCOPED_TRACE(text_of(sizes));
          check(sizes);
          if (testing::Test::HasFailure()) return;
        }
}

inline int64_t stage_of(const PipelineSizes& sizes, int64_t rank, const PipelineAction& action) {
  return action.chunk * sizes.ranks + rank;
}

inline bool is_compute(const PipelineOperation& operation) {
  return operation.kind == PipelineOperation::Kind::kForward ||
         operation.kind == PipelineOperation::Kind::kBackward;
}

inline std::vector<Program> programs_of(const PipelineSizes& sizes) {
  std::vector<Program> programs;
  for (int64_t rank = 0; rank < sizes.ranks; ++rank) programs.push_back(pipeline_program(sizes, rank));
  return programs;
}

/// An action, or the message of its input: direction, stage, micro-batch.
using Name = std::tuple<Direction, int64_t, int64_t>;
inline Name name_of(const PipelineSizes& sizes, int64_t rank, const PipelineAction& action) {
  return {action.direction, stage_of(sizes, rank, action), action.micro_batch};
}
/// The name of a message; a compute has the name of its action.
inline Name name_of(const PipelineSizes& sizes, int64_t rank, const PipelineOperation& operation) {
  Name name = name_of(sizes, rank, operation.action);
  if (operation.kind == PipelineOperation::Kind::kSend)
    std::get<1>(name) += operation.action.direction == Direction::kForward ? 1 : -1;
  return name;
}

}  // namespace ripstop
