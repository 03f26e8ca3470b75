// ripstop's own CUDA kernels on the emulated device: their host code runs in tests/emulation's library, which
// gives every launch to `enqueue` below. With RIPSTOP_EMULATED_KERNELS=cpu the CPU's kernels take their
// place, for long tests: same contracts (model/ops/ops.h), same memory, queued too.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
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

template <auto kEntry>
constexpr const char* kName = "";
#define RIPSTOP_NAME(kernel) \
  template <>                \
  constexpr const char* kName<&KernelTable::kernel> = #kernel;
RIPSTOP_OTHER_KERNELS(RIPSTOP_NAME)
#undef RIPSTOP_NAME

template <auto kEntry>
using Entry = std::integral_constant<decltype(kEntry), kEntry>;

// cpu_workspace(Entry, ARGUMENT...): what the CPU's kernel of the entry needs, when it runs.
template <class... Any>
int64_t cpu_workspace(const Any&...) {
  return 0;
}
int64_t cpu_workspace(Entry<&KernelTable::add_bias_backward>, const Tensor& dy, const Tensor&, Accumulate) {
  return cpu_workspaces().add_bias_backward(dy.rows(), dy.cols());
}
int64_t cpu_workspace(Entry<&KernelTable::add_rmsnorm_backward>, const Tensor&, const Tensor& sum,
                      const auto&...) {
  return cpu_workspaces().add_rmsnorm_backward(sum.rows(), sum.cols());
}
int64_t cpu_workspace(Entry<&KernelTable::norm_heads_backward>, const Tensor& qkv, const Tensor&, double,
                      const Heads& heads, const auto&...) {
  return cpu_workspaces().norm_heads_backward(qkv.rows(), heads);
}
int64_t cpu_workspace(Entry<&KernelTable::attention>, const Tensor& qkv, const Documents&, const Heads& heads,
                      const auto&...) {
  return cpu_workspaces().attention(qkv.rows(), heads, qkv.dtype);
}
int64_t cpu_workspace(Entry<&KernelTable::attention_backward>, const Tensor&, const Tensor& qkv,
                      const Tensor&, const Tensor&, const Documents& documents, const Heads& heads,
                      const Tensor&) {
  return cpu_workspaces().attention_backward(qkv.rows(), documents.longest, heads, qkv.dtype, true);
}
int64_t cpu_workspace(Entry<&KernelTable::attention_cached>, const Tensor&, const Tensor&, const Tensor&,
                      const Tensor&, const Heads& heads, const auto&...) {
  return cpu_workspaces().attention_cached(heads);
}
int64_t cpu_workspace(Entry<&KernelTable::add_sum>, const Tensor& x, const Tensor&) {
  return cpu_workspaces().add_sum(x.count());
}
int64_t cpu_workspace(Entry<&KernelTable::add_squared_norm>, const Tensor& x, const Tensor&) {
  return cpu_workspaces().add_sum(x.count());
}

// An entry of the table.
template <auto kEntry, class... Arguments>
void run(const KernelCall& call, Arguments... arguments) {
  launching = kName<kEntry>;
  if (!on_cpu_kernels()) {
    connect();
    (emulation::kernels().*kEntry)(call, arguments...);
    return;
  }
  const auto work = [values = std::tuple<std::remove_cvref_t<Arguments>...>(arguments...)] {
    const auto run_on_cpu = [](const auto&... each) {
      const int64_t needed = cpu_workspace(Entry<kEntry>{}, each...) + 1;
      const auto bytes = static_cast<size_t>(round_up(needed, kMemoryAlignment));
      const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(kMemoryAlignment, bytes),
                                                                  &std::free);
      (cpu_kernels().*kEntry)({cpu_stream(), workspace.get()}, each...);
    };
    std::apply(run_on_cpu, values);
    return true;
  };
  check_cuda(enqueue(ripstop::native_stream(call.stream), launching, work), launching);
}

// The entry that is no kernel.
template <auto kEntry>
int64_t run(const Stream& stream, const AttentionSizes& sizes, Direction direction) {
  return cuda::prepare_attention(stream, sizes, direction);
}

// Runs a kernel that is no entry of the table, so always emulated.
template <class... Parameters>
void emulate(const char* name, void (*kernel)(const KernelCall&, Parameters...), const KernelCall& call,
             std::type_identity_t<Parameters>... arguments) {
  connect();
  launching = name;
  kernel(call, arguments...);
}

}  // namespace

void plain_attention(const KernelCall& call, const Tensor& qkv, const Documents& documents,
                     const Heads& heads, const Tensor& out, const Tensor& log_sum_exp) {
  run<&KernelTable::attention>(call, qkv, documents, heads, out, log_sum_exp);
}
void plain_attention_backward(const KernelCall& call, const Tensor& dout, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sum_exp, const Documents& documents,
                              const Heads& heads, const Tensor& dqkv) {
  run<&KernelTable::attention_backward>(call, dout, qkv, out, log_sum_exp, documents, heads, dqkv);
}
void locate_documents(const KernelCall& call, const Documents& documents, const Heads& heads,
                      const RaggedOffsets& offsets) {
  emulate("locate_documents", emulation::ragged().locate_documents, call, documents, heads, offsets);
}
void log_sum_exp_by_place(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                          int64_t length, const Tensor& log_sum_exp, float* by_place) {
  emulate("log_sum_exp_by_place", emulation::ragged().log_sum_exp_by_place, call, documents, group, length,
          log_sum_exp, by_place);
}
void log_sum_exp_by_row(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                        int64_t length, const float* by_place, const Tensor& log_sum_exp) {
  emulate("log_sum_exp_by_row", emulation::ragged().log_sum_exp_by_row, call, documents, group, length,
          by_place, log_sum_exp);
}
void join_gradients(const KernelCall& call, const SeparateGradients& gradients, const Heads& heads,
                    const Tensor& dqkv) {
  emulate("join_gradients", emulation::ragged().join_gradients, call, gradients, heads, dqkv);
}
void single_row_gradients(const KernelCall& call, const Documents& documents, const Heads& heads,
                          const Tensor& dout, const Tensor& dqkv) {
  emulate("single_row_gradients", emulation::ragged().single_row_gradients, call, documents, heads, dout,
          dqkv);
}

}  // namespace ripstop::cuda

namespace ripstop {

// Products and attention run the CUDA back end's own host code.
const KernelTable& cuda_kernels() {
#define RIPSTOP_OWN(kernel) .kernel = cuda::kernel,
#define RIPSTOP_RUN(kernel) .kernel = cuda::run<&KernelTable::kernel>,
  static constexpr KernelTable table = [] {
    KernelTable made{RIPSTOP_PRODUCTS(RIPSTOP_OWN) RIPSTOP_OTHER_KERNELS(RIPSTOP_RUN)};
    made.attention = cuda::attention;
    made.attention_backward = cuda::attention_backward;
    return made;
  }();
#undef RIPSTOP_OWN
#undef RIPSTOP_RUN
  return table;
}

}  // namespace ripstop
