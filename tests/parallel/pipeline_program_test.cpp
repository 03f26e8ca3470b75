// The programs of a pipeline's ranks end, whatever is slow.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "model/core/rounding.h"
#include "tests/parallel/pipeline_programs.h"

namespace ripstop {
namespace {

using Kind = PipelineOperation::Kind;

// Whether operations wait for each other in a circle. All messages are collectives of one group, in which
// each waits for the one before; before each compute is a collective of another group, as a gather of
// weights. kFree: groups do not wait for each other. kBegun: a collective waits until those that the host
// issued before have begun; kEnded: until they have ended.
enum class Rule { kFree, kBegun, kEnded };

class Waits {
 public:
  Waits(const PipelineSizes& sizes, const std::vector<Program>& programs, Rule rule) {
    for (int64_t rank = 0; rank < sizes.ranks; ++rank)
      add(sizes, rank, programs[static_cast<size_t>(rank)], rule);
  }
  /// May be called once.
  bool have_circle() {
    std::vector<size_t> ready;
    for (size_t node = 0; node < before_.size(); ++node)
      if (before_[node] == 0) ready.push_back(node);
    size_t done = 0;
    for (; !ready.empty(); ++done) {
      const size_t node = ready.back();
      ready.pop_back();
      for (const size_t next : after_[node])
        if (--before_[next] == 0) ready.push_back(next);
    }
    return done < before_.size();
  }

 private:
  void add(const PipelineSizes& sizes, int64_t rank, const Program& program, Rule rule) {
    const size_t start = new_node();
    size_t computed = start, last = start;
    std::array<size_t, 2> groups{start, start};  // the last collective of messages, and of gathers
    for (const PipelineOperation& operation : program) {
      const bool computes = is_compute(operation);
      const size_t begin = new_node();
      const size_t end = computes ? new_node() : node_of(ends_, name_of(sizes, rank, operation));
      size_t& group = groups[computes ? 1 : 0];
      wait(group, begin);
      wait(begin, end);
      if (rule != Rule::kFree) wait(last, begin);
      group = end;
      last = rule == Rule::kEnded ? end : begin;
      const Name action = name_of(sizes, rank, operation.action);
      if (operation.kind == Kind::kSend) wait(node_of(computes_, action), begin);
      if (!computes) continue;
      const size_t compute = node_of(computes_, action);
      wait(computed, begin);
      wait(computed, compute);
      wait(end, compute);
      wait(node_of(ends_, action), compute);
      computed = compute;
    }
  }
  size_t new_node() {
    after_.emplace_back();
    before_.push_back(0);
    return before_.size() - 1;
  }
  size_t node_of(std::map<Name, size_t>& nodes, const Name& name) {
    const auto [place, is_new] = nodes.try_emplace(name, before_.size());
    return is_new ? new_node() : place->second;
  }
  void wait(size_t first, size_t second) {
    after_[first].push_back(second);
    ++before_[second];
  }

