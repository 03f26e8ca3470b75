#include "train/check/sent_by_operation.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "train/step/training_step.h"

namespace ripstop {
namespace {

// A planned group that also writes down which operation sent how much.
class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(std::unique_ptr<Communicator> group, std::vector<SentByOperation>& record)
      : group_(std::move(group)), record_(&record) {}

  int64_t rank() const override { return group_->rank(); }
  int64_t size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }
  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override {
    const Call call(*this, "all_gather");
    return group_->all_gather(stream, own, all);
  }
  int64_t reduce_scatter_scratch_bytes(int64_t whole_count, DType travel) const override {
    return group_->reduce_scatter_scratch_bytes(whole_count, travel);
  }
  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override {
    const Call call(*this, "reduce_scatter");
    return group_->reduce_scatter(stream, whole, own, travel, accumulate, scratch);
  }
  int64_t all_reduce_scratch_bytes(int64_t count, DType dtype) const override {
    return group_->all_reduce_scratch_bytes(count, dtype);
  }
  Pending start_all_reduce(const Stream& stream, const Tensor& x, Reduce reduce, const Tensor& scratch,
                           const Stream* behind) override {
    const Call call(*this, "all_reduce");
    return group_->start_all_reduce(stream, x, reduce, scratch, behind);
  }
  void broadcast(const Stream& stream, const Tensor& x, int64_t root) override {
    const Call call(*this, "broadcast");
    group_->broadcast(stream, x, root);
  }
  Pending start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) override {
    const Call call(*this, "exchange");
    return group_->start_exchanges(stream, exchanges);
  }
  std::vector<std::string> all_gather_text(const std::string& text) override {
    return group_->all_gather_text(text);
  }
  void barrier() override { group_->barrier(); }
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name) override {
    return group_->split(color, key, name);
  }
  int64_t bytes_sent() const override { return group_->bytes_sent(); }
  double seconds_waited() const override { return group_->seconds_waited(); }

 private:
  // Counts what is sent while it lives.
  class Call {
   public:
    Call(RecordingCommunicator& of, const char* operation)
        : of_(&of), operation_(operation), before_(of.bytes_sent()) {}
    ~Call() { of_->add(operation_, of_->bytes_sent() - before_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    RecordingCommunicator* of_;
    const char* operation_;
    int64_t before_;
  };

  void add(const char* operation, int64_t bytes) {
    if (size() == 1) return;
    auto row = std::find_if(record_->begin(), record_->end(), [&](const SentByOperation& each) {
      return each.axis == name() && each.operation == operation;
    });
    if (row == record_->end()) row = record_->insert(row, {.axis = name(), .operation = operation});
    ++row->calls;
    row->bytes += bytes;
  }

  std::unique_ptr<Communicator> group_;
  std::vector<SentByOperation>* record_;
};

}  // namespace

std::vector<SentByOperation> sent_by_operation(const PlanRequest& request,
                                               const MeshCoordinates& coordinates) {
  std::vector<SentByOperation> record;
  DeviceMesh mesh(
      request.mesh, coordinates, mesh_groups(request.mesh, coordinates, [&](const MeshGroup& group) {
        return std::make_unique<RecordingCommunicator>(
            make_planned_communicator(group.name, group.rank, group.size, request.device), record);
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
  // As people read a mesh, and not as the step calls them.
  const auto place = [](const SentByOperation& sent) {
    return std::ranges::find(kMeshAxisWords, sent.axis) - kMeshAxisWords.begin();
  };
  std::stable_sort(record.begin(), record.end(),
                   [&](const SentByOperation& a, const SentByOperation& b) { return place(a) < place(b); });
  return record;
}

}  // namespace ripstop
