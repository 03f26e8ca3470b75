#include "tests/emulated_device/shared_exchange.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

constexpr int kMostRanks = 64;
// A rank may be this many collectives ahead of the slowest; the rest of the board may still be read.
constexpr int64_t kBoardCalls = 64, kMostAhead = 56;

const char* name_of(Call::Kind kind) {
  switch (kind) {
    case Call::Kind::kAllGather:
      return "ncclAllGather";
    case Call::Kind::kReduceScatter:
      return "ncclReduceScatter";
    case Call::Kind::kAllReduce:
      return "ncclAllReduce";
    case Call::Kind::kBroadcast:
      return "ncclBroadcast";
    case Call::Kind::kSend:
      return "ncclSend";
    case Call::Kind::kReceive:
      return "ncclRecv";
  }
  return "?";
}

struct Type {
  int32_t datatype;
  const char* name;
  int64_t bytes;
};
Type type_of(int32_t datatype) {
  static constexpr Type kTypes[] = {{ncclInt8, "ncclInt8", 1},       {ncclUint8, "ncclUint8", 1},
                                    {ncclInt32, "ncclInt32", 4},     {ncclUint32, "ncclUint32", 4},
                                    {ncclInt64, "ncclInt64", 8},     {ncclUint64, "ncclUint64", 8},
                                    {ncclFloat16, "ncclFloat16", 2}, {ncclFloat32, "ncclFloat32", 4},
                                    {ncclFloat64, "ncclFloat64", 8}, {ncclBfloat16, "ncclBfloat16", 2}};
  for (const Type& type : kTypes)
    if (type.datatype == datatype) return type;
  return {datatype, "an unknown type", 0};
}

[[noreturn]] void fail_to_share(const char* what) {
  refuse("shared memory of the emulated NCCL", fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace

int64_t Call::element_bytes() const {
  return type_of(datatype).bytes;
}

std::string to_text(const Call& call) {
  std::string text = fmt::format("{} of {} {}", name_of(call.kind), call.count, type_of(call.datatype).name);
  const bool reduces = call.kind == Call::Kind::kAllReduce || call.kind == Call::Kind::kReduceScatter;
  if (reduces) text += fmt::format(", reduction {}", call.reduction);
  if (call.kind == Call::Kind::kBroadcast) text += fmt::format(" from root {}", call.peer);
  if (call.kind == Call::Kind::kSend) text += fmt::format(" to rank {}", call.peer);
  if (call.kind == Call::Kind::kReceive) text += fmt::format(" from rank {}", call.peer);
  if (call.window_offset >= 0) text += fmt::format(" at byte {} of its window", call.window_offset);
  return text;
}

SharedMemoryName make_shared_memory() {
  const int file = memfd_create("ripstop_emulated_nccl", MFD_CLOEXEC);
  if (file < 0) fail_to_share("memfd_create");
  return {getpid(), file};
}

struct SharedExchange::Header {
  std::atomic<int32_t> ranks;
  std::atomic<int32_t> connections[kMostRanks * kMostRanks];  // [from][to]: 1 sender, 2 receiver, 3 both
};

struct SharedExchange::RankBoard {
  std::atomic<int32_t> taken;
  std::atomic<int64_t> rounds;  // of all_gather that this rank has begun
  Record records[2];
  std::atomic<int64_t> posts;
  Call calls[kBoardCalls];
};

struct SharedExchange::Channel {
  alignas(64) std::atomic<int64_t> written;
  alignas(64) std::atomic<int64_t> read;
  alignas(64) std::byte data[kChannelBytes];
};

int64_t SharedExchange::boards_at() {
  return (static_cast<int64_t>(sizeof(Header)) + 4095) / 4096 * 4096;
}
int64_t SharedExchange::channels_at(int ranks) {
  return (boards_at() + ranks * static_cast<int64_t>(sizeof(RankBoard)) + 4095) / 4096 * 4096;
}

SharedExchange::SharedExchange(const SharedMemoryName& name, int rank, int ranks)
    : rank_(rank), ranks_(ranks) {
  if (ranks > kMostRanks) refuse("ncclCommInitRank", fmt::format("{} ranks, at most {}", ranks, kMostRanks));
  const std::string path = fmt::format("/proc/{}/fd/{}", name.pid, name.file);
  file_ = name.pid == getpid() ? static_cast<int>(name.file) : open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0) fail_to_share(path.c_str());
  bytes_ = channels_at(ranks) + int64_t{ranks} * ranks * static_cast<int64_t>(sizeof(Channel));
  struct stat state {};
  // New bytes are zeros, which is the empty state of everything here.
  if (fstat(file_, &state) != 0 || (state.st_size < bytes_ && ftruncate(file_, bytes_) != 0))
    fail_to_share("ftruncate");
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) fail_to_share("mmap");
  memory_ = static_cast<std::byte*>(mapped);
  int32_t found = 0;
  if (!header().ranks.compare_exchange_strong(found, ranks) && found != ranks)
    refuse("ncclCommInitRank",
           fmt::format("rank {} says {} ranks, another rank of the group says {}", rank, ranks, found));
  if (board(rank).taken.exchange(1) != 0)
    refuse("ncclCommInitRank", fmt::format("two processes are rank {} of {}", rank, ranks));
}

