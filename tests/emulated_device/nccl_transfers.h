// The messages of one collective, or of the sends and receives of one group, between the ranks of an emulated
// NCCL communicator. They move a piece at a time and never block.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/emulated_device/nccl_state.h"

namespace ripstop::emulated {

/// A task's part under way. `progress` moves at most about `pieces` pieces and returns whether all is
/// done. Reads and writes device memory; a piece is a few KiB.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual bool progress(int64_t pieces) = 0;
};

/// A collective, which is number `number` of its communicator.
std::unique_ptr<Transfer> make_collective(CommunicatorCore& core, const Task& task, int64_t number);

/// Sends and receives of one group: in order for each pair of ranks, in any order between pairs.
std::unique_ptr<Transfer> make_exchange(CommunicatorCore& core, const std::vector<Task>& tasks);

}  // namespace ripstop::emulated
