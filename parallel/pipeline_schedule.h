// The order in which the ranks of a pipeline compute micro-batches and send what is between their stages.
// Pure: no rank asks another one. Stage s = chunk * ranks + rank; without interleaving chunk is 0. Sources:
// arXiv:2104.04473, section 2.2 (1F1B, interleaved 1F1B); arXiv:1811.06965 (pipelines of micro-batches).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/ops.h"

namespace ripstop {

/// The number of a rank's buffers [n, C] for what passes the boundaries of its stages. A rank holds a buffer
/// from the receive, or from the embedding, until the send begins. In the order of pipeline_program(), it
/// holds at most 4, even if it posts each receive before the compute that the receive follows. The 2 others
/// let it go on while two sends are under way.
inline constexpr int64_t kBoundaryBuffers = 6;

struct PipelineSizes {
  int64_t ranks = 1;  ///< P
  /// 1: 1F1B; 2: interleaved 1F1B, for which `ranks` must be above 1 and, with backwards, divide
  /// `micro_batches`.
  int64_t stages_per_rank = 1;
  int64_t micro_batches = 1;  ///< M of a step
  /// 1, 1/2 or 0: how many more micro-batches a rank of 1F1B begins before its first backward, for each
  /// later rank. With 0 each message delays the step. With 1 messages shorter than a forward hardly delay
  /// it, but up to twice as many micro-batches are in flight.
  double ahead = 1;
  bool backward = true;  ///< false: forwards alone, as validation needs
  int64_t stages() const { return ranks * stages_per_rank; }
  bool operator==(const PipelineSizes&) const = default;
};

/// The forward or backward of one micro-batch in one stage.
struct PipelineAction {
  Direction direction = Direction::kForward;
  int64_t chunk = 0;  ///< the number of the stage among the rank's stages
  int64_t micro_batch = 0;
  bool operator==(const PipelineAction&) const = default;
};

/// The actions of `rank` in order. Backwards of a chunk are in ascending order; in the last stage, each comes
/// right after its forward. One rank: F0 B0 F1 B1 ... Throws Error(kBug) for sizes that
/// PipelineSizes::stages_per_rank does not allow.
std::vector<PipelineAction> pipeline_actions(const PipelineSizes& sizes, int64_t rank);

/// The most micro-batches in flight at once; one that is in two chunks counts twice. `actions` must have
/// backwards.
int64_t most_in_flight(const std::vector<PipelineAction>& actions);

/// One thing that a rank does: an action, or a message between stages of different ranks.
struct PipelineOperation {
  /// kReceive brings the input of `action`, kSend takes the output of `action` away.
  enum class Kind : uint8_t { kReceive, kForward, kBackward, kSend };
  Kind kind = Kind::kForward;
  PipelineAction action;
  bool operator==(const PipelineOperation&) const = default;
};

/// The rank at the other end of a receive or send of `rank`.
int64_t pipeline_peer(const PipelineSizes& sizes, int64_t rank, const PipelineOperation& message);

/// Actions and messages of `rank` in order. The lists of all ranks are in the order of one clock. So there is
/// no deadlock if each rank does one operation after another, even if no message is buffered. Messages from
/// one rank to another in one direction are received in the order in which they are sent.
std::vector<PipelineOperation> pipeline_program(const PipelineSizes& sizes, int64_t rank);

/// The number of micro-batches between a vote on StepBatches::gives_up and its result: P; 0 without a
/// pipeline. If each rank votes after the backwards of d micro-batches and waits for the result after those
/// of d + P, no delay leads to a deadlock in the order of pipeline_program().
int64_t micro_batches_of_vote(int64_t ranks);

/// The fewest micro-batches with which a step can still end when the backwards of `done` have ended: a
/// multiple of P below `done` + 3 P; without a pipeline `done`. Ranks are at different operations then,
/// but on each the programs of the shorter and the longer step are equal until after the next two backwards.
int64_t shortest_step(int64_t ranks, int64_t done);

struct PipelineTimeline {
  double seconds = 0;
  double idle_share = 0;  ///< share of the time of all ranks
};

/// Times a step of pipeline_program() in which stage s computes for forward[s] and backward[s] seconds, and a
/// message takes `message` seconds. Between two ranks, messages of one direction follow each other. A receive
/// is posted before the compute that it follows in the program. Simulates few micro-batches and extrapolates
/// to many, so that any number takes milliseconds.
PipelineTimeline pipeline_timeline(const PipelineSizes& sizes, std::span<const double> forward,
                                   std::span<const double> backward, double message);

}  // namespace ripstop
