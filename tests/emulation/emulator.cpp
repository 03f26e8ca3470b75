// Each emulated thread is a context with its own stack; stacks are reused by later blocks and launches.
// makecontext starts a thread. After that, setjmp and longjmp switch between threads: unlike swapcontext they
// make no system call.
#undef _FORTIFY_SOURCE  // its longjmp refuses to jump to another stack
#include "tests/emulation/emulator.h"

#include <link.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "model/core/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <dlfcn.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulation {

Now now;

namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kMostThreads = 1024;
constexpr size_t kStackBytes = 256 << 10;

enum class State { kReady, kAtWarp, kAtBlock, kDone };

struct Thread {
  std::unique_ptr<std::byte[]> stack;
  ucontext_t start{};
  jmp_buf resumed{};
  bool started = false;
  State state = State::kReady;
  Place place;
  unsigned exchanges = 0;
};

/// The values that the lanes of a warp exchange. Two sets, since a lane may be one exchange ahead of the
/// others.
using Shown = std::array<std::array<uint64_t, kLanes>, 2>;

struct Block {
  std::vector<Thread> threads{kMostThreads};
  std::vector<Shown> shown{kMostThreads / kLanes};
  unsigned count = 0;  ///< of threads
  Thread* current = nullptr;
  const ripstop::FunctionRef<void()>* body = nullptr;
};

Block block;
ucontext_t scheduler_context;
jmp_buf scheduler;
Launch launch_elsewhere = nullptr;
Order order = Order::kForward;
std::vector<Place> seen;
Place removed;
std::exception_ptr thrown;  ///< by an emulated thread; its own stack has no caller that could catch it
std::mt19937 generator;

// ---- switching

#if defined(__SANITIZE_ADDRESS__)
const void* scheduler_stack = nullptr;
size_t scheduler_stack_bytes = 0;
void leave(void** fake, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void arrive(void* fake, bool from_scheduler) {
  __sanitizer_finish_switch_fiber(fake, from_scheduler ? &scheduler_stack : nullptr,
                                  from_scheduler ? &scheduler_stack_bytes : nullptr);
}
// The sanitizer's longjmp forgets the frames of this stack, with a system call. But no frame is left here:
// they are resumed later, and their bounds must still be known. So it is the C library's that is called.
void jump(jmp_buf& to) {
  using Jump = void (*)(jmp_buf, int);
  static const auto longjmp_of_libc =
      reinterpret_cast<Jump>(dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "_longjmp"));
  longjmp_of_libc(to, 1);
}
#else
void jump(jmp_buf& to) {
  _longjmp(to, 1);
}
constexpr const void* scheduler_stack = nullptr;
constexpr size_t scheduler_stack_bytes = 0;
void leave(void**, const void*, size_t) {}
void arrive(void*, bool) {}
#endif

/// Switches to the scheduler. Returns when the thread is resumed.
[[gnu::noinline]] void suspend(State state, Place place) {
  Thread& me = *block.current;
  me.state = state;
  me.place = place;
  void* fake = nullptr;
  if (_setjmp(me.resumed) == 0) {
    leave(&fake, scheduler_stack, scheduler_stack_bytes);
    jump(scheduler);
  }
  arrive(fake, true);
}

/// The life of an emulated thread: runs the body once for every block.
void live() {
  arrive(nullptr, true);
  for (;;) {
    try {
      (*block.body)();
    } catch (...) {
      thrown = std::current_exception();
    }
    suspend(State::kDone, {});
  }
}

void start(Thread& thread) {
  if (thread.stack == nullptr) thread.stack.reset(new std::byte[kStackBytes]);
  getcontext(&thread.start);
  thread.start.uc_stack.ss_sp = thread.stack.get();
  thread.start.uc_stack.ss_size = kStackBytes;
  thread.start.uc_link = nullptr;
  makecontext(&thread.start, live, 0);
}

/// Runs a thread until it waits or is done.
[[gnu::noinline]] void resume(Thread& thread) {
  block.current = &thread;
  void* fake = nullptr;
  if (_setjmp(scheduler) == 0) {
    leave(&fake, thread.stack.get(), kStackBytes);
    if (thread.started) jump(thread.resumed);
    thread.started = true;
    swapcontext(&scheduler_context, &thread.start);
  }
  arrive(fake, false);
}

// ---- scheduling

std::vector<unsigned> sequence(unsigned count) {
  std::vector<unsigned> result(count);
  std::iota(result.begin(), result.end(), 0U);
  if (order == Order::kReversed) std::reverse(result.begin(), result.end());
  if (order == Order::kShuffled) std::shuffle(result.begin(), result.end(), generator);
  return result;
}

[[noreturn]] void fail_at(Place place, const char* what) {
  ripstop::fail(ripstop::ExitCode::kBug, "{}:{}: {}", place.file, place.line, what);
}

