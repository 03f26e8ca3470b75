// The order in which the ranks of a pipeline compute micro-batches and send what is between their stages.
// Pure: no rank asks another one. Stage s = chunk * ranks + rank; without interleaving chunk is 0. Sources:
// arXiv:2104.04473, section 2.2 (1F1B, interleaved 1F1B); arXiv:1811.06965 (pipelines of micro-batches).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/ops.h"

namespace ripstop {

/// Tensors [n, C] of a rank for what passes the boundaries of its stages. A rank holds one from its receive,
/// or from the embedding, until its send begins: it receives into it, computes in place and sends from it. In
/// the order of pipeline_program() it holds at most 4, even if it posts each receive before the compute that
/// the receive follows. The 2 others let it go on while two sends are under way.
inline constexpr int64_t kBoundaryBuffers = 6;

struct PipelineSizes {
  int64_t ranks = 1;  ///< P
  /// 1: 1F1B; 2: interleaved 1F1B, for which `ranks` must be above 1 and, with backwards, divide
  /// `micro_batches`.
  int64_t stages_per_rank = 1;
  int64_t micro_batches = 1;  ///< M of a step
  /// 1, 1/2 or 0: how many more micro-batches a rank of 1F1B begins before its first backward, for each
  /// later rank. With 0 each message delays the step; with 1 messages shorter than a forward hardly do,
  /// but up to twice as many micro-batches are in flight.
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

/// The actions of `rank` in their order: backwards of a chunk in ascending order, in the last stage right
/// after their forwards. One rank: F0 B0 F1 B1 ... Throws Error(kBug) for sizes that
/// PipelineSizes::stages_per_rank does not allow.
std::vector<PipelineAction> pipeline_actions(const PipelineSizes& sizes, int64_t rank);

/// The most pairs of chunk and micro-batch whose forward has begun and whose backward has not ended. The
/// actions must have backwards.
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

/// Actions and messages of `rank` in their order. The lists of all ranks are in the order of one clock, so
/// they end if each rank does one operation after another, even without buffering of messages. Messages of a
/// sender to one rank and in one direction are received in the order in which they are sent.
std::vector<PipelineOperation> pipeline_program(const PipelineSizes& sizes, int64_t rank);

/// The micro-batches that a vote takes: P; 0 without a pipeline. If each rank votes after the backwards of d
/// micro-batches and asks for the result after the backwards of d + P, no rank waits for the vote in the
/// order of pipeline_program(), whatever the order of the ranks.
int64_t micro_batches_of_vote(int64_t ranks);

/// The fewest micro-batches with which a step can still end when the backwards of `done` have ended: a
/// multiple of P below `done` + 3 P; without a pipeline `done`. On each rank, its program begins like the
/// longer step's, beyond the next two backwards, although ranks are at different operations then.
int64_t shortest_step(int64_t ranks, int64_t done);

struct PipelineTimeline {
  double seconds = 0;
  double idle_share = 0;  ///< share of the time of all ranks
};

/// A step of pipeline_program() on all ranks, if stage s computes forward[s] and backward[s] seconds and a
/// message takes `message` seconds, one at a time between two ranks in one direction. A receive is posted
/// before the compute that it follows in the program. Simulates few micro-batches and derives the middle of
/// many from them, so any number takes milliseconds.
PipelineTimeline pipeline_timeline(const PipelineSizes& sizes, std::span<const double> forward,
                                   std::span<const double> backward, double message);

}  // namespace ripstop
