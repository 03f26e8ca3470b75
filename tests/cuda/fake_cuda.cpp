// A fake of the CUDA run time and the kernels, as far as ripstop calls them. It computes nothing and records
// everything (recorder.h). Linked before the real libraries, so that model/device/cuda_*.cpp run unchanged.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "model/device/cuda_device.h"
#include "model/ops/kernel_table.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/recorder.h"

using ripstop::recording::handle_of;
using ripstop::recording::number_of;
using ripstop::recording::Recorder;
using ripstop::recording::span;
using ripstop::recording::Span;

namespace {

Recorder& recorder() {
  return Recorder::instance();
}

std::map<const void*, size_t>& device_memory() {
  static std::map<const void*, size_t> memory;
  return memory;
}

bool on_device(const void* data) {
  const auto next = device_memory().upper_bound(data);
  if (next == device_memory().begin()) return false;
  const auto& [begin, bytes] = *std::prev(next);
  return static_cast<const std::byte*>(data) < static_cast<const std::byte*>(begin) + bytes;
}

}  // namespace

int64_t ripstop::recording::bytes_of_block(const void* data) {
  return static_cast<int64_t>(device_memory()[data]);
}

extern "C" {

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "fake");
  properties->pciDomainID = getpid();  // so that each rank seems to have another GPU
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = static_cast<size_t>(recorder().free_bytes);
  *total = size_t{1} << 36;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error of the fake";
}
const char* cudaGetErrorName(cudaError_t) {
  return "fake";
}

