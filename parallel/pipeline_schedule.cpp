#include "parallel/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

using Kind = PipelineOperation::Kind;

constexpr int64_t kNever = -1;
// The most whole rounds that pipeline_timeline() simulates. A round is one micro-batch for each rank.
constexpr int64_t kSimulatedRounds = 16;

// Times in the caller's unit.
struct Costs {
  std::vector<int64_t> forward, backward;  // times of each stage
  int64_t message = 0;
};

// The costs by which pipeline_program() orders operations, whatever the real costs are: a message takes a
// quarter of the time of a rank's forwards of one micro-batch.
Costs costs_of_clock(const PipelineSizes& sizes) {
  const auto stages = static_cast<size_t>(sizes.stages());
  return {std::vector<int64_t>(stages, 4), std::vector<int64_t>(stages, 8), sizes.stages_per_rank};
}

struct TimedAction {
  PipelineAction action;
  int64_t stage = 0;
  TimedAction* source = nullptr;  // the action whose output is received; null: none
  size_t posted_after = 0;        // the number of the rank's actions that end before the receive is posted
  int64_t begin = 0, end = kNever;
  int64_t received = kNever, sent = kNever;  // when the messages of input and output begin
};

struct TimedRank {
  std::vector<TimedAction> actions;
  size_t ended = 0;
  std::array<int64_t, 2> arrived{};  // the time of the last message in each direction
};

// Simulates all ranks. An action begins when the action before it on its rank has ended and its input has
// come. A message begins when its receive is posted, the output that it carries is there, and the previous
// message to the same receiver in this direction has come, because a link is a queue.
class Simulation {
 public:
  explicit Simulation(const PipelineSizes& sizes);
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  void run(const Costs& costs);
  // Lets the next run post each receive before the compute that it followed in the last run. Until then all
  // receives are posted at the beginning.
  void post_receives_as_run();
  const std::vector<TimedRank>& ranks() const { return ranks_; }

 private:
  std::vector<TimedRank> ranks_;
};

// The change of the stage's number by a step in `direction`.
int64_t way(Direction direction) {
  return direction == Direction::kForward ? 1 : -1;
}

Simulation::Simulation(const PipelineSizes& sizes) : ranks_(static_cast<size_t>(sizes.ranks)) {
  const int64_t stages = sizes.stages(), micro_batches = sizes.micro_batches;
  std::vector<TimedAction*> places(static_cast<size_t>(2 * stages * micro_batches));
  const auto place = [&](const PipelineAction& action, int64_t stage) -> TimedAction*& {
    const int64_t row = action.direction == Direction::kForward ? stage : stages + stage;
    return places[static_cast<size_t>(row * micro_batches + action.micro_batch)];
  };
  for (int64_t rank = 0; rank < sizes.ranks; ++rank) {
    std::vector<TimedAction>& actions = ranks_[static_cast<size_t>(rank)].actions;
    for (const PipelineAction& action : pipeline_actions(sizes, rank))
      actions.push_back({action, action.chunk * sizes.ranks + rank});
    for (TimedAction& timed : actions) place(timed.action, timed.stage) = &timed;
  }
  for (TimedRank& rank : ranks_)
    for (TimedAction& timed : rank.actions) {
      const int64_t from = timed.stage - way(timed.action.direction);
      if (from >= 0 && from < stages) timed.source = place(timed.action, from);
    }
}

// Sets the times of the rank's next action. Returns false if there is none, or its source has no end yet.
bool go_on(TimedRank& rank, const Costs& costs) {
  std::vector<TimedAction>& actions = rank.actions;
  if (rank.ended == actions.size()) return false;
  const auto end_of = [&](size_t count) { return count == 0 ? 0 : actions[count - 1].end; };
  TimedAction& timed = actions[rank.ended];
  const Direction direction = timed.action.direction;
  timed.begin = end_of(rank.ended);
  if (timed.source != nullptr) {
    if (timed.source->end == kNever) return false;
    int64_t& arrived = rank.arrived[static_cast<size_t>(direction)];
    timed.received = std::max({timed.source->end, end_of(timed.posted_after), arrived});
    timed.source->sent = timed.received;
    arrived = timed.received + costs.message;
    timed.begin = std::max(timed.begin, arrived);
  }
  const std::vector<int64_t>& cost = direction == Direction::kForward ? costs.forward : costs.backward;
  timed.end = timed.begin + cost[static_cast<size_t>(timed.stage)];
  ++rank.ended;
  return true;
}

void Simulation::run(const Costs& costs) {
  for (TimedRank& rank : ranks_) {
    rank.ended = 0;
    rank.arrived = {};
    for (TimedAction& timed : rank.actions) timed.end = kNever;
  }
  for (bool moves = true; moves;) {
    moves = false;
    for (TimedRank& rank : ranks_)
      while (go_on(rank, costs)) moves = true;
  }
  for (const TimedRank& rank : ranks_)
    RIPSTOP_CHECK(rank.ended == rank.actions.size(), "action {} waits forever", rank.ended);
}

void Simulation::post_receives_as_run() {
  for (auto& [actions, ended, arrived] : ranks_) {
    size_t begun = 0;  // actions that begin before this receive or an earlier one
    for (TimedAction& timed : actions) {
      if (timed.source == nullptr) continue;
      while (actions[begun].begin < timed.received) ++begun;
      timed.posted_after = begun == 0 ? 0 : begun - 1;
    }
  }
}

}  // namespace

