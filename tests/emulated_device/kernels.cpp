// ripstop's own CUDA kernels on the emulated device: their host code runs in tests/emulation's library, which
// gives every launch to `enqueue` below. With RIPSTOP_EMULATED_KERNELS=cpu the CPU's kernels take their
// place, for long tests: same contracts (model/ops/ops.h), same memory, queued too.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "model/core/rounding.h"
#include "model/device/cuda_device.h"
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/ragged_documents.h"
#include "tests/emulated_device/cuda_runtime.h"
#include "tests/emulated_device/scheduler.h"
#include "tests/emulation/emulated_kernels.h"
#include "tests/emulation/emulator.h"

namespace ripstop::cuda {
namespace {

using emulated::Scheduler;

// A launch as the run time sees it: refused unless the stream belongs to the thread's device.
cudaError_t enqueue(cudaStream_t stream, const char* name, emulated::Work work) {
  Scheduler& scheduler = Scheduler::instance();
  scheduler.run_a_bit();
  if (!scheduler.knows(stream, name) || scheduler.device_of(stream) != emulated::current_device())
    return emulated::answer(cudaErrorInvalidResourceHandle);
  scheduler.append(stream, name, std::move(work));
  return cudaSuccess;
}

// The name of the kernel whose host code runs in this thread.
thread_local const char* launching = "a kernel";

int launch_later(void* stream, std::function<void()> work) {
  const auto order = static_cast<emulation::Order>(Scheduler::instance().draw(3));
  return enqueue(static_cast<CudaStream*>(stream)->native(), launching, [order, work = std::move(work)] {
    emulation::set_order(order);
    work();
    return true;
  });
}

bool on_cpu_kernels() {
  static const bool chosen = [] {
    const char* text = std::getenv("RIPSTOP_EMULATED_KERNELS");
    if (text != nullptr && std::strcmp(text, "cpu") == 0) return true;
    if (text != nullptr && std::strcmp(text, "emulated") != 0)
      emulated::refuse("RIPSTOP_EMULATED_KERNELS", "is neither cpu nor emulated");
    return false;
  }();
  return chosen;
}

// Must come before host code of the emulated kernels.
void connect() {
  static const bool connected = [] {
    emulation::set_launch(launch_later);
    return true;
  }();
  static_cast<void>(connected);
}

const Stream& cpu_stream() {
  static const auto& stream = *new Stream(Device::cpu());
  return stream;
}

// Runs an entry of the table. `cpu_workspace` returns what the CPU's kernel needs, when it runs.
template <class Entry, class CpuWorkspace, class... Arguments>
void run(const char* name, Entry KernelTable::*entry, CpuWorkspace cpu_workspace, const KernelCall& call,
         const Arguments&... arguments) {
  launching = name;
  if (!on_cpu_kernels()) {
    connect();
    (emulation::kernels().*entry)(call, arguments...);
    return;
  }
  const auto work = [entry, cpu_workspace, values = std::tuple<Arguments...>(arguments...)] {
    const auto bytes = static_cast<size_t>(round_up(cpu_workspace() + 1, kMemoryAlignment));
    const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(kMemoryAlignment, bytes),
                                                                &std::free);
    const KernelCall on_cpu{cpu_stream(), workspace.get()};
    std::apply([&](const Arguments&... each) { (cpu_kernels().*entry)(on_cpu, each...); }, values);
    return true;
  };
  check_cuda(enqueue(ripstop::native_stream(call.stream), name, work), name);
}

int64_t none() {
  return 0;
}

#define RIPSTOP_RUN(kernel, ...) run(#kernel, &KernelTable::kernel, none, __VA_ARGS__)

}  // namespace

