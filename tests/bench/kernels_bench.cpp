// What each CPU kernel reaches at the shapes of one training step.
//   OMP_NUM_THREADS=2 build/cpu-release/tests/bench/kernels_bench --benchmark_filter=attention
// Rates: FLOP/s counted as model FLOPs (causal attention as half), or bytes read and written a second.
#include <benchmark/benchmark.h>

#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "model/kernels/cpu/processor.h"
#include "model/ops/kernel_table.h"

namespace ripstop {
namespace {

/// A model's sizes and a step's batch.
struct StepShape {
  const char* name;
  std::int64_t sequences, positions, hidden, feed_forward, heads, size, vocabulary;

  std::int64_t rows() const { return sequences * positions; }
};
constexpr StepShape kShapes[] = {{"15m", 8, 256, 288, 768, 6, 48, 32000},
                                 {"110m", 4, 512, 768, 2048, 12, 64, 32000},
                                 {"110m_T1024", 2, 1024, 768, 2048, 12, 64, 32000}};

/// Owns the tensors of one benchmark.
class Bench {
 public:
  explicit Bench(DType dtype) : dtype_(dtype), stream_(Device::cpu()) {}

  Tensor tensor(DType dtype, const Shape& shape, float scale = 1) {
    buffers_.emplace_back(Device::cpu(), ledger_, MemoryCategory::kActivations,
                          shape.count() * element_bytes(dtype));
    const Tensor t = tensor_in(buffers_.back(), 0, dtype, shape);
    std::normal_distribution<float> normal(0, scale);
    for (std::int64_t i = 0; i < t.count() && dtype != DType::kInt32; ++i) {
      if (dtype == DType::kFloat32) t.as<float>()[i] = normal(generator_);
      if (dtype == DType::kBFloat16) t.as<BFloat16>()[i] = BFloat16(normal(generator_));
    }
    return t;
  }
  Tensor tensor(const Shape& shape) { return tensor(dtype_, shape); }
  Tensor ids(const std::vector<std::int32_t>& values) {
    const Tensor t = tensor(DType::kInt32, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t.as<std::int32_t>());
    return t;
  }
  KernelCall call(std::int64_t bytes = 0) {
    return {stream_, bytes == 0 ? nullptr : tensor(DType::kInt32, {(bytes + 3) / 4}).data};
  }

 private:
  DType dtype_;
  MemoryLedger ledger_;
  std::vector<Buffer> buffers_;
  Stream stream_;
  std::mt19937 generator_{7};
};

/// What one run of a kernel does, in FLOPs and bytes moved.
struct Work {
  std::function<void()> run;
  double flops = 0, bytes = 0;
};

void measure(const std::string& name, const std::function<Work(Bench&)>& make, DType dtype) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [make, dtype](benchmark::State& state) {
                                 Bench bench(dtype);
                                 const Work work = make(bench);
                                 work.run();
                                 for (auto _ : state) work.run();
                                 const auto rate = benchmark::Counter::kIsIterationInvariantRate;
                                 if (work.flops > 0) state.counters["FLOP/s"] = {work.flops, rate};
                                 if (work.bytes > 0) state.counters["bytes/s"] = {work.bytes, rate};
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->MinTime(0.2);
}

const KernelTable& k = cpu_kernels();
const WorkspaceTable& w = cpu_workspaces();
double count_of(const Tensor& t) {
  return static_cast<double>(t.count());
}
double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += static_cast<double>(t.bytes());
  return bytes;
}

void measure_linear(const std::string& prefix, DType dtype, std::int64_t n, std::int64_t in, std::int64_t out,
                    const std::string& what) {
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out);
  measure(
      prefix + "/linear/" + what,
      [=](Bench& b) {
        const Tensor x = b.tensor({n, in}), weight = b.tensor({out, in}), y = b.tensor({n, out});
        const KernelCall call = b.call(w.linear(x, weight, y));
        return Work{[=] { k.linear(call, x, weight, y); }, flops};
      },
      dtype);
  measure(
      prefix + "/linear_backward_input/" + what,
      [=](Bench& b) {
        const Tensor dx = b.tensor({n, in}), weight = b.tensor({out, in}), dy = b.tensor({n, out});
        const KernelCall call = b.call(w.linear_backward_input(dy, weight, dx, Accumulate::kNo));
        return Work{[=] { k.linear_backward_input(call, dy, weight, dx, Accumulate::kNo); }, flops};
      },
      dtype);
  measure(
      prefix + "/linear_backward_weight/" + what,
      [=](Bench& b) {
        const Tensor x = b.tensor({n, in}), dw = b.tensor(DType::kFloat32, {out, in}),
                     dy = b.tensor({n, out});
        const KernelCall call = b.call(w.linear_backward_weight(dy, x, dw, Accumulate::kYes));
        return Work{[=] { k.linear_backward_weight(call, dy, x, dw, Accumulate::kYes); }, flops};
      },
      dtype);
}

