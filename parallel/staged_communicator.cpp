// Collectives of device tensors through host memory: slow, but they work on any device.
#include <utility>
#include <vector>

#include "parallel/collectives.h"
#include "parallel/communicator.h"

namespace ripstop {
namespace {

// A host tensor with the shape and dtype of a device tensor.
class HostTensor {
 public:
  explicit HostTensor(const Tensor& like)
      : memory_(static_cast<size_t>(like.bytes())),
        tensor_{memory_.data(), like.dtype, like.shape, Device::cpu()} {}
  HostTensor(const Tensor& from, const Stream& stream) : HostTensor(from) {
    copy_bytes(stream, memory_.data(), from.data, from.bytes());
    stream.synchronize();  // the host sends the copy right away
  }
  explicit HostTensor(int64_t bytes)
      : HostTensor(Tensor{nullptr, DType::kInt32, {bytes / 4 + 1}, Device::cpu()}) {}
  const Tensor& tensor() const { return tensor_; }
  void copy_to(const Tensor& device, const Stream& stream) const {
    copy_bytes(stream, device.data, memory_.data(), device.bytes());
  }

 private:
  std::vector<std::byte> memory_;
  Tensor tensor_;
};

// A collective of host tensors, whose wait copies the results to the device.
class StagedOperation final : public Pending::Operation {
 public:
  // The host tensor copies_[place] has the result for the device tensor `to`.
  struct Result {
    size_t place;
    Tensor to;
  };
  StagedOperation(std::vector<HostTensor> copies, Pending pending, std::vector<Result> results)
      : copies_(std::move(copies)), pending_(std::move(pending)), results_(std::move(results)) {}
  void wait(const Stream& stream) override {
    pending_.wait();
    for (const Result& result : results_) copies_[result.place].copy_to(result.to, stream);
  }
  bool poll() override { return pending_.poll(); }

 private:
  std::vector<HostTensor> copies_;  // declared first, so that the copies outlive the messages
  Pending pending_;
  std::vector<Result> results_;
};

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, const Device& device)
      : host_(std::move(host)), device_(device) {}

  int64_t rank() const override { return host_->rank(); }
  int64_t size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  int64_t bytes_sent() const override { return host_->bytes_sent(); }
  double seconds_waited() const override { return host_->seconds_waited(); }
  DeviceKind kind() const override { return device_.kind; }
  std::vector<std::string> all_gather_text(const std::string& text) override {
    return host_->all_gather_text(text);
  }
  void barrier() override { host_->barrier(); }
  void await(const char* operation, FunctionRef<bool()> done) override { host_->await(operation, done); }
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, const std::string& name) override {
    return make_staged_communicator(host_->split(color, key, name), device_);
  }

  Pending all_gather(const Stream& stream, const Tensor& own, const Tensor& all) override {
    if (!is_staged(all)) return host_->all_gather(stream, own, all);
    check_all_gather(*this, own, all);
    std::vector<HostTensor> copies;
    copies.emplace_back(own, stream);
    copies.emplace_back(all);
    Pending pending = host_->all_gather(host_stream_, copies[0].tensor(), copies[1].tensor());
    return staged(std::move(copies), std::move(pending), {{1, all}}, stream);
  }

  Pending reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& own, DType travel,
                         Accumulate accumulate, const Tensor& scratch) override {
    if (!is_staged(whole)) return host_->reduce_scatter(stream, whole, own, travel, accumulate, scratch);
    check_reduce_scatter(*this, whole, own, travel, scratch);
    std::vector<HostTensor> copies;
    copies.emplace_back(whole, stream);
    // The host adds the sum to `own`, so copy `own` to the host.
    if (accumulate == Accumulate::kYes)
      copies.emplace_back(own, stream);
    else
      copies.emplace_back(own);
    copies.emplace_back(host_->reduce_scatter_scratch_bytes(whole.count(), travel));
    Pending pending = host_->reduce_scatter(host_stream_, copies[0].tensor(), copies[1].tensor(), travel,
                                            accumulate, copies[2].tensor());
    return staged(std::move(copies), std::move(pending), {{1, own}}, stream);
  }

  Pending start_all_reduce(const Stream& stream, const Tensor& x, DType travel, const Tensor& scratch,
                           const Stream* behind) override {
    if (!is_staged(x)) return host_->start_all_reduce(stream, x, travel, scratch, behind);
    check_all_reduce(*this, x, travel, scratch);
    std::vector<HostTensor> copies;
    copies.emplace_back(x, behind == nullptr ? stream : *behind);
    copies.emplace_back(host_->all_reduce_scratch_bytes(x.count(), x.dtype, travel));
    Pending pending =
        host_->start_all_reduce(host_stream_, copies[0].tensor(), travel, copies[1].tensor(), nullptr);
    return staged(std::move(copies), std::move(pending), {{0, x}}, stream);
  }

  void broadcast(const Stream& stream, const Tensor& x, int64_t root) override {
    if (!is_staged(x)) return host_->broadcast(stream, x, root);
    const HostTensor copy = root == rank() ? HostTensor(x, stream) : HostTensor(x);
    host_->broadcast(host_stream_, copy.tensor(), root);
    if (root != rank()) copy.copy_to(x, stream);
  }

  Pending start_exchanges(const Stream& stream, std::span<const Exchange> exchanges) override {
    if (exchanges.empty() || !is_staged(exchanges.front().send))
      return host_->start_exchanges(stream, exchanges);
    check_exchanges(*this, exchanges);
    std::vector<HostTensor> copies;
    std::vector<StagedOperation::Result> results;
    std::vector<Exchange> on_host;
    for (const auto& [send, to, receive, from] : exchanges) {
      copies.emplace_back(send, stream);
      copies.emplace_back(receive);
      results.push_back({copies.size() - 1, receive});
      on_host.push_back({(copies.end() - 2)->tensor(), to, copies.back().tensor(), from});
    }
    Pending pending = host_->start_exchanges(host_stream_, on_host);
    return staged(std::move(copies), std::move(pending), std::move(results), stream);
  }

  Pending start_send(const Stream& stream, const Tensor& x, int64_t to) override {
    if (!is_staged(x)) return host_->start_send(stream, x, to);
    std::vector<HostTensor> copies;
    copies.emplace_back(x, stream);
    Pending pending = host_->start_send(host_stream_, copies[0].tensor(), to);
    return staged(std::move(copies), std::move(pending), {}, stream);
  }

  Pending start_receive(const Stream& stream, const Tensor& x, int64_t from, const Event*) override {
    if (!is_staged(x)) return host_->start_receive(stream, x, from, nullptr);
    std::vector<HostTensor> copies;
    copies.emplace_back(x);
    Pending pending = host_->start_receive(host_stream_, copies[0].tensor(), from, nullptr);
    return staged(std::move(copies), std::move(pending), {{0, x}}, stream);
  }

 private:
  bool is_staged(const Tensor& t) const { return t.device.kind == device_.kind; }

  // Moving a vector keeps its elements in place, so messages under way stay valid.
  static Pending staged(std::vector<HostTensor> copies, Pending pending,
                        std::vector<StagedOperation::Result> results, const Stream& stream) {
    return {std::make_unique<StagedOperation>(std::move(copies), std::move(pending), std::move(results)),
            stream};
  }

  std::unique_ptr<Communicator> host_;
  Device device_;
  Stream host_stream_{Device::cpu()};
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       const Device& device) {
  return std::make_unique<StagedCommunicator>(std::move(host), device);
}

}  // namespace ripstop
