#include "train/plan/step_time.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ripstop {
namespace {

// Ranks that a group of `size` ranks along `axis` has on one node.
int64_t members_of_node(const MeshSizes& mesh, const std::string& axis, int64_t size,
                        int64_t ranks_per_node) {
  if (ranks_per_node == 0) return size;
  // Neighbours in mesh order share a node; neighbours in a group are `stride` places apart.
  int64_t stride = 1;
  for (size_t a = kMeshAxes.size(); a-- > 0 && axis != to_string(kMeshAxes[a]);)
    stride *= axis == "world" ? 1 : mesh[kMeshAxes[a]];
  return std::clamp<int64_t>(ranks_per_node / stride, 1, size);
}

}  // namespace

// A group's messages. On the host a rank sends to all others at once, over both kinds of links. A library of
// the device sends around a ring, which leaves and enters each node once.
class PlannedClock::GroupLink final : public PlannedLink {
 public:
  GroupLink(PlannedClock& clock, int64_t size, int64_t members) : clock_(clock) {
    const auto others = static_cast<double>(size - 1), near = static_cast<double>(members - 1);
    if (clock.device_ == DeviceKind::kCpu)
      shares_ = {near / others, (others - near) / others};
    else
      shares_ = {members > 1 ? 1.0 : 0.0, members < size ? 1.0 / static_cast<double>(members) : 0.0};
  }

  double start(int64_t bytes, int64_t rounds) override { return move(bytes, rounds, &Channel::free); }
  double start_receive(int64_t bytes) override { return move(bytes, 1, &Channel::received); }
  bool has_passed(double second) const override { return second <= clock_.now_; }
  void wait_until(double second) override {
    if (has_passed(second)) return;
    clock_.exposed_ += second - clock_.now_;
    clock_.now_ = second;
  }

 private:
  double move(int64_t bytes, int64_t rounds, double Channel::*way) {
    double end = clock_.now_;
    for (size_t c = 0; c < shares_.size(); ++c) {
      if (shares_[c] == 0) continue;
      Channel& channel = clock_.channels_[c];
      if (channel.rate.bytes_per_second == 0) {
        channel.is_missed = true;
        continue;
      }
      channel.*way = std::max(channel.*way, clock_.now_) +
                     shares_[c] * static_cast<double>(bytes) / channel.rate.bytes_per_second;
      end = std::max(end, channel.*way + static_cast<double>(rounds) * channel.rate.latency_seconds);
    }
    return end;
  }

  PlannedClock& clock_;
  std::array<double, 2> shares_;  // shares of the bytes that a rank sends: inside the node, between nodes
};

PlannedClock::PlannedClock(const Rates& rates, const MeshSizes& mesh, int64_t ranks_per_node,
                           DeviceKind device)
    : rates_(rates),
      mesh_(mesh),
      ranks_per_node_(ranks_per_node),
      device_(device),
      channels_{{{"messages inside a node", rates.inside_node.value_or(LinkRate{})},
                 {"messages between nodes", rates.between_nodes.value_or(LinkRate{})}}} {
  for (const KernelRate& each : rates.kernels)
    points_[{each.kernel, each.dtype}].push_back(
        {{std::log(each.rows), std::log(each.columns), std::log(each.inner)}, std::log(each.per_second)});
}

double PlannedClock::measured_rate(const std::vector<Point>& points,
                                   const std::array<int64_t, 3>& sizes) const {
  double sum = 0, weights = 0;
  for (const Point& point : points) {
    double square = 0;
    for (size_t s = 0; s < sizes.size(); ++s)
      square += std::pow(std::log(std::max<int64_t>(sizes[s], 1)) - point.sizes[s], 2);
    // The lower bound avoids a division by 0, and gives a point of these sizes almost all the weight.
    const double weight = 1 / std::pow(std::max(square, 1e-6), 2);
    sum += weight * point.per_second;
    weights += weight;
  }
  return std::exp(sum / weights);
}

double PlannedClock::kernel_seconds(const KernelWork& work) {
  const auto flops = static_cast<double>(work.flops), bytes = static_cast<double>(work.bytes);
  const auto points = points_.find({work.kernel, std::string(to_string(work.dtype))});
  if (points != points_.end())
    return (work.flops > 0 ? flops : bytes) / measured_rate(points->second, work.sizes);
  flops_are_missed_ = flops_are_missed_ || (work.flops > 0 && rates_.flops_per_second == 0);
  memory_is_missed_ = memory_is_missed_ || rates_.memory_bytes_per_second == 0;
  const auto time = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  return std::max(time(flops, rates_.flops_per_second), time(bytes, rates_.memory_bytes_per_second));
}

