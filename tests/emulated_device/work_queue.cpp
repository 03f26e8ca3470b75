#include "tests/emulated_device/work_queue.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "tests/emulated_device/device_memory.h"
#include "tests/emulated_device/scheduler.h"

namespace ripstop::emulated {
namespace {

using Clock = std::chrono::steady_clock;

// The host thread sleeps so long before it asks work that waits for other ranks again.
constexpr auto kNap = std::chrono::microseconds(50);
// After so long without a call of the host, it seems to be busy elsewhere, and the background thread runs
// work.
constexpr auto kQuiet = std::chrono::milliseconds(3);
// Longer than any test takes: what is waited for will not come.
constexpr auto kHopeless = std::chrono::seconds(500);

std::atomic<int> hosts_that_wait = 0;  // threads that want the lock: the background thread lets them go first

// Handles are addresses that no program can have, so that whoever dereferences one notices.
constexpr uint64_t kFirstStream = 0x57e0'0000'0000'0000;
cudaStream_t handle_of(int64_t number) {
  return reinterpret_cast<cudaStream_t>(kFirstStream + static_cast<uint64_t>(number) * 16);
}

std::recursive_mutex& device_mutex() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

bool all_reached(const std::vector<PointHandle>& points) {
  return std::all_of(points.begin(), points.end(),
                     [](const PointHandle& point) { return point == nullptr || point->reached; });
}

}  // namespace

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::atoll(text);
}

int64_t rank_of_process() {
  int64_t rank = -1;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (rank < 0) rank = from_environment(name, -1);
  return std::max<int64_t>(rank, 0);
}

DeviceLock::DeviceLock() {
  ++hosts_that_wait;
  device_mutex().lock();
  --hosts_that_wait;
}
DeviceLock::~DeviceLock() {
  device_mutex().unlock();
}

void refuse(const std::string& call, const std::string& why) {
  const std::string line = fmt::format("emulated device, rank {}: {}: {}\n", rank_of_process(), call, why);
  std::fflush(stdout);
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  _exit(70);
}

void submit(cudaStream_t stream, std::string name, Work work) {
  if (!Scheduler::instance().knows(stream, name.c_str())) refuse(name, "is given to what is no stream");
  Scheduler::instance().append(stream, std::move(name), std::move(work));
}

// Lives until the process ends: other threads may still use it then.
Scheduler& Scheduler::instance() {
  static auto& scheduler = *new Scheduler;
  return scheduler;
}

Scheduler::Scheduler() : last_sign_(Clock::now()) {
  queues_.push_back(std::make_unique<Queue>());
  queues_.front()->blocking = true;
  set_seed(static_cast<uint64_t>(from_environment("RIPSTOP_EMULATED_SEED", 1)));
  std::thread([this] { live(); }).detach();
}

void Scheduler::set_seed(uint64_t seed) {
  const DeviceLock lock;
  std::seed_seq mixed{seed & 0xffffffffU, seed >> 32, static_cast<uint64_t>(rank_of_process())};
  generator_.seed(mixed);
  seed_ = seed;
  shuffle();
}

uint64_t Scheduler::seed() const {
  const DeviceLock lock;
  return seed_;
}

uint64_t Scheduler::draw(uint64_t limit) {
  const DeviceLock lock;
  return generator_() % limit;
}

cudaStream_t Scheduler::make_stream(int device, bool blocking) {
  const DeviceLock lock;
  auto queue = std::make_unique<Queue>();
  queue->number = ++made_;
  queue->device = device;
  queue->blocking = blocking;
  queue->rank = generator_();
  streams_of_.resize(static_cast<size_t>(hardware_queues()));
  const auto least = std::min_element(streams_of_.begin(), streams_of_.end());
  most_streams_ = std::max(most_streams_, ++*least);
  queue->hardware_queue = static_cast<size_t>(least - streams_of_.begin());
  known_[handle_of(made_)] = queue.get();
  queues_.push_back(std::move(queue));
  return handle_of(made_);
}

void Scheduler::end_stream(cudaStream_t stream) {
  const DeviceLock lock;
  find(stream)->ended = true;
  --streams_of_[find(stream)->hardware_queue];
  known_.erase(stream);
}

Scheduler::Queue* Scheduler::find(cudaStream_t stream) const {
  if (stream == nullptr || stream == cudaStreamLegacy) return queues_.front().get();
  const auto found = known_.find(stream);
  return found == known_.end() ? nullptr : found->second;
}

bool Scheduler::knows(cudaStream_t stream, const char* call) const {
  const DeviceLock lock;
  if (find(stream) != nullptr) return true;
  const auto bits = reinterpret_cast<uint64_t>(stream);
  if (bits > kFirstStream && bits <= kFirstStream + static_cast<uint64_t>(made_) * 16)
    refuse(call, fmt::format("stream {} was destroyed", (bits - kFirstStream) / 16));
  return false;
}

int Scheduler::device_of(cudaStream_t stream) const {
  const DeviceLock lock;
  return find(stream)->device;
}

PointHandle Scheduler::append(cudaStream_t stream, std::string name, Work work, PointHandle after) {
  const DeviceLock lock;
  last_sign_ = Clock::now();
  Queue& queue = *find(stream);
  Item item{std::move(name), std::move(work), {}, std::make_shared<Point>(), given_++};
  const auto add = [&](const PointHandle& point) {
    if (point != nullptr && !point->reached) item.after.push_back(point);
  };
  add(after);
  // Work of the legacy stream begins after all earlier work of blocking streams, and the other way round.
  const Queue* legacy = queues_.front().get();
  if (&queue == legacy) {
    for (const auto& other : queues_)
      if (other->blocking) add(other->last);
  } else if (queue.blocking) {
    add(legacy->last);
  }
  PointHandle end = item.end;
  queue.last = end;
  queue.items.push_back(std::move(item));
  return end;
}

