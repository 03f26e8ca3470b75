// Groups of NCCL calls and the threads in which they run (NCCL's group.cc).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/emulated_device/nccl_state.h"
#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

// The requests of the calls of one group.
struct GroupParts {
  std::vector<AsyncJob> jobs;
  std::vector<ncclComm_t> with_tasks, with_windows;

  bool empty() const { return jobs.empty() && with_tasks.empty() && with_windows.empty(); }
  std::vector<ncclComm_t> communicators() const {
    std::vector<ncclComm_t> all = with_tasks;
    const auto add = [&](ncclComm_t comm) {
      if (comm != nullptr && std::count(all.begin(), all.end(), comm) == 0) all.push_back(comm);
    };
    for (ncclComm_t comm : with_windows) add(comm);
    for (const AsyncJob& job : jobs) add(job.comm);
    return all;
  }
};

struct ThreadGroup {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  int blocking = -1;
  GroupParts parts;
  std::shared_ptr<GroupJob> before;  // until 2.25: the last job, which uses the thread's lists
};

thread_local ThreadGroup group;

// Until 2.25 a thread has one set of lists. The thread of a job reads the lists of its caller while it runs,
// and the list of communicators keeps its head until ncclCommEnsureReady of one of them resets it; the head
// leads to the address 1 meanwhile (group.h of 2.19.3, lines 80-98; group.cc, lines 183-192).
void check_lists(const char* call) {
  if (behaviour().one_job_a_group || group.before == nullptr) return;
  if (!group.before->done.load())
    refuse(call, fmt::format("the thread of {} is not done, and NCCL before 2.26 has one list of calls for "
                             "both: the real one corrupts it",
                             group.before->call));
  if (group.before->had_tasks)
    refuse(call,
           fmt::format("{} is done, but no call with its communicator has told this thread so (any but "
                       "ncclCommGetAsyncError, such as ncclCommCount): NCCL before 2.26 follows the list "
                       "of that group and crashes",
                       group.before->call));
}

ncclResult_t run_jobs(std::vector<AsyncJob>& jobs) {
  if (jobs.size() == 1) return jobs.front().run();
  std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (size_t j = 0; j < jobs.size(); ++j) threads.emplace_back([&, j] { results[j] = jobs[j].run(); });
  for (std::thread& thread : threads) thread.join();
  for (const ncclResult_t result : results)
    if (result != ncclSuccess) return result;
  return ncclSuccess;
}

ncclResult_t run_parts(GroupParts& parts) {
  ncclResult_t result = parts.jobs.empty() ? ncclSuccess : run_jobs(parts.jobs);
  for (ncclComm_t comm : parts.with_windows)
    if (result == ncclSuccess) result = register_windows(comm);
  for (ncclComm_t comm : parts.with_tasks)
    if (result == ncclSuccess) result = connect_tasks(comm);
  for (ncclComm_t comm : parts.with_tasks)
    if (result == ncclSuccess) result = launch_tasks(comm);
  for (ncclComm_t comm : parts.with_tasks) comm->tasks.clear();
  for (ncclComm_t comm : parts.with_windows) comm->window_tasks.clear();
  return result;
}

// The caller may destroy a communicator as soon as its state is set, so set it last.
void set_states(const std::vector<ncclComm_t>& communicators, ncclResult_t result) {
  for (ncclComm_t comm : communicators)
    if (!comm->blocking) comm->async.store(result);
}

void start_thread(GroupParts parts, const char* call) {
  auto job = std::make_shared<GroupJob>();
  job->call = call;
  job->had_tasks = !parts.with_tasks.empty();
  const std::vector<ncclComm_t> communicators = parts.communicators();
  set_states(communicators, ncclInProgress);
  for (ncclComm_t comm : communicators) comm->group_job = job;
  group.before = job;
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  job->thread = std::thread([job = job.get(), parts = std::move(parts), communicators, device]() mutable {
    static_cast<void>(cudaSetDevice(device));
    // Often at once and sometimes late: the caller must not count on either.
    if (draw(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw(1500)));
    job->result = run_parts(parts);
    set_states(communicators, job->result);
    job->done.store(true);
  });
}

void reset() {
  group.error = ncclSuccess;
  group.blocking = -1;
  group.parts = {};
}

}  // namespace

void GroupJob::join() {
  if (joined) return;
  joined = true;
  thread.join();
}

void group_start() {
  ++group.depth;
}

ncclResult_t group_error(ncclResult_t result) {
  if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress) group.error = result;
  return result;
}

ncclResult_t add_job(AsyncJob job) {
  check_lists("a call that starts a job");
  const bool ends = job.comm->destroy_called;
  if (ends)
    group.blocking = 1;
  else if (group.blocking == -1)
    group.blocking = job.comm->blocking ? 1 : 0;
  else if (group.blocking != (job.comm->blocking ? 1 : 0))
    return warn(ncclInvalidArgument, "a group has communicators that block and others that do not");
  group.parts.jobs.push_back(std::move(job));
  return ncclSuccess;
}

void add_task(ncclComm_t comm, const Task& task) {
  check_lists(to_text(task.call).c_str());
  auto& all = group.parts.with_tasks;
  if (std::count(all.begin(), all.end(), comm) == 0) all.push_back(comm);
  group.blocking = comm->blocking ? 1 : 0;
  comm->tasks.push_back(task);
}

void add_window(ncclComm_t comm, const WindowTask& task) {
  auto& all = group.parts.with_windows;
  if (std::count(all.begin(), all.end(), comm) == 0) all.push_back(comm);
  group.blocking = comm->blocking ? 1 : 0;
  comm->window_tasks.push_back(task);
}

ncclResult_t group_end(const char* call) {
  if (group.depth == 0) return warn(ncclInvalidUsage, "ncclGroupEnd: no group is open");
  if (--group.depth > 0) return ncclSuccess;
  if (group.error != ncclSuccess) {
    const ncclResult_t error = group.error;
    for (ncclComm_t comm : group.parts.with_tasks) comm->tasks.clear();
    for (ncclComm_t comm : group.parts.with_windows) comm->window_tasks.clear();
    set_states(group.parts.communicators(), error);
    reset();
    return error;
  }
  check_lists(call);
  if (group.parts.empty()) {
    reset();
    return ncclSuccess;
  }
  const auto meets_others = [&](const GroupParts& parts) {
    return !parts.jobs.empty() ||
           std::any_of(parts.with_tasks.begin(), parts.with_tasks.end(), needs_connections);
  };
  GroupParts parts = std::exchange(group.parts, {});
  const bool background = group.blocking == 0 && (behaviour().one_job_a_group || meets_others(parts));
  reset();
  if (background) {
    start_thread(std::move(parts), call);
    return ncclInProgress;
  }
  const ncclResult_t result = run_parts(parts);
  if (result != ncclSuccess) set_states(parts.communicators(), result);
  return result;
}

void complete_group(ncclComm_t comm) {
  const std::shared_ptr<GroupJob> job = std::exchange(comm->group_job, nullptr);
  if (job == nullptr) return;
  job->join();
  if (group.before == job) group.before.reset();
}

}  // namespace ripstop::emulated