void measure_attention(const std::string& prefix, DType dtype, const StepShape& s) {
  const Heads heads{s.heads, s.heads, s.size};
  const double products = 2.0 * static_cast<double>(s.rows() * s.positions / 2 * s.hidden);
  const auto documents = [=](Bench& b) {
    std::vector<std::int32_t> offset;
    for (std::int64_t d = 0; d <= s.sequences; ++d)
      offset.push_back(static_cast<std::int32_t>(d * s.positions));
    return Documents{b.ids(offset), s.sequences, s.positions};
  };
  measure(
      prefix + "/attention",
      [=](Bench& b) {
        const Tensor qkv = b.tensor({s.rows(), heads.row()}), out = b.tensor({s.rows(), s.hidden});
        const Tensor log_sum_exp = b.tensor(DType::kFloat32, {s.rows(), s.heads});
        const Documents d = documents(b);
        const KernelCall call = b.call(w.attention(s.rows(), heads, dtype));
        return Work{[=] { k.attention(call, qkv, d, heads, out, log_sum_exp); }, 2 * products};
      },
      dtype);
  measure(
      prefix + "/attention_backward",
      [=](Bench& b) {
        const Tensor qkv = b.tensor({s.rows(), heads.row()}), out = b.tensor({s.rows(), s.hidden});
        const Tensor log_sum_exp = b.tensor(DType::kFloat32, {s.rows(), s.heads});
        const Tensor dout = b.tensor({s.rows(), s.hidden}), dqkv = b.tensor({s.rows(), heads.row()});
        const Documents d = documents(b);
        k.attention(b.call(w.attention(s.rows(), heads, dtype)), qkv, d, heads, out, log_sum_exp);
        const KernelCall call = b.call(w.attention_backward(s.rows(), heads, dtype));
        return Work{[=] { k.attention_backward(call, dout, qkv, out, log_sum_exp, d, heads, dqkv); },
                    5 * products};
      },
      dtype);
  measure(
      prefix + "/rope",
      [=](Bench& b) {
        const Tensor qkv = b.tensor({s.rows(), heads.row()});
        std::vector<std::int32_t> position;
        for (std::int64_t n = 0; n < s.rows(); ++n)
          position.push_back(static_cast<std::int32_t>(n % s.positions));
        const Tensor at = b.ids(position), angle = b.tensor(DType::kFloat32, {s.positions, s.size / 2, 2});
        const KernelCall call = b.call();
        return Work{[=] { k.rope(call, qkv, at, angle, heads, Direction::kForward); }, 0,
                    2 * bytes_of({qkv}) * 2 / 3};
      },
      dtype);
}

void measure_rows(const std::string& prefix, DType dtype, const StepShape& s) {
  measure(
      prefix + "/add_rmsnorm",
      [=](Bench& b) {
        const Tensor residual = b.tensor({s.rows(), s.hidden}), branch = b.tensor({s.rows(), s.hidden});
        const Tensor sum = b.tensor({s.rows(), s.hidden}), normed = b.tensor({s.rows(), s.hidden});
        const Tensor weight = b.tensor({s.hidden}), inverse = b.tensor(DType::kFloat32, {s.rows()});
        const KernelCall call = b.call();
        return Work{[=] { k.add_rmsnorm(call, residual, branch, weight, 1e-5, sum, normed, inverse); }, 0,
                    bytes_of({residual, branch, sum, normed})};
      },
      dtype);
  measure(
      prefix + "/add_rmsnorm_backward",
      [=](Bench& b) {
        const Tensor dnormed = b.tensor({s.rows(), s.hidden}), sum = b.tensor({s.rows(), s.hidden});
        const Tensor dresidual = b.tensor({s.rows(), s.hidden}), weight = b.tensor({s.hidden});
        const Tensor inverse = b.tensor(DType::kFloat32, {s.rows()}),
                     dweight = b.tensor(DType::kFloat32, {s.hidden});
        const KernelCall call = b.call(w.add_rmsnorm_backward(s.rows(), s.hidden));
        return Work{[=] {
                      k.add_rmsnorm_backward(call, dnormed, sum, weight, inverse, dresidual, dweight,
                                             Accumulate::kNo);
                    },
                    0, bytes_of({dnormed, sum, dresidual, dresidual})};
      },
      dtype);
  measure(
      prefix + "/swiglu",
      [=](Bench& b) {
        const Tensor gate_up = b.tensor({s.rows(), 2 * s.feed_forward}),
                     out = b.tensor({s.rows(), s.feed_forward});
        const KernelCall call = b.call();
        return Work{[=] { k.swiglu(call, gate_up, out); }, 0, bytes_of({gate_up, out})};
      },
      dtype);
  measure(
      prefix + "/swiglu_backward",
      [=](Bench& b) {
        const Tensor gate_up = b.tensor({s.rows(), 2 * s.feed_forward}),
                     dout = b.tensor({s.rows(), s.feed_forward});
        const KernelCall call = b.call();
        return Work{[=] { k.swiglu_backward(call, gate_up, dout); }, 0, 2 * bytes_of({gate_up, dout})};
      },
      dtype);
}

