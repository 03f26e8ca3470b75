#include "parallel/pipeline_links.h"

#include <utility>

namespace ripstop {
namespace {

// A link is a group of two ranks.
int64_t neighbour(const Communicator& link) {
  return 1 - link.rank();
}

}  // namespace

PipelineLinks::PipelineLinks(Context& context, const DeviceMesh& mesh, const Shape& shape, DType dtype)
    : context_(context),
      ways_{Way{mesh.links().activations_in.get(), mesh.links().activations_out.get()},
            Way{mesh.links().gradients_in.get(), mesh.links().gradients_out.get()}} {
  const bool alone = mesh.sizes().pipeline == 1;
  const MemoryCategory category = alone ? MemoryCategory::kActivations : MemoryCategory::kCommunication;
  for (int64_t b = 0; b < (alone ? 1 : kBoundaryBuffers); ++b) {
    buffers_.push_back(context.arena.allocate(dtype, shape, category));
    left_.emplace_back(context.device());
    give_back(static_cast<size_t>(b));  // behind earlier uses of this memory
  }
}

void PipelineLinks::give_back(size_t buffer) {
  left_[buffer].record(context_.stream);
  free_.push_back(buffer);
}

size_t PipelineLinks::take() {
  const size_t buffer = take_free();
  left_[buffer].make_wait(context_.stream);
  return buffer;
}

// The buffer that has been free for the longest time, so that little waits for its last use.
size_t PipelineLinks::take_free() {
  while (!has_free()) {
    RIPSTOP_CHECK(!sending_.empty(), "all {} boundaries of a stage are held", buffers_.size());
    end_send(sending_.begin());
  }
  const size_t buffer = free_.front();
  free_.pop_front();
  return buffer;
}

// Frees the buffers whose sends have ended. Returns whether any buffer is free.
bool PipelineLinks::has_free() {
  for (size_t s = sending_.size(); s-- > 0;)
    if (sending_[s].pending.poll()) end_send(sending_.begin() + static_cast<std::ptrdiff_t>(s));
  return !free_.empty();
}

void PipelineLinks::end_send(std::deque<Message>::iterator message) {
  end(message->pending);
  give_back(message->buffer);
  sending_.erase(message);
}

void PipelineLinks::end(Pending& pending) {
  pending.wait();
  context_.arena.close_pending();
}

void PipelineLinks::run(const std::vector<PipelineOperation>& program,
                        FunctionRef<void(const PipelineAction&)> compute) {
  for (size_t o = 0; o < program.size(); ++o) {
    const auto [kind, action] = program[o];
    if (kind == PipelineOperation::Kind::kSend) {
      send(action.direction);
    } else if (kind != PipelineOperation::Kind::kReceive) {
      receive_ahead(std::span(program).subspan(o + 1));
      compute(action);
    } else if (early_ > 0) {
      --early_;
    } else {
      receive(action.direction);
    }
  }
}

void PipelineLinks::finish() {
  while (!sending_.empty()) end_send(sending_.begin());
  for (const Event& left : left_) left.make_wait(context_.stream);
}

// Starts receives up to the next compute, as far as buffers are free: a host cannot start them while it
// computes. Does nothing on a GPU, whose queues must keep the program's order.
void PipelineLinks::receive_ahead(std::span<const PipelineOperation> operations) {
  if (context_.device().kind == DeviceKind::kCuda) return;
  for (const PipelineOperation& next : operations) {
    if (next.kind == PipelineOperation::Kind::kSend) continue;
    if (next.kind != PipelineOperation::Kind::kReceive || !has_free()) return;
    receive(next.action.direction);
    ++early_;
  }
}

void PipelineLinks::receive(Direction way) {
  const size_t buffer = take_free();
  Communicator& link = *of(way).in;
  context_.arena.open_pending();
  of(way).received.push_back(
      {buffer, link.start_receive(context_.stream, buffers_[buffer], neighbour(link), &left_[buffer])});
}

size_t PipelineLinks::arrived(Direction way) {
  Message message = std::move(of(way).received.front());
  of(way).received.pop_front();
  end(message.pending);
  return message.buffer;
}

void PipelineLinks::send(Direction way) {
  const size_t buffer = of(way).finished.front();
  of(way).finished.pop_front();
  Communicator& link = *of(way).out;
  Pending sent = link.start_send(context_.stream, buffers_[buffer], neighbour(link));
  if (link.own_stream() != nullptr) {  // the buffer's next use waits, not the host
    sent.leave();
    left_[buffer].record(*link.own_stream());
    free_.push_back(buffer);
    return;
  }
  context_.arena.open_pending();
  sending_.push_back({buffer, std::move(sent)});
}

}  // namespace ripstop