SharedExchange::~SharedExchange() {
  munmap(memory_, static_cast<size_t>(bytes_));
  if (file_ >= 0) close(file_);
}

SharedExchange::Header& SharedExchange::header() const {
  return *std::launder(reinterpret_cast<Header*>(memory_));
}
SharedExchange::RankBoard& SharedExchange::board(int rank) const {
  return std::launder(reinterpret_cast<RankBoard*>(memory_ + boards_at()))[rank];
}
SharedExchange::Channel& SharedExchange::channel(int from, int to) const {
  return std::launder(reinterpret_cast<Channel*>(memory_ + channels_at(ranks_)))[from * ranks_ + to];
}

// Two records a rank are enough: a rank begins round k + 2 after all have begun round k + 1, which they do
// when they have read round k.
std::vector<SharedExchange::Record> SharedExchange::all_gather(const Record& own,
                                                               const std::function<bool()>& given_up) {
  const int64_t round = round_++;
  const auto at = static_cast<size_t>(round % 2);
  board(rank_).records[at] = own;
  board(rank_).rounds.store(round + 1, std::memory_order_release);
  std::vector<Record> all;
  for (int r = 0; r < ranks_; ++r) {
    while (board(r).rounds.load(std::memory_order_acquire) <= round) {
      if (given_up()) return {};
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    all.push_back(board(r).records[at]);
  }
  // All ranks have mapped the memory: nobody opens the file again.
  if (file_ >= 0) close(std::exchange(file_, -1));
  return all;
}

bool SharedExchange::connect(int from, int to) {
  const int32_t mine = from == rank_ ? 1 : 2;
  return (header().connections[from * ranks_ + to].fetch_or(mine) | mine) == 3;
}

int64_t SharedExchange::room(int to) const {
  const Channel& out = channel(rank_, to);
  return kChannelBytes - (out.written.load() - out.read.load(std::memory_order_acquire));
}

int64_t SharedExchange::waiting(int from) const {
  const Channel& in = channel(from, rank_);
  return in.written.load(std::memory_order_acquire) - in.read.load();
}

int64_t SharedExchange::write(int to, const void* data, int64_t bytes) {
  Channel& out = channel(rank_, to);
  bytes = std::min(bytes, room(to));
  const int64_t written = out.written.load();
  for (int64_t done = 0; done < bytes;) {
    const int64_t at = (written + done) % kChannelBytes;
    const int64_t part = std::min(bytes - done, kChannelBytes - at);
    std::memcpy(out.data + at, static_cast<const std::byte*>(data) + done, static_cast<size_t>(part));
    done += part;
  }
  out.written.store(written + bytes, std::memory_order_release);
  return bytes;
}

void SharedExchange::read(int from, void* data, int64_t bytes) {
  Channel& in = channel(from, rank_);
  const int64_t read = in.read.load();
  for (int64_t done = 0; done < bytes;) {
    const int64_t at = (read + done) % kChannelBytes;
    const int64_t part = std::min(bytes - done, kChannelBytes - at);
    std::memcpy(static_cast<std::byte*>(data) + done, in.data + at, static_cast<size_t>(part));
    done += part;
  }
  in.read.store(read + bytes, std::memory_order_release);
}

bool SharedExchange::post(int64_t number, const Call& call) {
  for (int r = 0; r < ranks_; ++r)
    if (board(r).posts.load(std::memory_order_acquire) + kMostAhead <= number) return false;
  RankBoard& own = board(rank_);
  own.calls[number % kBoardCalls] = call;
  own.posts.store(number + 1, std::memory_order_release);
  return true;
}

const Call* SharedExchange::posted(int rank, int64_t number) const {
  const RankBoard& other = board(rank);
  const int64_t posts = other.posts.load(std::memory_order_acquire);
  if (posts <= number || posts > number + kBoardCalls) return nullptr;
  return &other.calls[number % kBoardCalls];
}

}  // namespace ripstop::emulated