void add_bias(const KernelCall& call, const Tensor& bias, const Tensor& y) {
  RIPSTOP_RUN(add_bias, call, bias, y);
}
void add_bias_backward(const KernelCall& call, const Tensor& dy, const Tensor& dbias, Accumulate accumulate) {
  const auto bytes = [rows = dy.rows(), columns = dy.cols()] {
    return cpu_workspaces().add_bias_backward(rows, columns);
  };
  run("add_bias_backward", &KernelTable::add_bias_backward, bytes, call, dy, dbias, accumulate);
}
void add_rmsnorm(const KernelCall& call, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                 double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms) {
  RIPSTOP_RUN(add_rmsnorm, call, residual, branch, weight, epsilon, sum, normed, inverse_rms);
}
void add_rmsnorm_backward(const KernelCall& call, const Tensor& dnormed, const Tensor& sum,
                          const Tensor& weight, const Tensor& inverse_rms, const Tensor& dresidual,
                          const Tensor& dweight, Accumulate accumulate) {
  const auto bytes = [rows = sum.rows(), columns = sum.cols()] {
    return cpu_workspaces().add_rmsnorm_backward(rows, columns);
  };
  run("add_rmsnorm_backward", &KernelTable::add_rmsnorm_backward, bytes, call, dnormed, sum, weight,
      inverse_rms, dresidual, dweight, accumulate);
}
void norm_heads(const KernelCall& call, const Tensor& qkv, const Tensor& weight, double epsilon,
                const Heads& heads, const Tensor& out) {
  RIPSTOP_RUN(norm_heads, call, qkv, weight, epsilon, heads, out);
}
void norm_heads_backward(const KernelCall& call, const Tensor& qkv, const Tensor& weight, double epsilon,
                         const Heads& heads, const Tensor& dqkv, const Tensor& dweight,
                         Accumulate accumulate) {
  const auto bytes = [rows = qkv.rows(), heads] { return cpu_workspaces().norm_heads_backward(rows, heads); };
  run("norm_heads_backward", &KernelTable::norm_heads_backward, bytes, call, qkv, weight, epsilon, heads,
      dqkv, dweight, accumulate);
}
void rope(const KernelCall& call, const Tensor& qkv, const Tensor& position, const Tensor& angle,
          const Heads& heads, Direction direction) {
  RIPSTOP_RUN(rope, call, qkv, position, angle, heads, direction);
}
void plain_attention(const KernelCall& call, const Tensor& qkv, const Documents& documents,
                     const Heads& heads, const Tensor& out, const Tensor& log_sum_exp) {
  const auto bytes = [=] { return cpu_workspaces().attention(qkv.rows(), heads, qkv.dtype); };
  run("attention", &KernelTable::attention, bytes, call, qkv, documents, heads, out, log_sum_exp);
}
void plain_attention_backward(const KernelCall& call, const Tensor& dout, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sum_exp, const Documents& documents,
                              const Heads& heads, const Tensor& dqkv) {
  const auto bytes = [=] {
    return cpu_workspaces().attention_backward(qkv.rows(), documents.longest, heads, qkv.dtype, true);
  };
  run("attention_backward", &KernelTable::attention_backward, bytes, call, dout, qkv, out, log_sum_exp,
      documents, heads, dqkv);
}
void store_key_value(const KernelCall& call, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                     const Heads& heads, const Tensor& cache) {
  RIPSTOP_RUN(store_key_value, call, qkv, slot, position, heads, cache);
}
void attention_cached(const KernelCall& call, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                      const Tensor& cache, const Heads& heads, const CachedTail& tail, const Tensor& out) {
  const auto bytes = [=] { return cpu_workspaces().attention_cached(qkv.rows(), cache.shape[1], heads); };
  run("attention_cached", &KernelTable::attention_cached, bytes, call, qkv, slot, position, cache, heads,
      tail, out);
}
void swiglu(const KernelCall& call, const Tensor& gate_up, const Tensor& out) {
  RIPSTOP_RUN(swiglu, call, gate_up, out);
}
void swiglu_backward(const KernelCall& call, const Tensor& gate_up, const Tensor& dout) {
  RIPSTOP_RUN(swiglu_backward, call, gate_up, dout);
}
void embedding(const KernelCall& call, const Tensor& token, const Tensor& table, int64_t first_id,
               const Tensor& out) {
  RIPSTOP_RUN(embedding, call, token, table, first_id, out);
}
void embedding_backward(const KernelCall& call, const Tensor& token, const Tensor& token_order,
                        const Tensor& dout, int64_t first_id, const Tensor& dtable, Accumulate accumulate) {
  RIPSTOP_RUN(embedding_backward, call, token, token_order, dout, first_id, dtable, accumulate);
}
void gather_rows(const KernelCall& call, const Tensor& x, const Tensor& index, const Tensor& out) {
  RIPSTOP_RUN(gather_rows, call, x, index, out);
}
void scatter_rows(const KernelCall& call, const Tensor& x, const Tensor& index, const Tensor& out) {
  RIPSTOP_RUN(scatter_rows, call, x, index, out);
}
void cross_entropy_statistics(const KernelCall& call, const Tensor& logits, const Tensor& target,
                              const VocabularySlice& slice, const Tensor& statistics) {
  RIPSTOP_RUN(cross_entropy_statistics, call, logits, target, slice, statistics);
}
void cross_entropy(const KernelCall& call, const Tensor& logits, const Tensor& target, const Tensor& all,
                   const VocabularySlice& slice, const Tensor& loss, const Tensor& dlogits) {
  RIPSTOP_RUN(cross_entropy, call, logits, target, all, slice, loss, dlogits);
}
void argmax_rows(const KernelCall& call, const Tensor& logits, const VocabularySlice& slice,
                 const Tensor& value, const Tensor& id) {
  RIPSTOP_RUN(argmax_rows, call, logits, slice, value, id);
}
void add_sum(const KernelCall& call, const Tensor& x, const Tensor& total) {
  const auto bytes = [count = x.count()] { return cpu_workspaces().add_sum(count); };
  run("add_sum", &KernelTable::add_sum, bytes, call, x, total);
}
void add_squared_norm(const KernelCall& call, const Tensor& x, const Tensor& total) {
  const auto bytes = [count = x.count()] { return cpu_workspaces().add_sum(count); };
  run("add_squared_norm", &KernelTable::add_squared_norm, bytes, call, x, total);
}
void fill_zero(const KernelCall& call, const Tensor& x) {
  RIPSTOP_RUN(fill_zero, call, x);
}
void convert(const KernelCall& call, const Tensor& x, const Tensor& y) {
  RIPSTOP_RUN(convert, call, x, y);
}
void add(const KernelCall& call, const Tensor& x, const Tensor& y) {
  RIPSTOP_RUN(add, call, x, y);
}
void scale(const KernelCall& call, double factor, const Tensor& x) {
  RIPSTOP_RUN(scale, call, factor, x);
}
void dropout(const KernelCall& call, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  RIPSTOP_RUN(dropout, call, x, bits, y);
}
void add_dropout(const KernelCall& call, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  RIPSTOP_RUN(add_dropout, call, x, bits, y);
}
void reduce_pieces(const KernelCall& call, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Accumulate accumulate) {
  RIPSTOP_RUN(reduce_pieces, call, pieces, out, accumulate);
}
void gradient_scale(const KernelCall& call, const Tensor& global, double max_norm, const Tensor& scale) {
  RIPSTOP_RUN(gradient_scale, call, global, max_norm, scale);
}
void adamw(const KernelCall& call, const AdamWStep& step, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy) {
  RIPSTOP_RUN(adamw, call, step, scale, gradient, master, first, second, copy);
}