cudaError_t cudaProfilerStart() {
  recorder().operation("cudaProfilerStart", 0, {}, {});
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  recorder().operation("cudaProfilerStop", 0, {}, {});
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = std::aligned_alloc(256, (bytes / 256 + 1) * 256);
  device_memory()[*data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  recorder().forget(span(data, device_memory()[data]));
  device_memory().erase(data);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  *data = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  std::memset(data, value, bytes);
  recorder().operation("cudaMemset", 0, {}, {span(data, bytes)});
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  *attributes = {};
  attributes->type = on_device(data) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  std::memmove(to, from, bytes);
  recorder().operation("copy", number_of(stream), {span(from, bytes)}, {span(to, bytes)});
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = handle_of<cudaStream_t>(recorder().make_stream());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  recorder().host_waits_for_all();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) recorder().host_waits_for_stream(number_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  recorder().make_wait(number_of(event), number_of(stream));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = handle_of<cudaEvent_t>(recorder().make_event());
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  recorder().record(number_of(event), number_of(stream));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  recorder().host_waits_for_event(number_of(event));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return recorder().query(number_of(event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

}  // extern "C"

namespace ripstop {
namespace {

Span all_of(const Tensor& t) {
  if (t.empty() || t.count() == 0) return {};
  // Rows that are apart: the span holds what lies between them, too.
  const int64_t elements = (t.rows() - 1) * t.stride() + t.cols();
  return span(t.data, static_cast<size_t>(elements * element_bytes(t.dtype)));
}

template <class... Reads>
std::vector<Span> spans(const Reads&... tensors) {
  return {all_of(tensors)...};
}

void kernel(const char* name, const KernelCall& call, std::vector<Span> reads, std::vector<Span> writes) {
  recorder().operation(name, number_of(native_stream(call.stream)), std::move(reads), std::move(writes));
}

// The memory that each kernel reads and writes, by the contracts of ops.h.
constexpr KernelTable kRecordingKernels{
    .linear = [](const KernelCall& c, const Tensor& x, const Tensor& w, const Tensor& y,
                 Accumulate) { kernel("linear", c, spans(x, w), spans(y)); },
    .linear_backward_input = [](const KernelCall& c, const Tensor& dy, const Tensor& w, const Tensor& dx,
                                Accumulate) { kernel("linear_backward_input", c, spans(dy, w), spans(dx)); },
    .linear_backward_weight =
        [](const KernelCall& c, const Tensor& dy, const Tensor& x, const Tensor& dw, Accumulate) {
          kernel("linear_backward_weight", c, spans(dy, x), spans(dw));
        },
    .add_bias = [](const KernelCall& c, const Tensor& bias,
                   const Tensor& y) { kernel("add_bias", c, spans(bias), spans(y)); },
    .add_bias_backward = [](const KernelCall& c, const Tensor& dy, const Tensor& dbias,
                            Accumulate) { kernel("add_bias_backward", c, spans(dy), spans(dbias)); },
    .add_rmsnorm =
        [](const KernelCall& c, const Tensor& residual, const Tensor& branch, const Tensor& weight, double,
           const Tensor& sum, const Tensor& normed, const Tensor& inverse) {
          kernel("add_rmsnorm", c, spans(residual, branch, weight), spans(sum, normed, inverse));
        },
    .add_rmsnorm_backward =
        [](const KernelCall& c, const Tensor& dnormed, const Tensor& sum, const Tensor& weight,
           const Tensor& inverse, const Tensor& dresidual, const Tensor& dweight, Accumulate) {
          kernel("add_rmsnorm_backward", c, spans(dnormed, sum, weight, inverse), spans(dresidual, dweight));
        },
    .norm_heads = [](const KernelCall& c, const Tensor& qkv, const Tensor& weight, double, const Heads&,
                     const Tensor& out) { kernel("norm_heads", c, spans(qkv, weight), spans(out)); },
    .norm_heads_backward =
        [](const KernelCall& c, const Tensor& qkv, const Tensor& weight, double, const Heads&,
           const Tensor& dqkv, const Tensor& dweight,
           Accumulate) { kernel("norm_heads_backward", c, spans(qkv, weight), spans(dqkv, dweight)); },
    .rope = [](const KernelCall& c, const Tensor& qkv, const Tensor& position, const Tensor& angle,
               const Heads&, Direction) { kernel("rope", c, spans(position, angle), spans(qkv)); },
    .attention =
        [](const KernelCall& c, const Tensor& qkv, const Documents& documents, const Heads&,
           const Tensor& out,
           const Tensor& lse) { kernel("attention", c, spans(qkv, documents.offset), spans(out, lse)); },
    .attention_backward =
        [](const KernelCall& c, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
           const Documents& documents, const Heads&, const Tensor& dqkv) {
          kernel("attention_backward", c, spans(dout, qkv, out, lse, documents.offset), spans(dqkv));
        },
    .prepare_attention = [](const Stream&, const AttentionSizes&, Direction) { return int64_t{0}; },
    .store_key_value =
        [](const KernelCall& c, const Tensor& qkv, const Tensor& slot, const Tensor& position, const Heads&,
           const Tensor& cache) { kernel("store_key_value", c, spans(qkv, slot, position), spans(cache)); },
    .attention_cached =
        [](const KernelCall& c, const Tensor& qkv, const Tensor& slot, const Tensor& position,
           const Tensor& cache, const Heads&, const CachedTail& tail, const Tensor& out) {
          kernel("attention_cached", c, spans(qkv, slot, position, cache, tail.first, tail.place),
                 spans(out));
        },
    .swiglu = [](const KernelCall& c, const Tensor& gate_up,
                 const Tensor& out) { kernel("swiglu", c, spans(gate_up), spans(out)); },
    .swiglu_backward = [](const KernelCall& c, const Tensor& gate_up,
                          const Tensor& dout) { kernel("swiglu_backward", c, {}, spans(gate_up, dout)); },
    .embedding = [](const KernelCall& c, const Tensor& token, const Tensor& table, int64_t,
                    const Tensor& out) { kernel("embedding", c, spans(token, table), spans(out)); },
    .embedding_backward =
        [](const KernelCall& c, const Tensor& token, const Tensor& order, const Tensor& dout, int64_t,
           const Tensor& dtable,
           Accumulate) { kernel("embedding_backward", c, spans(token, order, dout), spans(dtable)); },
    .gather_rows = [](const KernelCall& c, const Tensor& x, const Tensor& index,
                      const Tensor& out) { kernel("gather_rows", c, spans(x, index), spans(out)); },
    .scatter_rows = [](const KernelCall& c, const Tensor& x, const Tensor& index,
                       const Tensor& out) { kernel("scatter_rows", c, spans(x, index), spans(out)); },
    .cross_entropy_statistics =
        [](const KernelCall& c, const Tensor& logits, const Tensor& target, const VocabularySlice&,
           const Tensor& statistics) {
          kernel("cross_entropy_statistics", c, spans(logits, target), spans(statistics));
        },
    .cross_entropy =
        [](const KernelCall& c, const Tensor& logits, const Tensor& target, const Tensor& all,
           const VocabularySlice&, const Tensor& loss, const Tensor& dlogits) {
          kernel("cross_entropy", c, spans(logits, target, all), spans(loss, dlogits));
        },
    .argmax_rows = [](const KernelCall& c, const Tensor& logits, const VocabularySlice&, const Tensor& value,
                      const Tensor& id) { kernel("argmax_rows", c, spans(logits), spans(value, id)); },
    .add_sum = [](const KernelCall& c, const Tensor& x,
                  const Tensor& total) { kernel("add_sum", c, spans(x), spans(total)); },
    .add_squared_norm = [](const KernelCall& c, const Tensor& x,
                           const Tensor& total) { kernel("add_squared_norm", c, spans(x), spans(total)); },
    .fill_zero = [](const KernelCall& c, const Tensor& x) { kernel("fill_zero", c, {}, spans(x)); },
    .convert = [](const KernelCall& c, const Tensor& x,
                  const Tensor& y) { kernel("convert", c, spans(x), spans(y)); },
    .add = [](const KernelCall& c, const Tensor& x,
              const Tensor& y) { kernel("add", c, spans(x), spans(y)); },
    .scale = [](const KernelCall& c, double, const Tensor& x) { kernel("scale", c, {}, spans(x)); },
    .dropout = [](const KernelCall& c, const Tensor& x, const DropoutBits&,
                  const Tensor& y) { kernel("dropout", c, spans(x), spans(y)); },
    .add_dropout = [](const KernelCall& c, const Tensor& x, const DropoutBits&,
                      const Tensor& y) { kernel("add_dropout", c, spans(x), spans(y)); },
    .reduce_pieces =
        [](const KernelCall& c, const std::vector<RankPiece>& pieces, const Tensor& out, Accumulate) {
          std::vector<Span> reads;
          for (const RankPiece& piece : pieces)
            reads.push_back(span(piece.data, static_cast<size_t>(out.count() * element_bytes(piece.dtype))));
          kernel("reduce_pieces", c, reads, spans(out));
        },
    .gradient_scale = [](const KernelCall& c, const Tensor& global, double,
                         const Tensor& scale) { kernel("gradient_scale", c, spans(global), spans(scale)); },
    .adamw =
        [](const KernelCall& c, const AdamWStep&, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy) {
          kernel("adamw", c, spans(scale, gradient), spans(master, first, second, copy));
        },
};

}  // namespace

const KernelTable& cuda_kernels() {
  return kRecordingKernels;
}

}  // namespace ripstop
