// Ranks of a mesh as threads of one process, for code that exchanges texts between ranks. One of them
// runs at a time, so libraries that know no threads are safe, and every run takes the same course.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "model/core/error.h"
#include "parallel/communicator.h"

namespace ripstop {

class SimulatedRanks {
 public:
  explicit SimulatedRanks(int64_t size) : size_(size), coming_(static_cast<size_t>(size)) {}

  /// Runs `body` once for each rank. Returns the error of each rank.
  std::vector<std::optional<Error>> run(const std::function<void(Communicator&)>& body) {
    std::vector<std::optional<Error>> thrown(static_cast<size_t>(size_));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size_; ++rank)
      threads.emplace_back([&, rank] { thrown[static_cast<size_t>(rank)] = run_rank(rank, body); });
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }

 private:
  class World final : public Communicator {
   public:
    World(SimulatedRanks& ranks, int64_t rank, std::unique_lock<std::mutex>& turn)
        : ranks_(ranks), rank_(rank), turn_(turn) {}
    int64_t rank() const override { return rank_; }
    int64_t size() const override { return ranks_.size_; }
    const std::string& name() const override { return name_; }
    std::vector<std::string> all_gather_text(const std::string& text) override {
      return ranks_.gather(rank_, text, turn_);
    }
    void barrier() override { all_gather_text(""); }

    Pending all_gather(const Stream&, const Tensor&, const Tensor&) override { refuse(); }
    Pending reduce_scatter(const Stream&, const Tensor&, const Tensor&, DType, Accumulate,
                           const Tensor&) override {
      refuse();
    }
    Pending start_all_reduce(const Stream&, const Tensor&, DType, const Tensor&, const Stream*) override {
      refuse();
    }
    void broadcast(const Stream&, const Tensor&, int64_t) override { refuse(); }
    Pending start_exchanges(const Stream&, std::span<const Exchange>) override { refuse(); }
    Pending start_send(const Stream&, const Tensor&, int64_t) override { refuse(); }
    Pending start_receive(const Stream&, const Tensor&, int64_t, const Event*) override { refuse(); }
    std::unique_ptr<Communicator> split(int64_t, int64_t, const std::string&) override { refuse(); }
    int64_t bytes_sent() const override { return 0; }
    double seconds_waited() const override { return 0; }

   private:
    [[noreturn]] static void refuse() { fail(ExitCode::kBug, "checkpoints exchange only texts"); }
    SimulatedRanks& ranks_;
    int64_t rank_;
    std::unique_lock<std::mutex>& turn_;
    std::string name_ = "world";
  };

  std::optional<Error> run_rank(int64_t rank, const std::function<void(Communicator&)>& body) {
    std::unique_lock turn(turn_);
    World world(*this, rank, turn);
    try {
      body(world);
      ++gone_;
      arrived_.notify_all();
      return std::nullopt;
    } catch (const Error& error) {
      ++gone_;
      arrived_.notify_all();
      return error;
    }
  }

  std::vector<std::string> gather(int64_t rank, const std::string& text, std::unique_lock<std::mutex>& turn) {
    coming_[static_cast<size_t>(rank)] = text;
    const int64_t round = round_;
    if (++waiting_ == size_) {
      came_ = coming_;
      waiting_ = 0;
      ++round_;
      arrived_.notify_all();
    }
    arrived_.wait(turn, [&] { return round_ != round || gone_ > 0; });
    if (round_ == round) fail(ExitCode::kCommunication, "a rank has left");
    return came_;
  }

  int64_t size_;
  std::mutex turn_;
  std::condition_variable arrived_;
  std::vector<std::string> coming_, came_;
  int64_t waiting_ = 0, round_ = 0, gone_ = 0;
};

}  // namespace ripstop