// Not entries of the table, so always emulated.
void locate_documents(const KernelCall& call, const Documents& documents, const Heads& heads,
                      const RaggedOffsets& offsets) {
  connect();
  launching = "locate_documents";
  emulation::locate_documents(call, documents, heads, offsets);
}
void log_sum_exp_by_place(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                          int64_t length, const Tensor& log_sum_exp, float* by_place) {
  connect();
  launching = "log_sum_exp_by_place";
  emulation::log_sum_exp_by_place(call, documents, group, length, log_sum_exp, by_place);
}
void log_sum_exp_by_row(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                        int64_t length, const float* by_place, const Tensor& log_sum_exp) {
  connect();
  launching = "log_sum_exp_by_row";
  emulation::log_sum_exp_by_row(call, documents, group, length, by_place, log_sum_exp);
}
void join_gradients(const KernelCall& call, const SeparateGradients& gradients, const Heads& heads,
                    const Tensor& dqkv) {
  connect();
  launching = "join_gradients";
  emulation::join_gradients(call, gradients, heads, dqkv);
}
void single_row_gradients(const KernelCall& call, const Documents& documents, const Heads& heads,
                          const Tensor& dout, const Tensor& dqkv) {
  connect();
  launching = "single_row_gradients";
  emulation::single_row_gradients(call, documents, heads, dout, dqkv);
}

}  // namespace ripstop::cuda