  std::map<Name, size_t> ends_, computes_;  // of messages, of actions
  std::vector<size_t> before_;              // the number of nodes that a node waits for
  std::vector<std::vector<size_t>> after_;
};

constexpr std::array kRules{Rule::kFree, Rule::kBegun, Rule::kEnded};

TEST(PipelineProgram, NeverWaitsInACircle) {
  each_size([](const PipelineSizes& sizes) {
    const std::vector<Program> programs = programs_of(sizes);
    for (const Rule rule : kRules) EXPECT_FALSE(Waits(sizes, programs, rule).have_circle());
  });
}

// The usual order: each action's receive one action ahead, its send behind it.
std::vector<Program> usual_programs(const PipelineSizes& sizes) {
  std::vector<Program> programs = programs_of(sizes);
  for (int64_t rank = 0; rank < sizes.ranks; ++rank) {
    Program& program = programs[static_cast<size_t>(rank)];
    const Program clock = std::exchange(program, {});
    const std::vector<PipelineAction> actions = pipeline_actions(sizes, rank);
    const auto add = [&](const PipelineOperation& operation) {
      if (std::ranges::count(clock, operation) > 0) program.push_back(operation);
    };
    for (size_t i = 0; i < actions.size(); ++i) {
      if (i == 0) add({Kind::kReceive, actions[0]});
      if (i + 1 < actions.size()) add({Kind::kReceive, actions[i + 1]});
      program.push_back(
          {actions[i].direction == Direction::kForward ? Kind::kForward : Kind::kBackward, actions[i]});
      add({Kind::kSend, actions[i]});
    }
  }
  return programs;
}

// Why there is a clock, and a proof that Waits finds circles.
TEST(PipelineProgram, TheUsualOrderWaitsInACircle) {
  for (const Rule rule : kRules) {
    int64_t circles = 0, all = 0;
    for (int64_t ranks = 2; ranks <= 8; ++ranks)
      for (int64_t micro_batches = 1; micro_batches <= 3 * ranks; ++micro_batches)
        for (const auto& [stages, ahead] : {std::pair{1, 0.0}, {1, 1.0}, {2, 0.0}}) {
          if (stages > 1 && micro_batches % ranks != 0) continue;
          const PipelineSizes sizes{ranks, stages, micro_batches, ahead};
          ++all;
          circles += Waits(sizes, usual_programs(sizes), rule).have_circle() ? 1 : 0;
        }
    EXPECT_EQ(all, 231);
    EXPECT_EQ(circles, 182);
  }
}

// Boundary buffers that the rank holds in the order of its program, sends not counted, if each receive is
// posted before the compute that it follows.
int64_t most_held(const PipelineSizes& sizes, int64_t rank, const Program& program) {
  int64_t held = 0, most = 0;
  size_t posted = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    const auto& [kind, action] = program[i];
    const int64_t stage = stage_of(sizes, rank, action);
    if (kind == Kind::kForward && stage == 0) ++held;
    for (; posted < program.size() && (posted <= i || !is_compute(program[posted])); ++posted)
      held += program[posted].kind == Kind::kReceive ? 1 : 0;
    most = std::max(most, held);
    if (kind == Kind::kSend || (kind == Kind::kBackward && stage == 0)) --held;
    if (!sizes.backward && kind == Kind::kForward && stage == sizes.stages() - 1) --held;
  }
  EXPECT_EQ(held, 0);
  return most;
}

TEST(PipelineProgram, HoldsAtMostFourBuffers) {
  int64_t most = 0;
  each_size([&](const PipelineSizes& sizes) {
    for (int64_t rank = 0; rank < sizes.ranks; ++rank)
      most = std::max(most, most_held(sizes, rank, pipeline_program(sizes, rank)));
  });
  for (const auto& [stages, ahead] : {std::pair{1, 0.5}, {1, 1.0}, {2, 0.0}})
    for (const int64_t rank : {0, 7, 14})
      for (const int64_t micro_batches : {16, 80}) {
        const PipelineSizes sizes{16, stages, micro_batches, ahead};
        most = std::max(most, most_held(sizes, rank, pipeline_program(sizes, rank)));
      }
  EXPECT_EQ(most, 4);
  EXPECT_EQ(kBoundaryBuffers, most + 2);
}

// All ranks of a pipeline with `buffers` boundary buffers each. A message takes as long as it likes, and its
// send ends when it has come: nothing is buffered. Ranks and links go on in random order.
class Pipeline {
 public:
  Pipeline(const PipelineSizes& sizes, const std::vector<Program>& programs, int64_t buffers, uint32_t seed)
      : sizes_(sizes), buffers_(buffers), random_(seed), links_(2 * programs.size()) {
    for (const Program& program : programs) ranks_.push_back({.program = &program, .free = buffers});
    posts_ahead_ = random_() % 2 == 0;
  }

  // Lets all ranks vote behind their first `done` micro-batches.
  void vote_after(int64_t done) { vote_ = done; }
  // Returns whether all ranks come to their end.
  bool run() {
    std::vector<size_t> actors(ranks_.size() + links_.size());
    std::iota(actors.begin(), actors.end(), size_t{0});
    const bool even = random_() % 2 == 0;  // else one goes on until it waits, then the next in their order
    const auto go_on = [&](size_t actor) {
      return actor < ranks_.size() ? advance(actor) : carry(actor - ranks_.size());
    };
    do {
      if (even || random_() % 32 == 0) std::ranges::shuffle(actors, random_);
    } while (std::ranges::any_of(actors, go_on));
    return std::ranges::all_of(
        ranks_, [&](const Rank& rank) { return rank.next == rank.program->size() && rank.free == buffers_; });
  }

 private:
  struct Rank {
    const Program* program = nullptr;
    int64_t free = 0;
    size_t next = 0, posted = 0;  // operations; receives before `posted` are posted
    std::set<Name> arrived = {};
  };
  struct Link {
    std::deque<std::pair<Name, Rank*>> sent, posted;  // with their ranks
  };

