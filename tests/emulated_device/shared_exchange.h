// SharedExchange: memory that the ranks of one emulated NCCL communicator share, and the messages in it.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ripstop::emulated {

/// Where a process finds shared memory that another process of this machine made: that process and its file
/// descriptor. The memory has no name in any file system, so nothing is left of it when the processes end,
/// however they end.
struct SharedMemoryName {
  int64_t pid = 0;
  int64_t file = -1;
};

/// Makes empty shared memory. This process keeps it until it is a rank of a SharedExchange in it, or ends.
SharedMemoryName make_shared_memory();

/// One operation, as its ranks must agree on it. Travels as it lies in memory.
struct Call {
  enum class Kind : int32_t { kAllGather, kReduceScatter, kAllReduce, kBroadcast, kSend, kReceive };
  Kind kind = Kind::kAllGather;
  int32_t datatype = 0, reduction = 0;
  int32_t peer = 0;  ///< root of a broadcast; the other rank of kSend and kReceive
  int64_t count = 0;
  /// Where the memory that other ranks access lies in its symmetric window; -1: in none.
  int64_t window_offset = -1;

  bool operator==(const Call&) const = default;
  int64_t element_bytes() const;  ///< 0 for an unknown datatype
  int64_t bytes() const { return count * element_bytes(); }
};

/// "ncclBroadcast of 12 ncclFloat32 from root 1".
std::string to_text(const Call& call);

/// The ranks of one communicator. Each is a process that maps the same memory. Nothing here blocks but
/// `all_gather`, whose callers are background threads.
class SharedExchange {
 public:
  static constexpr int64_t kChannelBytes = int64_t{256} << 10;
  static constexpr size_t kRecordBytes = 128;
  using Record = std::array<std::byte, kRecordBytes>;

  /// Maps the memory as rank `rank` of `ranks`. Ends the process if a rank is there twice or gave another
  /// number of ranks.
  SharedExchange(const SharedMemoryName& name, int rank, int ranks);
  ~SharedExchange();
  SharedExchange(const SharedExchange&) = delete;
  SharedExchange& operator=(const SharedExchange&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Gathers a record of every rank, in rank order. Returns nothing once `given_up()` is true. Collective.
  std::vector<Record> all_gather(const Record& own, const std::function<bool()>& given_up);

  /// Says that this rank's thread wants connections to and from `peer`, and whether the peer wants them too.
  /// Send and receive connect separately, as in NCCL.
  bool connect(int from, int to);

  /// Writes up to `bytes` bytes into the channel to rank `to`; returns how many fitted.
  int64_t write(int to, const void* data, int64_t bytes);
  /// Free bytes of the channel to rank `to`, and bytes that wait in the channel from rank `from`.
  int64_t room(int to) const;
  int64_t waiting(int from) const;
  /// Takes `bytes` bytes, all of which wait, from the channel of rank `from`.
  void read(int from, void* data, int64_t bytes);

  /// Publishes this rank's collective number `number` (0, 1, ...) if no rank is too far behind, and returns
  /// whether it did.
  bool post(int64_t number, const Call& call);
  /// The collective number `number` of rank `rank`, or null if it has not come to it or it is long ago.
  const Call* posted(int rank, int64_t number) const;

 private:
  struct Header;
  struct RankBoard;
  struct Channel;
  Header& header() const;
  RankBoard& board(int rank) const;
  Channel& channel(int from, int to) const;
  static int64_t boards_at();
  static int64_t channels_at(int ranks);

  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0;
  int rank_, ranks_;
  int64_t round_ = 0;
  int file_ = -1;
};

}  // namespace ripstop::emulated