std::vector<PointHandle> Scheduler::ends_of(cudaStream_t stream) const {
  const DeviceLock lock;
  const Queue* queue = find(stream);
  std::vector<PointHandle> points{queue->last};
  if (queue == queues_.front().get())
    for (const auto& other : queues_)
      if (other->blocking) points.push_back(other->last);
  return points;
}

std::vector<PointHandle> Scheduler::ends(int device) const {
  const DeviceLock lock;
  std::vector<PointHandle> points;
  for (const auto& queue : queues_)
    if (queue->device == device || queue == queues_.front()) points.push_back(queue->last);
  return points;
}

bool Scheduler::has_reached(const PointHandle& point) const {
  const DeviceLock lock;
  return point == nullptr || point->reached;
}

// New random ranks of the streams, and a new temper. Between two shuffles the same streams are preferred, so
// that one stream may run far ahead of another: a missing wait between them shows.
void Scheduler::shuffle() {
  for (const auto& queue : queues_) queue->rank = generator_();
  constexpr uint64_t kTempers[] = {0, 0, 0, 1, 4, 8};
  eagerness_ = kTempers[generator_() % std::size(kTempers)];
}

int64_t Scheduler::most_streams_of_a_queue() const {
  const DeviceLock lock;
  return most_streams_;
}

// Whether the head of the stream has begun, or all work that its hardware queue was given earlier has. The
// legacy stream has a queue of its own.
bool Scheduler::may_begin(const Queue& queue) const {
  const Item& head = queue.items.front();
  if (head.begun || &queue == queues_.front().get()) return true;
  return std::all_of(queues_.begin() + 1, queues_.end(), [&](const auto& other) {
    if (other->hardware_queue != queue.hardware_queue) return true;
    const auto first =
        std::find_if(other->items.begin(), other->items.end(), [](const Item& item) { return !item.begun; });
    return first == other->items.end() || first->given >= head.given;
  });
}

// Runs the head of a stream. Returns whether it is done.
bool Scheduler::run_head(Queue& queue) {
  Item& item = queue.items.front();
  running_ = item.name.c_str();
  item.begun = true;
  bool done = false;
  try {
    done = item.work();
  } catch (const std::exception& error) {
    refuse(item.name, error.what());
  }
  running_ = nullptr;
  if (!done) return false;
  item.end->time = Clock::now();
  item.end->reached = true;
  queue.items.pop_front();
  return true;
}

Scheduler::Progress Scheduler::run_one() {
  constexpr uint64_t kUntilShuffle = 12;  // on average, in pieces of work
  if (generator_() % kUntilShuffle == 0) shuffle();
  if (is_idle()) {
    std::erase_if(queues_, [](const auto& queue) { return queue->ended; });
    return Progress::kIdle;
  }
  std::vector<Queue*> ready;
  for (const auto& queue : queues_)
    if (!queue->items.empty() && all_reached(queue->items.front().after) && may_begin(*queue))
      ready.push_back(queue.get());
  std::sort(ready.begin(), ready.end(), [](const Queue* a, const Queue* b) { return a->rank > b->rank; });
  for (Queue* queue : ready)
    if (run_head(*queue)) return Progress::kRan;
  return Progress::kWaits;
}

void Scheduler::run_a_bit(uint64_t at_least) {
  const DeviceLock lock;
  last_sign_ = Clock::now();
  if (generator_() % 8 >= std::max(eagerness_, at_least)) return;
  const OpenMemory open;
  for (uint64_t pieces = 1 + generator_() % 4; pieces > 0 && run_one() == Progress::kRan;) --pieces;
}

void Scheduler::wait(const std::vector<PointHandle>& points, const char* call) {
  const auto begin = Clock::now();
  for (;;) {
    {
      const DeviceLock lock;
      last_sign_ = Clock::now();
      if (all_reached(points)) return;
      const OpenMemory open;
      Progress progress = Progress::kRan;
      while (!all_reached(points) && progress == Progress::kRan) progress = run_one();
      if (all_reached(points)) return;
      if (progress == Progress::kIdle) refuse(call, "waits for work that is not there");
      if (Clock::now() - begin > kHopeless)
        refuse(call,
               fmt::format("has waited for {} s. First in the streams: {}", kHopeless.count(), heads()));
    }
    std::this_thread::sleep_for(kNap);
  }
}

std::string Scheduler::heads() const {
  std::string text;
  for (const auto& queue : queues_)
    if (!queue->items.empty())
      text +=
          fmt::format("{}stream {}: {}{}", text.empty() ? "" : ", ", queue->number, queue->items.front().name,
                      all_reached(queue->items.front().after) ? "" : " (waits for an event)");
  return text;
}

// The background thread: while the host is elsewhere (other ranks may wait for this one's work), the device
// works on.
void Scheduler::live() {
  for (bool working = false;;) {
    std::this_thread::sleep_for(working ? kNap : kQuiet / 3);
    if (hosts_that_wait > 0) continue;
    const std::lock_guard lock(device_mutex());
    working = Clock::now() - last_sign_ >= kQuiet && !is_idle();
    if (!working) continue;
    const OpenMemory open;
    Progress progress = Progress::kRan;
    while (progress == Progress::kRan && hosts_that_wait == 0) progress = run_one();
  }
}

bool Scheduler::is_idle() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->items.empty(); });
}

}  // namespace ripstop::emulated
