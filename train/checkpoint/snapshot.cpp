#include "train/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>

#include "model/core/error.h"

namespace ripstop {
namespace {

// Bytes copied at once: few enough that a stop waits briefly, enough for a GPU's full rate.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

}  // namespace

int64_t snapshot_bytes(const std::vector<UnitShard>& shards, DType moments) {
  int64_t bytes = 0;
  for (const StoredArray& array : stored_arrays(shards, moments)) bytes += array.bytes();
  return bytes;
}

std::vector<UnitShard> kept_shards(const std::vector<UnitShard>& shards, DType moments, int64_t most_bytes) {
  // Keeps the first units: the next step updates them first, while the later units are still being written.
  std::vector<UnitShard> kept;
  int64_t bytes = 0;
  for (const UnitShard& shard : shards) {
    bytes += snapshot_bytes({shard}, moments);
    if (bytes > most_bytes) break;
    kept.push_back(shard);
  }
  return kept;
}

Snapshot::Snapshot(const Stream& compute, MemoryLedger& ledger, const std::vector<UnitStates>& units,
                   const MeshSizes& mesh, int64_t rank, int64_t most_bytes)
    : compute_(compute), copies_(compute.device()), ledger_(ledger), shard_of_unit_(units.size()) {
  std::vector<UnitSpec> specs;
  for (const UnitStates& unit : units) specs.push_back(unit.layout->unit());
  if (!units.empty()) moments_ = units.front().moments;
  shards_ = stored_shards(specs, mesh, rank);
  // The first copy on `copies_` allocates pinned memory for all later reads. It must come before keep(),
  // which may take the rest of the memory.
  if (!shards_.empty()) {
    copies_.wait_for(compute);
    std::byte any{};
    read_live(&any, units[static_cast<size_t>(shards_.front().unit)].array(kUnitStates[0]), 1);
  }
  const int64_t fsdp_index = mesh_coordinates(mesh, rank).fsdp;
  for (size_t s = 0; s < shards_.size(); ++s) {
    const UnitShard& shard = shards_[s];
    const UnitStates& unit = units[static_cast<size_t>(shard.unit)];
    RIPSTOP_CHECK(unit.moments == moments_, "moments of two dtypes");
    shard_of_unit_[static_cast<size_t>(shard.unit)] = s;
    for (const UnitState state : kUnitStates) {
      const int64_t bytes = shard.elements() * element_bytes(state_dtype(state, moments_));
      arrays_.push_back({.live = stored_begin(unit, state, shard, fsdp_index), .bytes = bytes});
    }
  }
  unread_.assign(shards_.size(), 0);
  keep(most_bytes);
}

void Snapshot::keep(int64_t most_bytes) {
  memory_ = Buffer();
  kept_ = 0;
  const std::vector<UnitShard> kept = kept_shards(shards_, moments_, most_bytes);
  if (kept.empty()) return;
  const Device& device = compute_.device();
  MemoryUse use;
  use[MemoryCategory::kSnapshot] = snapshot_bytes(kept, moments_);
  memory_ = Buffer(device, ledger_, use, host_memory(device));
  kept_ = std::ssize(kept);
  auto* copy = static_cast<std::byte*>(memory_.data());
  for (size_t a = 0; a < kept.size() * kUnitStateCount; ++a) {
    arrays_[a].copy = copy;
    copy += arrays_[a].bytes;
  }
}

void Snapshot::hold(bool keeps) {
  copies_.wait_for(compute_);  // saves must read the values after all queued updates
  keeps_ = keeps;
  const std::lock_guard lock(mutex_);
  unread_.assign(shards_.size(), kUnitStateCount);
}

bool Snapshot::is_free(size_t unit) const {
  const std::optional<size_t> shard = shard_of(unit);
  const std::lock_guard lock(mutex_);
  return !shard || unread_[*shard] == 0;
}

void Snapshot::wait_for(size_t unit) {
  const std::optional<size_t> shard = shard_of(unit);
  if (!shard) return;
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return unread_[*shard] == 0; });
}

void Snapshot::release() {
  const std::lock_guard lock(mutex_);
  unread_.assign(shards_.size(), 0);
  freed_.notify_all();
}

void Snapshot::copy_kept(const BackgroundWork& work) {
  for (size_t shard = 0; is_kept(shard); ++shard) {
    for (size_t a = shard * kUnitStateCount; a < (shard + 1) * kUnitStateCount; ++a)
      for (int64_t at = 0; at < arrays_[a].bytes; at += kPieceBytes) {
        if (work.stop_requested()) return;
        copy_bytes(copies_, arrays_[a].copy + at, arrays_[a].live + at,
                   std::min(kPieceBytes, arrays_[a].bytes - at));
        work.count_progress();
      }
    copies_.synchronize();
    const std::lock_guard lock(mutex_);
    unread_[shard] = 0;
    freed_.notify_all();
  }
}

void Snapshot::read_live(void* to, const std::byte* from, int64_t bytes) {
  if (compute_.device().kind == DeviceKind::kCpu) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const std::lock_guard lock(copies_mutex_);
  copy_bytes(copies_, to, from, bytes);
  copies_.synchronize();
}

std::vector<ArraySource> Snapshot::sources() {
  std::vector<ArraySource> sources;
  for (size_t a = 0; a < arrays_.size(); ++a) {
    const int64_t size = element_bytes(state_dtype(kUnitStates[a % kUnitStateCount], moments_));
    sources.emplace_back([this, a, size](int64_t first, int64_t count, void* to) {
      const Array& array = arrays_[a];
      if (is_kept(a / kUnitStateCount))
        std::memcpy(to, array.copy + first * size, static_cast<size_t>(count * size));
      else
        read_live(to, array.live + first * size, count * size);
    });
  }
  return sources;
}

std::vector<int64_t> Snapshot::urgent_arrays() const {
  std::vector<int64_t> urgent;
  for (size_t a = 0; a < arrays_.size(); ++a)
    if (!is_kept(a / kUnitStateCount)) urgent.push_back(static_cast<int64_t>(a));
  return urgent;
}

void Snapshot::array_is_read(int64_t array) {
  const auto shard = static_cast<size_t>(array / kUnitStateCount);
  if (is_kept(shard)) return;  // copy_kept() has freed the unit
  const std::lock_guard lock(mutex_);
  if (--unread_[shard] == 0) freed_.notify_all();
}

}  // namespace ripstop