void measure_vocabulary(const std::string& prefix, DType dtype, const StepShape& s) {
  const std::int64_t chunk = 512;
  const auto tokens = [=](std::int64_t count) {
    std::mt19937 generator(3);
    std::uniform_int_distribution<std::int32_t> uniform(0, static_cast<std::int32_t>(s.vocabulary - 1));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (auto& id : ids) id = uniform(generator);
    return ids;
  };
  measure(
      prefix + "/embedding_backward",
      [=](Bench& b) {
        const auto ids = tokens(s.rows());
        std::vector<std::int32_t> order(ids.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) {
          return ids[static_cast<std::size_t>(i)] < ids[static_cast<std::size_t>(j)];
        });
        const Tensor dtable = b.tensor(DType::kFloat32, {s.vocabulary, s.hidden}),
                     dout = b.tensor({s.rows(), s.hidden});
        const Tensor token = b.ids(ids), token_order = b.ids(order);
        const KernelCall call = b.call();
        return Work{
            [=] { k.embedding_backward(call, token, token_order, dout, 0, dtable, Accumulate::kYes); }, 0,
            bytes_of({dout}) + 8 * count_of(dout)};
      },
      dtype);
  measure(
      prefix + "/cross_entropy_statistics",
      [=](Bench& b) {
        const Tensor logits = b.tensor(DType::kFloat32, {chunk, s.vocabulary}), target = b.ids(tokens(chunk));
        const Tensor statistics = b.tensor(DType::kFloat32, {1, chunk, 3});
        const KernelCall call = b.call();
        return Work{[=] {
                      k.cross_entropy_statistics(call, logits, target, {0, s.vocabulary}, statistics);
                    },
                    0, bytes_of({logits})};
      },
      dtype);
  measure(
      prefix + "/cross_entropy",
      [=](Bench& b) {
        const Tensor logits = b.tensor(DType::kFloat32, {chunk, s.vocabulary}), target = b.ids(tokens(chunk));
        const Tensor statistics = b.tensor(DType::kFloat32, {1, chunk, 3}),
                     loss = b.tensor(DType::kFloat32, {chunk});
        const Tensor dlogits = dtype == DType::kFloat32 ? logits : b.tensor({chunk, s.vocabulary});
        k.cross_entropy_statistics(b.call(), logits, target, {0, s.vocabulary}, statistics);
        const KernelCall call = b.call();
        return Work{[=] {
                      k.cross_entropy(call, logits, target, statistics, {0, s.vocabulary}, loss, dlogits);
                    },
                    0, bytes_of({logits, dlogits})};
      },
      dtype);
}

void measure_parameters(const std::string& prefix, DType dtype) {
  const std::int64_t count = 4 << 20;
  measure(
      prefix + "/adamw",
      [=](Bench& b) {
        const auto range = [&] { return b.tensor(DType::kFloat32, {count}); };
        const Tensor gradient = range(), master = range(), first = range(), second = range();
        k.fill_zero(b.call(), second);
        const Tensor copy = b.tensor({count}), scale = b.tensor(DType::kFloat32, {2});
        scale.as<float>()[0] = scale.as<float>()[1] = 1;
        const KernelCall call = b.call();
        return Work{
            [=] { k.adamw(call, {.learning_rate = 1e-3}, scale, gradient, master, first, second, copy); }, 0,
            7 * bytes_of({master}) + bytes_of({copy})};
      },
      dtype);
  measure(
      prefix + "/convert",
      [=](Bench& b) {
        const Tensor from = b.tensor(DType::kFloat32, {count}), to = b.tensor({count});
        const KernelCall call = b.call();
        return Work{[=] { k.convert(call, from, to); }, 0, bytes_of({from, to})};
      },
      dtype);
  measure(
      prefix + "/add_squared_norm",
      [=](Bench& b) {
        const Tensor x = b.tensor(DType::kFloat32, {count}), total = b.tensor(DType::kFloat64, {1});
        const KernelCall call = b.call(w.add_squared_norm(count));
        return Work{[=] { k.add_squared_norm(call, x, total); }, 0, bytes_of({x})};
      },
      dtype);
}

void register_all() {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    if (dtype == DType::kBFloat16 && !cpu_has_fast_bfloat16()) continue;
    for (const StepShape& s : kShapes) {
      const std::string prefix = std::string(s.name) + "/" + dtype_name(dtype);
      measure_linear(prefix, dtype, s.rows(), s.hidden, 3 * s.hidden, "qkv");
      measure_linear(prefix, dtype, s.rows(), s.hidden, s.hidden, "wo");
      measure_linear(prefix, dtype, s.rows(), s.hidden, 2 * s.feed_forward, "w13");
      measure_linear(prefix, dtype, s.rows(), s.feed_forward, s.hidden, "w2");
      measure_linear(prefix, dtype, 512, s.hidden, s.vocabulary, "head");
      measure_attention(prefix, dtype, s);
      measure_rows(prefix, dtype, s);
      measure_vocabulary(prefix, dtype, s);
    }
    measure_parameters(dtype_name(dtype), dtype);
  }
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  benchmark::AddCustomContext("instruction set", ripstop::cpu_instruction_set());
  ripstop::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
