#include "train/run/step_trace.h"

#include <algorithm>

#include "data/process/shell_word.h"
#include "parallel/agreement.h"

namespace ripstop {

void StepTrace::before(int64_t step) {
  if (step < steps_.first || step > steps_.last) return;
  facts_.last_step = step;
  if (recorder_.is_on()) return;
  const DeviceMesh& mesh = *run_.ranks;
  std::string place;
  for (const MeshAxis axis : kMeshAxes)
    if (mesh.sizes()[axis] > 1)
      place += fmt::format("{}{} {}", place.empty() ? ", " : " ", to_string(axis), mesh.coordinates()[axis]);
  facts_.rank = mesh.position();
  facts_.ranks = mesh.ranks();
  facts_.process = fmt::format("rank {} ({}{})", facts_.rank, run_.host(), place);
  facts_.device = to_string(run_.device);
  facts_.first_step = step;
  before_ = meet();
  facts_.started_ns = of_rank_0(mesh.world(), RangeRecorder::nanoseconds(RangeRecorder::now()));
  record_into(&recorder_);
  recorder_.start();
}

void StepTrace::begin(int64_t step, RangeRecorder::Time at) {
  if (recorder_.is_on() && !profiled_) profiled_.emplace(run_.device);
  const std::string name = "step " + std::to_string(step);
  device_table(run_.device.kind).open_range(name.c_str());
  recorder_.open(name, at);
}

void StepTrace::end(RangeRecorder::Time at) {
  recorder_.close(at);
  device_table(run_.device.kind).close_range();
}

// Runs barriers, and returns the times of all ranks, from which NodeClock compares the nodes' clocks.
std::vector<BarrierTimes> StepTrace::meet() const {
  BarrierTimes own;
  own.node = world_.places()[static_cast<size_t>(world_.communicator().rank())].node;
  Communicator& world = run_.ranks->world();
  for (size_t i = 0; i < own.entered.size(); ++i) {
    own.entered[i] = RangeRecorder::nanoseconds(RangeRecorder::now());
    world.barrier();
    own.left[i] = RangeRecorder::nanoseconds(RangeRecorder::now());
  }
  return of_all_ranks(world, own);
}

void StepTrace::finish() {
  if (!recorder_.is_on()) return;
  profiled_.reset();
  recorder_.stop();
  record_into(nullptr);
  const std::vector<BarrierTimes> after = meet();
  const NodeClock clock(before_, after, after[static_cast<size_t>(facts_.rank)].node);
  facts_.clock_error_us = clock.error_us();
  facts_.dropped_ranges = recorder_.dropped();
  const std::filesystem::path folder = run_.directory() / kTraceFolder;
  Communicator& world = run_.ranks->world();
  do_and_agree(world, [&] {
    if (directory_) directory_->check_still_owned();
  });
  std::string problem;
  const auto attempt = [&](FunctionRef<void()> body) {
    try {
      if (problem.empty()) body();
    } catch (const Error& error) {
      problem = error.what();
    }
  };
  const StorageWait wait(world_);
  if (directory_) attempt([&] { remove_traces(posix_io(), folder); });
  world.barrier();
  attempt([&] { write_trace(posix_io(), folder, facts_, recorder_, clock); });
  const std::vector<std::string> problems = world.all_gather_text(problem);
  for (size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty())
      log_.warn(fmt::format("the trace of rank {} was not written: {}", rank, problems[rank]));
  if (facts_.dropped_ranges > 0)
    log_.warn(fmt::format("the trace is full and lacks {} ranges of rank 0: profile fewer steps",
                          facts_.dropped_ranges));
  if (std::ranges::any_of(problems, &std::string::empty))
    log_.say(fmt::format("trace of steps {}-{} in {}; to look at it: ripstop report --trace trace.json {}",
                         facts_.first_step, facts_.last_step, folder.string(),
                         shell_word(run_.config.run.directory)));
}

}  // namespace ripstop
