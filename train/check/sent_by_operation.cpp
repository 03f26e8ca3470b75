#include "train/check/sent_by_operation.h"

#include <algorithm>
#include <string>

#include "train/step/training_step.h"

namespace ripstop {
std::vector<SentByOperation> sent_by_operation(const PlanRequest& request,
                                               const MeshCoordinates& coordinates) {
  std::vector<SentByOperation> record;
  const auto add = [&](const std::string& axis, const std::string& operation, int64_t bytes) {
    auto row = std::ranges::find_if(record, [&](const SentByOperation& each) {
      return each.axis == axis && each.operation == operation;
    });
    if (row == record.end()) row = record.insert(row, {.axis = axis, .operation = operation});
    ++row->calls;
    row->bytes += bytes;
  };
  DeviceMesh mesh(request.mesh, coordinates,
                  mesh_groups(request.mesh, coordinates, [&](const MeshGroup& group) {
                    return make_planned_communicator(group.name, group.rank, group.size, request.device,
                                                     [&add, group](const char* operation, int64_t bytes) {
                                                       if (group.size > 1) add(group.name, operation, bytes);
                                                     });
                  }));
  Device device = Device::meta(request.device);
  device.deterministic = request.deterministic;
  const Stream stream(device);
  MemoryLedger ledger;
  TrainingStep step(request.model, request.step, mesh, stream, ledger);
  for (const int64_t number : {1, 2}) {
    record.clear();  // the first step of all may gather what stays
    step.run(
        request.micro_batches, [](int64_t) { return HostTokens{}; }, 0.0, {number}, [] { return false; });
  }
  // In the order in which people read a mesh, not in the order of the calls.
  const auto place = [](const SentByOperation& sent) {
    return std::ranges::find(kMeshAxisWords, sent.axis) - kMeshAxisWords.begin();
  };
  std::stable_sort(record.begin(), record.end(),
                   [&](const SentByOperation& a, const SentByOperation& b) { return place(a) < place(b); });
  return record;
}

}  // namespace ripstop