  bool post(size_t number, size_t receive) {
    Rank& rank = ranks_[number];
    if (rank.free == 0) return false;
    --rank.free;
    rank.posted = receive + 1;
    const PipelineOperation& operation = (*rank.program)[receive];
    link_to(number, operation).posted.emplace_back(name(number, operation), &rank);
    return true;
  }
  // A host cannot post while it computes.
  void post_ahead(size_t number) {
    const Rank& rank = ranks_[number];
    for (size_t i = rank.next + 1; i < rank.program->size() && !is_compute((*rank.program)[i]); ++i)
      if ((*rank.program)[i].kind == Kind::kReceive && i >= rank.posted && !post(number, i)) return;
  }
  bool compute(size_t number, const PipelineOperation& operation) {
    Rank& rank = ranks_[number];
    const int64_t stage = stage_of(sizes_, static_cast<int64_t>(number), operation.action);
    const bool forward = operation.kind == Kind::kForward, is_last = stage == sizes_.stages() - 1;
    if (posts_ahead_) post_ahead(number);
    if (forward && stage == 0) {
      if (rank.free == 0) return false;
      --rank.free;
    } else if ((forward || !is_last) && !rank.arrived.contains(name(number, operation))) {
      return false;
    }
    if (!forward && operation.action.chunk == 0 && !votes(operation.action.micro_batch + 1)) return false;
    if (forward ? is_last && !sizes_.backward : stage == 0) ++rank.free;
    return true;
  }
  // Waits for the end of the vote when that is due.
  bool votes(int64_t done) {
    if (done == vote_) ++voted_;
    return done != vote_ + micro_batches_of_vote(sizes_.ranks) || voted_ == ranks_.size();
  }
  bool advance(size_t number) {
    Rank& rank = ranks_[number];
    if (rank.next == rank.program->size()) return false;
    const PipelineOperation& operation = (*rank.program)[rank.next];
    if (is_compute(operation)) {
      if (!compute(number, operation)) return false;
    } else if (operation.kind == Kind::kSend) {
      const int64_t peer = pipeline_peer(sizes_, static_cast<int64_t>(number), operation);
      link_to(static_cast<size_t>(peer), operation).sent.emplace_back(name(number, operation), &rank);
    } else if (rank.next >= rank.posted && !post(number, rank.next)) {
      return false;
    }
    ++rank.next;
    return true;
  }
  bool carry(size_t link) {
    auto& [sent, posted] = links_[link];
    if (sent.empty() || posted.empty()) return false;
    EXPECT_EQ(sent.front().first, posted.front().first);
    ++sent.front().second->free;
    posted.front().second->arrived.insert(posted.front().first);
    sent.pop_front();
    posted.pop_front();
    return true;
  }
  Name name(size_t number, const PipelineOperation& operation) const {
    return name_of(sizes_, static_cast<int64_t>(number), operation);
  }
  Link& link_to(size_t receiver, const PipelineOperation& operation) {
    return links_[static_cast<size_t>(operation.action.direction) * ranks_.size() + receiver];
  }

  const PipelineSizes& sizes_;
  const int64_t buffers_;
  std::mt19937 random_;
  bool posts_ahead_ = false;
  int64_t vote_ = 0;  // never
  size_t voted_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Link> links_;
};

TEST(PipelineProgram, EndsUnderAnyDelays) {
  std::mt19937 random(1);
  int64_t ended = 0, ended_with_three = 0;
  uint32_t seed = 0;
  while (seed < 2000) {
    PipelineSizes sizes;
    sizes.ranks = 2 + static_cast<int64_t>(random() % 7);
    sizes.micro_batches = 1 + static_cast<int64_t>(random() % 24);
    sizes.ahead = std::array{0.0, 0.5, 1.0}[random() % 3];
    sizes.backward = random() % 8 != 0;
    if (random() % 3 == 0) {
      sizes.stages_per_rank = 2;
      sizes.micro_batches = round_up(sizes.micro_batches, sizes.ranks);
    }
    SCOPED_TRACE(text_of(sizes));
    const std::vector<Program> programs = programs_of(sizes);
    for (const uint32_t end = seed + 20; seed < end; ++seed) {
      Pipeline pipeline(sizes, programs, kBoundaryBuffers, seed);
      pipeline.vote_after(1 + static_cast<int64_t>(seed) % sizes.micro_batches);
      ended += pipeline.run() ? 1 : 0;
      ended_with_three += Pipeline(sizes, programs, 3, seed).run() ? 1 : 0;
    }
    ASSERT_EQ(ended, seed) << "a pipeline stands still";
  }
  EXPECT_LT(ended_with_three, seed) << "this test cannot fail";
}

}  // namespace
}  // namespace ripstop
