#include "tests/emulated_device/device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/emulated_device/scheduler.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

namespace ripstop::emulated {
namespace {

// Addresses, not memory: enough that none is ever given twice.
constexpr int64_t kRegionBytes = int64_t{1} << 40;
constexpr int64_t kPage = 4096, kHugePage = int64_t{2} << 20;
constexpr int64_t kAlignment = 256;  // all that cudaMalloc promises
constexpr int kBeside = 0xa5;        // the bytes around a block

struct Block {
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  std::byte* pages = nullptr;  // the pages that hold it, and no other block
  int64_t page_bytes = 0;
  int device = 0;
  bool live = true;  // false: from cudaMallocAsync, and the stream has not come to it
  bool in_stream_order = false;
};

int64_t round_to(int64_t bytes, int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// The block that holds an address, in a map from begins to blocks.
template <class Blocks>
auto holder(Blocks& blocks, const void* data) {
  auto next = blocks.upper_bound(static_cast<const std::byte*>(data));
  if (next == blocks.begin()) return blocks.end();
  --next;
  return static_cast<const std::byte*>(data) < next->first + next->second.bytes ? next : blocks.end();
}

class Memory {
 public:
  static Memory& instance() {
    static auto& memory = *new Memory;
    return memory;
  }

  void open() { ++users_; }
  void close() {
    if (--users_ > 0) return;
    for (const Block& block : open_) protect(block, false);
    open_.clear();
  }

  void* allocate(int device, int64_t bytes, bool live);
  void begin_life(void* data);
  bool free(void* data);
  int64_t used(int device) const {
    const auto found = used_.find(device);
    return found == used_.end() ? 0 : found->second;
  }

  std::map<const std::byte*, Block> blocks_, pinned_;

 private:
  Memory();
  static void protect(const Block& block, bool accessible) {
    mprotect(block.pages, static_cast<size_t>(block.page_bytes),
             accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  static void on_fault(int number, siginfo_t* info, void*);
  std::string describe(const void* address) const;

  std::byte *region_ = nullptr, *next_ = nullptr;
  int users_ = 0;             // of OpenMemory
  std::vector<Block> open_;   // the blocks that work has touched since
  std::atomic_flag opening_;  // guards open_ between the threads of one kernel
  std::map<int, int64_t> used_;
  std::map<const std::byte*, Block> freed_;
  struct sigaction before_ {};
};

Memory::Memory() {
  void* region = mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) refuse("mmap", std::strerror(errno));
  region_ = static_cast<std::byte*>(region);
  next_ = region_ + kHugePage - reinterpret_cast<uintptr_t>(region_) % kHugePage;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before_);
}

// Work opens a block by its first access: blocks are many, and a piece of work uses few. Every other access
// to the region ends the process, so that it does not matter what the signal interrupted. Only accesses to
// the region come here, and none of them is in the allocator or changes the maps. The threads of one CPU
// kernel come here at the same time.
void Memory::on_fault(int number, siginfo_t* info, void*) {
  Memory& memory = instance();
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  if (address < memory.region_ || address >= memory.region_ + kRegionBytes) {
    sigaction(number, &memory.before_, nullptr);  // the access is repeated, and is somebody else's
    return;
  }
  const auto found = holder(memory.blocks_, address);
  if (memory.users_ > 0 && found != memory.blocks_.end() && found->second.live) {
    while (memory.opening_.test_and_set(std::memory_order_acquire)) {
    }
    protect(found->second, true);
    memory.open_.push_back(found->second);
    memory.opening_.clear(std::memory_order_release);
    return;
  }
  const char* work = Scheduler::instance().running();
  refuse(work != nullptr ? work : "the host",
         fmt::format("{} {}",
                     work != nullptr ? "uses" : "reads or writes device memory:", memory.describe(address)));
}

std::string Memory::describe(const void* address) const {
  const auto place = [&](const Block& block) {
    return fmt::format("byte {} of the {} at {}", static_cast<const std::byte*>(address) - block.begin,
                       block.bytes, fmt::ptr(block.begin));
  };
  if (const auto found = holder(blocks_, address); found != blocks_.end())
    return place(found->second) + (found->second.live ? "" : ", which the stream has not allocated yet");
  if (const auto found = holder(freed_, address); found != freed_.end())
    return place(found->second) + ", which were freed";
  auto next = blocks_.upper_bound(static_cast<const std::byte*>(address));
  if (next == blocks_.begin()) return fmt::format("address {}, where nothing is", address);
  return place(std::prev(next)->second) + ", beyond their end";
}

void* Memory::allocate(int device, int64_t bytes, bool live) {
  if (bytes > device_bytes() - used(device)) return nullptr;
  // Large blocks on large pages, which are protected at once. A page beyond each block stays closed, and the
  // block ends as close before it as its alignment allows.
  const int64_t page = bytes >= kHugePage ? kHugePage : kPage;
  Block block{.bytes = bytes, .page_bytes = round_to(bytes, page), .device = device, .live = live};
  block.in_stream_order = !live;
  const auto from = reinterpret_cast<intptr_t>(next_);
  block.pages = next_ + (round_to(from, page) - from);
  block.begin = block.pages + (block.page_bytes - bytes) / kAlignment * kAlignment;
  next_ = block.pages + block.page_bytes + kPage;
  if (next_ > region_ + kRegionBytes) refuse("cudaMalloc", "the emulated device has no addresses left");
  if (page == kHugePage) madvise(block.pages, static_cast<size_t>(block.page_bytes), MADV_HUGEPAGE);
  protect(block, true);
  std::memset(block.pages, kBeside, static_cast<size_t>(block.page_bytes));
  std::memset(block.begin, 0xff, static_cast<size_t>(bytes));
  ASAN_POISON_MEMORY_REGION(block.pages, static_cast<size_t>(block.begin - block.pages));
  ASAN_POISON_MEMORY_REGION(block.begin + bytes,
                            static_cast<size_t>(block.pages + block.page_bytes - block.begin - bytes));
  protect(block, false);
  used_[device] += bytes;
  blocks_[block.begin] = block;
  return block.begin;
}

void Memory::begin_life(void* data) {
  blocks_.at(static_cast<const std::byte*>(data)).live = true;
}

bool Memory::free(void* data) {
  const auto found = blocks_.find(static_cast<const std::byte*>(data));
  if (found == blocks_.end()) return false;
  const Block block = found->second;
  protect(block, true);
  const auto size = static_cast<size_t>(block.page_bytes);
  ASAN_UNPOISON_MEMORY_REGION(block.pages, size);
  const auto beside = [](std::byte b) { return b == std::byte{kBeside}; };
  if (!std::all_of(block.pages, block.begin, beside) ||
      !std::all_of(block.begin + block.bytes, block.pages + block.page_bytes, beside))
    refuse("cudaFree", fmt::format("something was written beside the {} bytes at {}", block.bytes,
                                   fmt::ptr(block.begin)));
  mmap(block.pages, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  ASAN_POISON_MEMORY_REGION(block.pages, size);
  std::erase_if(open_, [&](const Block& other) { return other.begin == block.begin; });
  used_[block.device] -= block.bytes;
  freed_[block.begin] = block;
  blocks_.erase(found);
  return true;
}

}  // namespace

OpenMemory::OpenMemory() {
  Memory::instance().open();
}
OpenMemory::~OpenMemory() {
  Memory::instance().close();
}

MemoryFacts look_up(const void* data) {
  const DeviceLock lock;
  const Memory& memory = Memory::instance();
  const auto facts = [](const Block& block, MemoryFacts::Kind kind) {
    return MemoryFacts{kind, block.device, block.begin, block.bytes, block.in_stream_order};
  };
  if (const auto found = holder(memory.blocks_, data); found != memory.blocks_.end())
    return facts(found->second, MemoryFacts::Kind::kDevice);
  if (const auto found = holder(memory.pinned_, data); found != memory.pinned_.end())
    return facts(found->second, MemoryFacts::Kind::kPinned);
  return {};
}

bool within_block(const MemoryFacts& facts, const void* data, int64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  return facts.begin != nullptr && begin >= facts.begin && bytes <= facts.begin + facts.bytes - begin;
}

bool on_device(const void* data, int64_t bytes) {
  const MemoryFacts facts = look_up(data);
  return facts.kind == MemoryFacts::Kind::kDevice && within_block(facts, data, bytes);
}

void* allocate_device(int device, int64_t bytes, bool live) {
  const DeviceLock lock;
  return Memory::instance().allocate(device, bytes, live);
}
void begin_life(void* data) {
  const DeviceLock lock;
  Memory::instance().begin_life(data);
}
bool free_device(void* data) {
  const DeviceLock lock;
  return Memory::instance().free(data);
}

void* allocate_pinned(int device, int64_t bytes) {
  static const char* const most_kib = std::getenv("RIPSTOP_EMULATED_PINNED");
  const DeviceLock lock;
  int64_t taken = bytes;
  for (const auto& [data, block] : Memory::instance().pinned_) taken += block.bytes;
  if (most_kib != nullptr && taken > std::atoll(most_kib) << 10) return nullptr;
  auto* data = static_cast<std::byte*>(
      std::aligned_alloc(kPage, static_cast<size_t>(round_to(std::max<int64_t>(bytes, 1), kPage))));
  if (data == nullptr) return nullptr;
  std::memset(data, 0xff, static_cast<size_t>(bytes));
  ASAN_POISON_MEMORY_REGION(data + bytes,
                            static_cast<size_t>(round_to(std::max<int64_t>(bytes, 1), kPage) - bytes));
  Memory::instance().pinned_[data] = {.begin = data, .bytes = bytes, .device = device};
  return data;
}
bool free_pinned(void* data) {
  const DeviceLock lock;
  auto& pinned = Memory::instance().pinned_;
  const auto found = pinned.find(static_cast<const std::byte*>(data));
  if (found == pinned.end()) return false;
  ASAN_UNPOISON_MEMORY_REGION(
      data, static_cast<size_t>(round_to(std::max<int64_t>(found->second.bytes, 1), kPage)));
  pinned.erase(found);
  std::free(data);
  return true;
}

int64_t device_bytes() {
  static const int64_t bytes = from_environment("RIPSTOP_EMULATED_MEMORY", 8192) << 20;
  return bytes;
}
int64_t free_device_bytes(int device) {
  const DeviceLock lock;
  return device_bytes() - Memory::instance().used(device);
}

}  // namespace ripstop::emulated
