#include "parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "model/core/error.h"
#include "tests/expect_error.h"
#include "tests/parallel/pipeline_programs.h"

namespace ripstop {
namespace {

using Kind = PipelineOperation::Kind;
using Actions = std::vector<PipelineAction>;

constexpr Direction kForward = Direction::kForward, kBackward = Direction::kBackward;

TEST(PipelineActions, OneRankTurnsForwardAndBackward) {
  EXPECT_EQ(pipeline_actions({.micro_batches = 2}, 0),
            (Actions{{kForward, 0, 0}, {kBackward, 0, 0}, {kForward, 0, 1}, {kBackward, 0, 1}}));
  EXPECT_EQ(pipeline_actions({.micro_batches = 2, .backward = false}, 0),
            (Actions{{kForward, 0, 0}, {kForward, 0, 1}}));
}

TEST(PipelineActions, EachRunsOnceAndBackwardsFollowForwards) {
  each_size([](const PipelineSizes& sizes) {
    for (int64_t rank = 0; rank < sizes.ranks; ++rank) {
      const Actions actions = pipeline_actions(sizes, rank);
      ASSERT_EQ(actions.size(), (sizes.backward ? 2 : 1) * sizes.stages_per_rank * sizes.micro_batches);
      std::vector<int64_t> forwards(2), backwards(2);  // so far, of each chunk
      for (size_t i = 0; i < actions.size(); ++i) {
        const auto& [direction, chunk, micro_batch] = actions[i];
        ASSERT_LT(chunk, sizes.stages_per_rank);
        int64_t& next = (direction == kForward ? forwards : backwards)[static_cast<size_t>(chunk)];
        EXPECT_EQ(micro_batch, next++) << "sums of gradients have the order of micro-batches";
        if (direction == kBackward) {
          ASSERT_LT(micro_batch, forwards[static_cast<size_t>(chunk)]) << "backward before forward";
        } else if (sizes.backward && stage_of(sizes, rank, actions[i]) == sizes.stages() - 1) {
          EXPECT_EQ(actions[i + 1], (PipelineAction{kBackward, chunk, micro_batch}))
              << "the head keeps no logits";
        }
      }
    }
  });
}

TEST(PipelineActions, HaveAsManyInFlightAsPlanned) {
  each_size([](const PipelineSizes& sizes) {
    if (!sizes.backward) return;
    for (int64_t rank = 0; rank < sizes.ranks; ++rank) {
      const int64_t later = sizes.ranks - 1 - rank;
      const int64_t most =
          sizes.stages_per_rank == 1
              ? later + static_cast<int64_t>(std::ceil(static_cast<double>(later) * sizes.ahead)) + 1
              : 2 * later + sizes.ranks + 1;
      EXPECT_EQ(most_in_flight(pipeline_actions(sizes, rank)),
                std::min(most, sizes.stages_per_rank * sizes.micro_batches));
    }
  });
}

TEST(PipelineActions, InterleaveOnlyWholeTurns) {
  const auto code_of = [](const PipelineSizes& sizes) {
    return error_of([&] { pipeline_actions(sizes, 0); }).code();
  };
  EXPECT_EQ(code_of({.ranks = 4, .stages_per_rank = 2, .micro_batches = 8}), ExitCode::kOk);
  EXPECT_EQ(code_of({.ranks = 4, .stages_per_rank = 2, .micro_batches = 6}), ExitCode::kBug);
  EXPECT_EQ(code_of({.ranks = 4, .stages_per_rank = 2, .micro_batches = 6, .backward = false}),
            ExitCode::kOk);
  EXPECT_EQ(code_of({.ranks = 1, .stages_per_rank = 2, .micro_batches = 6}), ExitCode::kBug);
  EXPECT_EQ(code_of({.ranks = 2, .stages_per_rank = 3, .micro_batches = 6}), ExitCode::kBug);
}

// Each action of the list, behind the receive of its input and before the send of its output.
void check_program(const PipelineSizes& sizes, int64_t rank, const Program& program) {
  const Actions actions = pipeline_actions(sizes, rank);
  std::vector<PipelineAction> received;
  size_t next = 0, sent = 0, sends = 0;
  for (const auto& [kind, action] : program) {
    const int64_t stage = stage_of(sizes, rank, action);
    const bool begins = stage == (action.direction == kForward ? 0 : sizes.stages() - 1);
    const bool ends = stage == (action.direction == kForward ? sizes.stages() - 1 : 0);
    if (kind == Kind::kReceive) {
      EXPECT_FALSE(begins);
      EXPECT_EQ(std::ranges::count(received, action), 0);
      received.push_back(action);
    } else if (kind == Kind::kSend) {
      EXPECT_FALSE(ends);
      EXPECT_NE(std::find(actions.begin(), actions.begin() + next, action), actions.begin() + next);
      ++sent;
    } else {
      ASSERT_LT(next, actions.size());
      EXPECT_EQ(action, actions[next++]);
      EXPECT_EQ(kind, action.direction == kForward ? Kind::kForward : Kind::kBackward);
      EXPECT_EQ(std::ranges::count(received, action), begins ? 0 : 1);
      sends += ends ? 0 : 1;
    }
  }
  EXPECT_EQ(next, actions.size());
  EXPECT_EQ(sent, sends);
}

TEST(PipelineProgram, ReceivesComputesAndSends) {
  each_size([](const PipelineSizes& sizes) {
    for (int64_t rank = 0; rank < sizes.ranks; ++rank)
      check_program(sizes, rank, pipeline_program(sizes, rank));
  });
}

TEST(PipelineProgram, ALinkIsAQueue) {
  each_size([](const PipelineSizes& sizes) {
    const auto ranks = static_cast<size_t>(sizes.ranks);
    // The messages of each direction and receiver, as both sides have them.
    std::vector<std::vector<Name>> sent(2 * ranks), received(2 * ranks);
    for (int64_t rank = 0; rank < sizes.ranks; ++rank)
      for (const PipelineOperation& operation : pipeline_program(sizes, rank)) {
        if (is_compute(operation)) continue;
        const bool sends = operation.kind == Kind::kSend;
        const int64_t peer = pipeline_peer(sizes, rank, operation), receiver = sends ? peer : rank;
        EXPECT_EQ(
            (rank + (sends == (operation.action.direction == kForward) ? 1 : sizes.ranks - 1)) % sizes.ranks,
            peer);
        const size_t link =
            static_cast<size_t>(operation.action.direction) * ranks + static_cast<size_t>(receiver);
        (sends ? sent : received)[link].push_back(name_of(sizes, rank, operation));
      }
    EXPECT_EQ(sent, received);
  });
}

// The operations with which two programs begin alike.
std::span<const PipelineOperation> common_begin(const Program& one, const Program& other) {
  return std::span(one).first(static_cast<size_t>(std::ranges::mismatch(one, other).in1 - one.begin()));
}

// A rank has done a micro-batch when the backward of its first stage has ended.
int64_t done_in(std::span<const PipelineOperation> operations) {
  return std::ranges::count_if(operations, [](const PipelineOperation& each) {
    return each.kind == Kind::kBackward && each.action.chunk == 0;
  });
}

// Every rank that has done `done` micro-batches may turn to the shorter step: two more are alike, for what is
// begun ahead of them. That a shorter one would not do is seen by how many are alike on the first rank.
TEST(PipelineProgram, AShorterStepBeginsAlike) {
  each_size([](const PipelineSizes& sizes) {
    const int64_t ranks = sizes.ranks, done = sizes.micro_batches;
    if (!sizes.backward) return;
    PipelineSizes fewer = sizes;
    fewer.micro_batches = shortest_step(ranks, done);
    EXPECT_EQ(fewer.micro_batches % ranks, 0);
    EXPECT_LT(fewer.micro_batches, done + 3 * ranks);
    const std::vector<Program> shorter = programs_of(fewer);
    for (const int64_t more : {int64_t{1}, ranks, 5 * ranks}) {
      PipelineSizes whole = sizes;
      whole.micro_batches = fewer.micro_batches + more;
      if (sizes.stages_per_rank > 1 && more < ranks) continue;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto alike = common_begin(shorter[static_cast<size_t>(rank)], pipeline_program(whole, rank));
        EXPECT_GE(done_in(alike), ranks == 1 ? done : done + 2) << "rank " << rank;
        if (rank > 0 || (sizes.ahead < 1 && sizes.stages_per_rank == 1)) continue;
        EXPECT_EQ(done_in(alike), fewer.micro_batches - 2 * (ranks - 1));
      }
    }
  });
}

PipelineTimeline even_timeline(const PipelineSizes& sizes, double message) {
  const auto stages = static_cast<size_t>(sizes.stages());
  const auto parts = static_cast<double>(sizes.stages_per_rank);
  return pipeline_timeline(sizes, std::vector(stages, 1 / parts), std::vector(stages, 2 / parts), message);
}

TEST(PipelineTimeline, IdlesAsLongAsTheFormulasSay) {
  each_size([](const PipelineSizes& sizes) {
    if (sizes.stages_per_rank > 1 && sizes.micro_batches % sizes.ranks != 0) return;
    const auto later = static_cast<double>(sizes.ranks - 1),
               parts = static_cast<double>(sizes.stages_per_rank),
               micro_batches = static_cast<double>(sizes.micro_batches);
    const PipelineTimeline timeline = even_timeline(sizes, 0);
    const double of_one = sizes.backward ? 3 : 1;
    EXPECT_NEAR(timeline.seconds, of_one * (micro_batches + later / parts), 1e-6);
    EXPECT_NEAR(timeline.idle_share, later / (parts * micro_batches + later), 1e-6);
  });
}

// Steps of 4 ranks and 32 micro-batches, forward 1 and backward 2 seconds.
TEST(PipelineTimeline, MessagesCostWhatMeasurementsFound) {
  const PipelineSizes late{4, 1, 32, 0}, early{4, 1, 32, 1}, interleaved{4, 2, 32};
  EXPECT_NEAR(even_timeline(late, 0.25).seconds, 118, 1e-6);
  EXPECT_NEAR(even_timeline(late, 0.5).seconds, 131, 1e-6);
  EXPECT_NEAR(even_timeline(early, 0.25).seconds, 106.5, 1e-6);
  EXPECT_NEAR(even_timeline(early, 0.5).seconds, 108, 1e-6);
  EXPECT_NEAR(even_timeline(interleaved, 0.25).seconds, 104, 1e-6);
  EXPECT_NEAR(even_timeline(interleaved, 0.5).seconds, 107.5, 1e-6);
  // Above a forward, a message comes too late for a receive that is posted one compute early.
  EXPECT_NEAR(even_timeline(early, 1.5).seconds, 128, 1e-6);
  // A full link: a forward, then three messages of 2 seconds one after another, then the last forward.
  EXPECT_NEAR(even_timeline({2, 1, 3, 1, false}, 2).seconds, 8, 1e-6);
}

TEST(PipelineTimeline, WaitsForTheLongestStage) {
  const std::vector<double> forward{1, 1.5, 1}, backward{2, 3, 2};
  const PipelineTimeline timeline = pipeline_timeline({3, 1, 20, 1}, forward, backward, 0);
  // The second stage waits for the first forward, then never, and the last backward follows it.
  EXPECT_NEAR(timeline.seconds, 1 + 20 * 4.5 + 2, 1e-6);
  EXPECT_NEAR(timeline.idle_share, 1 - 20 * (3 + 4.5 + 3) / (3 * 93.0), 1e-6);
}

}  // namespace
}  // namespace ripstop