/// Whether all wait in `state` in the same place, or none of them does. In any other case a GPU would hang or
/// compute garbage.
bool all_wait(Thread* first, unsigned count, State state) {
  const auto waits = [&](const Thread& t) { return t.state == state; };
  const auto* one = std::find_if(first, first + count, waits);
  if (one == first + count) return false;
  if (!std::all_of(first, first + count, waits)) fail_at(one->place, "not all threads come to this barrier");
  if (!std::all_of(first, first + count, [&](const Thread& t) { return t.place == one->place; }))
    fail_at(one->place, "other threads wait in another place");
  return true;
}

/// Runs the lanes of a warp until all of them wait for the block or are done.
void run_warp(unsigned warp, const std::vector<unsigned>& lanes) {
  Thread* first = &block.threads[warp * kLanes];
  do {
    for (const unsigned lane : lanes) {
      Thread& thread = first[lane];
      if (thread.state == State::kDone || thread.state == State::kAtBlock) continue;
      if (!thread.started) start(thread);
      now.thread = {warp * kLanes + lane, 0, 0};
      resume(thread);
      if (thrown != nullptr) std::rethrow_exception(std::exchange(thrown, nullptr));
    }
  } while (all_wait(first, kLanes, State::kAtWarp));
}

/// Finds the thread-local memory of this library: it is the kernels' shared memory.
int fill_shared_memory(dl_phdr_info* info, size_t, void* code) {
  const auto address = reinterpret_cast<uintptr_t>(code);
  bool ours = false;
  size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && address - info->dlpi_addr - part.p_vaddr < part.p_memsz) ours = true;
    if (part.p_type == PT_TLS) bytes = part.p_memsz;
  }
  if (!ours) return 0;
  if (info->dlpi_tls_data != nullptr) std::memset(info->dlpi_tls_data, 0xff, bytes);
  return 1;
}

// The system makes this library's thread-local memory for a thread when it is first used, and only then can
// it be filled.
thread_local volatile bool used_by_this_thread = false;

void run_block() {
  Thread* first = block.threads.data();
  bool again = true;
  for (Thread* t = first; t < first + block.count; ++t) t->exchanges = 0;
  while (again) {
    for (Thread* t = first; t < first + block.count; ++t) t->state = State::kReady;
    for (const unsigned warp : sequence(block.count / kLanes)) run_warp(warp, sequence(kLanes));
    again = all_wait(first, block.count, State::kAtBlock);
  }
}

void wait(State state, Place place) {
  if (std::find(seen.begin(), seen.end(), place) == seen.end()) seen.push_back(place);
  if (place != removed) suspend(state, place);
}

}  // namespace

void wait_for_block(Place place) {
  wait(State::kAtBlock, place);
}
void wait_for_warp(Place place) {
  wait(State::kAtWarp, place);
}

uint64_t exchange(unsigned lanes, uint64_t bits, int mask, Place place) {
  if (lanes != 0xffffffffU) fail_at(place, "a shuffle without all lanes");
  Thread& me = *block.current;
  const auto number = static_cast<unsigned>(&me - block.threads.data());
  auto& shown = block.shown[number / kLanes][me.exchanges++ % 2];
  shown[number % kLanes] = bits;
  suspend(State::kAtWarp, place);
  return shown[(number % kLanes) ^ static_cast<unsigned>(mask)];
}

void run(Extent blocks, Extent threads, ripstop::FunctionRef<void()> body) {
  RIPSTOP_CHECK(threads.x % kLanes == 0 && threads.y == 1 && threads.z == 1 && threads.x <= kMostThreads,
                "blocks of {} x {} x {} threads", threads.x, threads.y, threads.z);
  block.count = threads.x;
  block.body = &body;
  now.threads = threads;
  now.blocks = blocks;
  generator.seed(threads.x);
  // Once a launch: the block that is first, another one in each order, sees what it did not write.
  used_by_this_thread = true;
  dl_iterate_phdr(fill_shared_memory, reinterpret_cast<void*>(&fill_shared_memory));
  for (const unsigned i : sequence(blocks.x * blocks.y)) {
    now.block = {i % blocks.x, i / blocks.x, 0};
    try {
      run_block();
    } catch (...) {
      for (Thread& thread : block.threads) thread.started = false;  // abandons the threads of a failed block
      throw;
    }
  }
}

int launch(void* stream, std::function<void()> work) {
  if (launch_elsewhere != nullptr) return launch_elsewhere(stream, std::move(work));
  work();
  return 0;
}
void set_launch(Launch how) {
  launch_elsewhere = how;
}

void set_order(Order chosen) {
  order = chosen;
}
std::vector<Place> barriers() {
  return seen;
}
void remove_barrier(Place place) {
  removed = place;
}

}  // namespace emulation