std::vector<PipelineAction> pipeline_actions(const PipelineSizes& sizes, int64_t rank) {
  const int64_t ranks = sizes.ranks, chunks = sizes.stages_per_rank, later = ranks - 1 - rank;
  const bool are_turns_whole = sizes.micro_batches % ranks == 0 || !sizes.backward;
  RIPSTOP_CHECK(chunks == 1 || (chunks == 2 && ranks > 1 && are_turns_whole),
                "{} stages a rank, {} ranks, {} micro-batches", chunks, ranks, sizes.micro_batches);
  const int64_t total = chunks * sizes.micro_batches;
  // A turn with two chunks: `ranks` micro-batches, or those left, in one chunk, then the same in the other.
  const auto action = [&](Direction direction, int64_t number) {
    const int64_t turn = number / (ranks * chunks) * ranks, place = number - turn * chunks;
    const int64_t of_turn = std::min(ranks, sizes.micro_batches - turn), chunk = place / of_turn;
    return PipelineAction{.direction = direction,
                          .chunk = direction == Direction::kForward ? chunk : chunks - 1 - chunk,
                          .micro_batch = turn + place % of_turn};
  };
  const auto ahead = static_cast<int64_t>(std::ceil(static_cast<double>(later) * sizes.ahead));
  const int64_t first = std::min(total, chunks == 1 ? later + ahead : 2 * later + (chunks - 1) * ranks);
  std::vector<PipelineAction> actions;
  for (int64_t number = 0; number < first + total; ++number) {
    if (number < total) actions.push_back(action(Direction::kForward, number));
    if (sizes.backward && number >= first) actions.push_back(action(Direction::kBackward, number - first));
  }
  return actions;
}

int64_t most_in_flight(const std::vector<PipelineAction>& actions) {
  int64_t now = 0, most = 0;
  for (const PipelineAction& action : actions) most = std::max(most, now += way(action.direction));
  return most;
}

int64_t pipeline_peer(const PipelineSizes& sizes, int64_t rank, const PipelineOperation& message) {
  const int64_t step = way(message.action.direction);
  return (rank + sizes.ranks + (message.kind == Kind::kSend ? step : -step)) % sizes.ranks;
}

std::vector<PipelineOperation> pipeline_program(const PipelineSizes& sizes, int64_t rank) {
  Simulation clock(sizes);
  clock.run(costs_of_clock(sizes));
  // An operation's key: begin, whether it is a compute, the rank that computes or sends, direction. The two
  // ends of a message have the same key; all other keys of a pipeline differ. So all operations of all ranks
  // have one order, in which each needs only earlier ones, and there is no deadlock.
  using Key = std::tuple<int64_t, bool, int64_t, Direction>;
  std::vector<std::pair<Key, PipelineOperation>> keyed;
  for (const TimedAction& timed : clock.ranks()[static_cast<size_t>(rank)].actions) {
    const Direction direction = timed.action.direction;
    const PipelineOperation receive{Kind::kReceive, timed.action}, send{Kind::kSend, timed.action};
    const Kind kind = direction == Direction::kForward ? Kind::kForward : Kind::kBackward;
    if (timed.received != kNever)
      keyed.push_back({{timed.received, false, pipeline_peer(sizes, rank, receive), direction}, receive});
    keyed.push_back({{timed.begin, true, rank, direction}, {kind, timed.action}});
    if (timed.sent != kNever) keyed.push_back({{timed.sent, false, rank, direction}, send});
  }
  std::ranges::sort(keyed, {}, &std::pair<Key, PipelineOperation>::first);
  std::vector<PipelineOperation> program;
  for (const auto& [key, operation] : keyed) program.push_back(operation);
  return program;
}

int64_t micro_batches_of_vote(int64_t ranks) {
  return ranks == 1 ? 0 : ranks;
}

// The programs of two steps begin to differ when the first rank has 2 (P - 1) backwards left, not earlier.
int64_t shortest_step(int64_t ranks, int64_t done) {
  return ranks == 1 ? done : round_up(done + 2 * ranks, ranks);
}

PipelineTimeline pipeline_timeline(const PipelineSizes& sizes, std::span<const double> forward,
                                   std::span<const double> backward, double message) {
  const auto stages = static_cast<size_t>(sizes.stages());
  RIPSTOP_CHECK(forward.size() == stages && backward.size() == stages, "{} and {} times of {} stages",
                forward.size(), backward.size(), stages);
  constexpr double kUnits = 1e9;  // in a second
  const auto units = [](double seconds) { return static_cast<int64_t>(std::llround(seconds * kUnits)); };
  Costs costs{{}, {}, units(message)};
  std::ranges::transform(forward, std::back_inserter(costs.forward), units);
  std::ranges::transform(backward, std::back_inserter(costs.backward), units);
  const auto end_of = [&](int64_t micro_batches) {
    PipelineSizes few = sizes;
    few.micro_batches = micro_batches;
    Simulation simulation(few);
    simulation.run(costs_of_clock(few));
    simulation.post_receives_as_run();
    simulation.run(costs);
    int64_t end = 0;
    for (const TimedRank& rank : simulation.ranks()) end = std::max(end, rank.actions.back().end);
    return static_cast<double>(end);
  };
  const int64_t rounds = std::max<int64_t>(sizes.micro_batches / sizes.ranks - kSimulatedRounds, 0);
  const int64_t simulated = sizes.micro_batches - rounds * sizes.ranks;
  double end = end_of(simulated);
  if (rounds > 0) end += static_cast<double>(rounds) * (end - end_of(simulated - sizes.ranks));
  const auto sum = [](const std::vector<int64_t>& all) { return std::reduce(all.begin(), all.end()); };
  const double busy =
      static_cast<double>(sizes.micro_batches) *
      static_cast<double>(sum(costs.forward) + (sizes.backward ? sum(costs.backward) : int64_t{0}));
  return {end / kUnits, end == 0 ? 0 : 1 - busy / (static_cast<double>(sizes.ranks) * end)};
}

}  // namespace ripstop
