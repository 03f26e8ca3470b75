#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "model/core/function_ref.h"
#include "model/ops/context.h"
#include "parallel/device_mesh.h"
#include "parallel/pipeline_schedule.h"

namespace ripstop {

/// The boundaries of this rank's stages during one pass: buffers [n, C] for activations and for their
/// gradients. A message is received into a buffer, a stage computes in place there, and the result is sent
/// from there. Messages of one way arrive in the order of their sends. Not collective, but every receive
/// needs its send on the neighbour.
class PipelineLinks {
 public:
  /// Allocates the buffers in the caller's arena frame: one without a pipeline, else kBoundaryBuffers
  /// (category communication). `context` and `mesh` are borrowed.
  PipelineLinks(Context& context, const DeviceMesh& mesh, const Shape& shape, DType dtype);

  /// Runs the operations of `program` in order: starts the messages, and calls compute() for each forward and
  /// backward. compute() gets a buffer from take() or arrived(); that call or a later one ends with put() or
  /// give_back(). compute() may assign to `program` another program, equal up to and with the next compute.
  void run(const std::vector<PipelineOperation>& program, FunctionRef<void(const PipelineAction&)> compute);
  /// Waits until all messages are sent; on a device, puts later work of the caller's stream behind them.
  void finish();

  const Tensor& operator[](size_t buffer) const { return buffers_[buffer]; }
  /// Returns the number of a buffer that is not in use. Waits for the oldest send if all are.
  size_t take();
  /// Ends the use of a buffer from take() or arrived() by the work of the stream so far.
  void give_back(size_t buffer);
  /// Waits for the oldest message received this way, activations (kForward) or gradients (kBackward), and
  /// returns the number of its buffer.
  size_t arrived(Direction way);
  /// Hands a buffer to the next send this way, after which it is free.
  void put(Direction way, size_t buffer) { of(way).finished.push_back(buffer); }

 private:
  struct Message {
    size_t buffer;
    Pending pending;
  };
  struct Way {
    Communicator *in, *out;  ///< groups of two ranks; null at the ends of the pipeline
    std::deque<Message> received = {};
    std::deque<size_t> finished = {};
  };
  Way& of(Direction way) { return ways_[way == Direction::kForward ? 0 : 1]; }
  size_t take_free();
  bool has_free();
  void receive_ahead(std::span<const PipelineOperation> operations);
  void receive(Direction way);
  void send(Direction way);
  void end_send(std::deque<Message>::iterator message);
  void end(Pending& pending);

  Context& context_;
  std::array<Way, 2> ways_;
  std::vector<Tensor> buffers_;
  std::deque<Event> left_;   ///< when the last use of each buffer ends: only then it may be written again
  std::deque<size_t> free_;  ///< the oldest first; a device may still use them
  std::deque<Message> sending_;
  int64_t early_ = 0;  ///< receives that were started ahead of their turn
};

}  // namespace ripstop
