// The model of time: a step on kMeta whose kernels and messages take the time that a machine's rates give.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "model/ops/kernel_work.h"
#include "parallel/device_mesh.h"
#include "train/machine/rates.h"
#include "train/plan/rank_plan.h"

namespace ripstop {

/// The clock of one rank. Kernels run one after another, and so do messages on one kind of link in one
/// direction. Both overlap; kernels then run at LinkRate::compute_share of their speed. A message arrives as
/// if its sender were never late. Alone, a kernel takes FLOPs / rate, or bytes / rate without FLOPs. The rate
/// is the geometric mean of its measured rates, weighted by distance^-4 of the sizes' logarithms. Without any
/// rate, the longer of both times counts.
class PlannedClock final : public KernelObserver {
 public:
  /// `rates` is borrowed. `ranks_per_node`: 0 for all on one node.
  PlannedClock(const Rates& rates, const MeshSizes& mesh, int64_t ranks_per_node, DeviceKind device);

  void run(const KernelWork& work, FunctionRef<void()> kernel) override;
  /// The link of a group of the mesh. Lives as long as the clock.
  PlannedLink& link(const MeshGroup& group);

  double seconds() const { return now_; }
  /// The seconds of a message of `bytes` between stages of a pipeline, over their slowest link.
  double boundary_seconds(int64_t bytes);
  /// The part of seconds() in which nothing was computed.
  double exposed_seconds() const { return exposed_; }
  /// The work that took no time because its rate is not known: "memory", "messages between nodes".
  std::vector<std::string> left_out() const;
  double kernel_seconds(const KernelWork& work);  ///< the time of one kernel; does not advance the clock

 private:
  struct Channel {
    const char* name;
    LinkRate rate;
    double free = 0;      ///< the second from which on this rank sends nothing
    double received = 0;  ///< the second from which on it receives nothing
    bool is_missed = false;
  };
  class GroupLink;
  struct Point {
    std::array<double, 3> sizes;  ///< logarithms
    double per_second;            ///< logarithm
  };

  void compute(double seconds);
  double measured_rate(const std::vector<Point>& points, const std::array<int64_t, 3>& sizes) const;

  const Rates& rates_;
  MeshSizes mesh_;
  int64_t ranks_per_node_;
  DeviceKind device_;
  std::array<Channel, 2> channels_;  ///< inside a node, between nodes
  std::map<std::pair<std::string, std::string>, std::vector<Point>> points_;
  std::map<std::tuple<std::string, DType, std::array<int64_t, 3>, int64_t>, double> known_;
  std::vector<std::unique_ptr<PlannedLink>> links_;
  double now_ = 0, exposed_ = 0;
  bool memory_is_missed_ = false, flops_are_missed_ = false;
};

/// The rows of a run's batches: the share that has a target, and the rows of a document (the mean over rows;
/// 0: the rows of a sequence).
struct StepRows {
  double target_share = 1;
  int64_t document_rows = 0;
};

struct StepTime {
  double seconds = 0;
  double exposed_seconds = 0;         ///< the part in which ranks wait for messages
  std::vector<std::string> left_out;  ///< parts that count as free, because their rates are not known

  std::string left_out_text() const;  ///< ", without memory and messages between nodes"; "" if nothing is
};

/// The time of a step after the first, with work and messages overlapped as in the step. Runs the step's code
/// on kMeta for one rank, because all are alike. In a pipeline, times each different stage by itself, as if
/// its neighbours never waited, and puts the times together by pipeline_timeline(): messages between stages
/// slow down nothing else, and exposed_seconds are the ranks' mean. Loading data counts as free. Takes
/// milliseconds. Not collective.
StepTime plan_step_time(const PlanRequest& request, const Rates& rates, int64_t ranks_per_node,
                        const StepRows& rows = {});

}  // namespace ripstop