void PlannedClock::run(const KernelWork& work, FunctionRef<void()>) {
  const auto [place, is_new] = known_.try_emplace({work.kernel, work.dtype, work.sizes, work.bytes}, 0);
  if (is_new) place->second = kernel_seconds(work);
  compute(place->second);
}

// While messages move, kernels run at LinkRate::compute_share of their speed.
void PlannedClock::compute(double seconds) {
  while (seconds > 0) {
    double share = 1, until = std::numeric_limits<double>::infinity();
    for (const Channel& channel : channels_) {
      for (const double end : {channel.free, channel.received})
        if (end > now_) until = std::min(until, end);
      if (std::max(channel.free, channel.received) > now_) share *= channel.rate.compute_share;
    }
    const double most = (until - now_) * share;
    if (!(most < seconds)) {
      now_ += seconds / share;
      return;
    }
    seconds -= most;
    now_ = until;
  }
}

PlannedLink& PlannedClock::link(const MeshGroup& group) {
  const int64_t members = members_of_node(mesh_, group.name, group.size, ranks_per_node_);
  links_.push_back(std::make_unique<GroupLink>(*this, group.size, members));
  return *links_.back();
}

double PlannedClock::boundary_seconds(int64_t bytes) {
  const int64_t members = members_of_node(mesh_, kPipelineAxis, mesh_.pipeline, ranks_per_node_);
  Channel& channel = channels_[members < mesh_.pipeline ? 1 : 0];
  channel.is_missed = channel.is_missed || channel.rate.bytes_per_second == 0;
  return channel.rate.bytes_per_second == 0
             ? 0
             : static_cast<double>(bytes) / channel.rate.bytes_per_second + channel.rate.latency_seconds;
}

std::vector<std::string> PlannedClock::left_out() const {
  std::vector<std::string> names;
  if (flops_are_missed_) names.emplace_back("products");
  if (memory_is_missed_) names.emplace_back("memory");
  for (const Channel& channel : channels_)
    if (channel.is_missed) names.emplace_back(channel.name);
  return names;
}

std::string StepTime::left_out_text() const {
  return left_out.empty() ? "" : fmt::format(", without {}", fmt::join(left_out, " and "));
}

namespace {

// A duration, and the part of it in which nothing was computed.
struct Span {
  double seconds = 0, exposed = 0;
  Span operator-(const Span& other) const { return {seconds - other.seconds, exposed - other.exposed}; }
  Span operator+(const Span& other) const { return {seconds + other.seconds, exposed + other.exposed}; }
  Span operator*(double times) const { return {seconds * times, exposed * times}; }
  double computing() const { return seconds - exposed; }
};

// The step of one stage by itself.
struct StageTime {
  Span all;            // time of the step
  double forward = 0;  // seconds of a micro-batch; 0 in the last stage, whose backward follows at once
  double backward = 0;
};

class TimedStage {
 public:
  TimedStage(const PlanRequest& request, PlannedClock& clock, const StepRows& rows, int64_t stage)
      : clock_(clock),
        request_(request),
        at_{.pipeline = stage},
        stream_(planned_device(request), /*urgent=*/false, &clock),
        mesh_(request.mesh, at_,
              [&](const MeshGroup& group) {
                const bool is_free = group.size == 1 || group.is_link;
                return make_planned_communicator(group.name, group.rank, group.size, request.device, {},
                                                 is_free ? nullptr : &clock.link(group));
              }),
        step_(request.model, request.step, mesh_, stream_, ledger_),
        document_{0, static_cast<int32_t>(rows.document_rows)} {
    const ShardingOptions& sharding = request.step.sharding;
    const auto all = static_cast<double>(sharding.sequence_count * sharding.sequence_length);
    targets_.resize(static_cast<size_t>(std::clamp(std::ceil(rows.target_share * all), 1.0, all)));
  }

  StageTime time() {
    const int64_t stages = request_.mesh.pipeline;
    // In a pipeline, the two micro-batches beyond those in flight at once show the steady state.
    const int64_t walked = stages == 1 ? walked_micro_batches(request_.mesh, request_.micro_batches)
                                       : step_.model().most_batches() + 2;
    // Only the first step of a run gathers frozen weights that stay gathered, so a later step is timed.
    walk(1);
    walk(walked);
    const auto more = static_cast<double>(request_.micro_batches) - static_cast<double>(walked);
    StageTime time{.all = begun_.back() - begun_.front()};
    if (walked < 3) return time;
    const size_t last = begun_.size() - 2;
    const Span turn = begun_[last] - begun_[last - 1];
    time.all = time.all + turn * more;
    if (at_.pipeline + 1 < stages) time.forward = forward_seconds();
    time.backward = std::max(0.0, turn.seconds - time.forward);
    return time;
  }

 private:
  HostTokens next() {
    begun_.push_back({clock_.seconds(), clock_.exposed_seconds()});
    HostTokens tokens;
    tokens.target = targets_;
    if (document_[1] > 0) tokens.document_offset = document_;
    return tokens;
  }
  void walk(int64_t micro_batches) {
    begun_.clear();
    step_.run(
        micro_batches, [&](int64_t) { return next(); }, 0.0, {1}, [] { return false; });
    begun_.push_back({clock_.seconds(), clock_.exposed_seconds()});
  }
  // Evaluates three micro-batches: the gathers of the middle one overlap with compute, as in a step.
  double forward_seconds() {
    begun_.clear();
    step_.evaluate(
        3, [&](int64_t) { return next(); }, [] { return false; });
    return (begun_[2] - begun_[1]).seconds;
  }

  PlannedClock& clock_;
  const PlanRequest& request_;
  MeshCoordinates at_;
  Stream stream_;
  DeviceMesh mesh_;
  MemoryLedger ledger_;
  TrainingStep step_;
  std::vector<int32_t> targets_;
  std::array<int32_t, 2> document_;
  std::vector<Span> begun_;  // when each micro-batch begins, and the end
};

// The times of all stages. Equal stages are timed once; two stages on a rank as if each had its own rank.
std::vector<StageTime> time_stages(PlanRequest request, PlannedClock& clock, const StepRows& rows) {
  ShardingOptions& sharding = request.step.sharding;
  sharding.stage_layers = stage_split(request.model, request.mesh, sharding).layers;
  sharding.stages_per_rank = 1;
  request.mesh.pipeline = std::ssize(sharding.stage_layers);
  std::vector<StageTime> times;
  std::map<std::tuple<int64_t, bool, bool>, StageTime> known;
  for (int64_t stage = 0; stage < request.mesh.pipeline; ++stage) {
    const int64_t layers = sharding.stage_layers[static_cast<size_t>(stage)];
    const auto [place, is_new] = known.try_emplace({layers, stage == 0, stage + 1 == request.mesh.pipeline});
    if (is_new) place->second = TimedStage(request, clock, rows, stage).time();
    times.push_back(place->second);
  }
  return times;
}

}  // namespace

StepTime plan_step_time(const PlanRequest& request, const Rates& rates, int64_t ranks_per_node,
                        const StepRows& rows) {
  PlannedClock clock(rates, request.mesh, ranks_per_node, request.device);
  const std::vector<StageTime> stages = time_stages(request, clock, rows);
  const Span& first = stages.front().all;
  if (stages.size() == 1) return {first.seconds, first.exposed, clock.left_out()};
  const ShardingOptions& sharding = request.step.sharding;
  const int64_t boundary = sharding.sequence_count * sharding.sequence_length / request.mesh.tensor *
                           request.model.hidden_size * element_bytes(sharding.compute);
  std::vector<double> forward, backward;
  const auto micro_batches = static_cast<double>(request.micro_batches);
  const auto ranks = static_cast<size_t>(request.mesh.pipeline);
  std::vector<double> rest(ranks);  // time outside of micro-batches
  double computing = 0;             // the mean of ranks
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageTime& stage = stages[s];
    forward.push_back(stage.forward);
    backward.push_back(stage.backward);
    rest[s % ranks] += stage.all.seconds - micro_batches * (stage.forward + stage.backward);
    computing += stage.all.computing() / static_cast<double>(ranks);
  }
  const double seconds = std::max(0.0, std::ranges::max(rest)) +
                         pipeline_timeline(pipeline_sizes(request.mesh, sharding, request.micro_batches),
                                           forward, backward, clock.boundary_seconds(boundary))
                             .seconds;
  return {seconds, seconds - computing, clock.left_out()};
}

}  // namespace ripstop
