// Measures every kernel with the shapes of one training step, on the CPU or on a GPU, and compares it with a
// floor: the time of its bytes at the measured rate of copies, or of its FLOPs at the measured rate of a
// large product, whichever is longer. Products on the CPU are compared with plain oneDNN, too.
//   tests/bench/kernels_bench --device cuda --models 110m:32x1024,llama2-7b:2x2048 --json kernels.json
// Times are those of the best of several turns. Operands are random numbers. Several sets of operands take
// turns, so that they come from memory and not from caches. On a GPU, the first runs choose the algorithms of
// products.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/device/cuda_machine.h"
#include "model/kernels/cpu/processor.h"
#include "tests/bench/gains.h"
#include "tests/bench/onednn_product.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  std::string device = "cpu";
  std::vector<std::string> models, dtypes{"float32", "bfloat16"};
  std::string filter, json;
  double seconds = 0.05;  ///< duration of one turn
  int64_t rotate_mebibytes = -1;
  bool ceilings_only = false, small = false;
};

class KernelsBench {
 public:
  explicit KernelsBench(const Options& options)
      : options_(options),
        device_(options.device == "cuda" ? Device::cuda(0) : Device::cpu()),
        stream_(device_),
        rotated_bytes_((options.rotate_mebibytes >= 0 ? options.rotate_mebibytes
                        : on_cpu()                    ? 0
                                                      : 512)
                       << 20) {
    for (const std::string& name : options.dtypes) {
      const DType dtype = name == "float32" ? DType::kFloat32 : DType::kBFloat16;
      if (dtype == DType::kBFloat16 && on_cpu() && !cpu_has_fast_bfloat16())
        fmt::print("bfloat16 is left out: this processor has no instructions for it\n");
      else
        dtypes_.push_back(dtype);
    }
  }

  int run() {
    report_["device"] = on_cpu() ? cpu_instruction_set() : look_at_cuda().gpus.at(0).name;
    fmt::print("{}: {}\n", to_string(device_), report_["device"].get<std::string>());
    measure_ceilings();
    report_["rows"] = Json::array();
    report_["totals"] = Json::array();
    report_["gains"] = Json::array();
    for (const std::string& model : options_.models)
      for (const DType dtype : dtypes_)
        if (!options_.ceilings_only) measure_model(shape_of(model), dtype);
    if (options_.json.empty()) return 0;
    std::ofstream file(options_.json);
    file << report_.dump(1) << '\n';
    file.close();
    if (file) return 0;
    fmt::print(stderr, "cannot write {}\n", options_.json);
    return static_cast<int>(ExitCode::kStorage);
  }

 private:
  bool on_cpu() const { return device_.kind == DeviceKind::kCpu; }

  /// Parses "110m" or "110m:16x1024": a preset, and sequences x positions.
  static StepShape shape_of(const std::string& text) {
    const size_t colon = text.find(':'), times = text.find('x', colon == std::string::npos ? 0 : colon);
    const std::string name = text.substr(0, colon);
    const ModelPreset* preset = find_model_preset(name);
    if (preset == nullptr || (colon != std::string::npos && times == std::string::npos))
      throw Error(ExitCode::kUsage, fmt::format("no model '{}'", text), "a preset, as in 110m:16x1024");
    StepShape shape{name, preset->config, 4, std::min<int64_t>(512, preset->config.max_position_embeddings)};
    if (shape.model.vocab_size == 0) shape.model.vocab_size = 512;
    if (colon != std::string::npos) {
      shape.sequences = std::stoll(text.substr(colon + 1));
      shape.positions = std::stoll(text.substr(times + 1));
    }
    return shape;
  }

  /// Seconds of one run: the best of several turns of many runs each. The sets of operands take turns.
  double time(const std::function<Work(Operands&)>& make, DType dtype, Work& first) {
    std::vector<std::unique_ptr<Operands>> operands;
    std::vector<Work> sets;
    int64_t bytes = 0;
    do {
      operands.push_back(std::make_unique<Operands>(stream_, dtype));
      sets.push_back(make(*operands.back()));
      bytes += operands.back()->bytes();
    } while (bytes < rotated_bytes_ && sets.size() < kMostSets);
    first = sets.front();
    constexpr int64_t kRunsBefore = 4;  // GPU products choose their algorithm in the third
    timed(sets, kRunsBefore);
    const double once = timed(sets, static_cast<int64_t>(sets.size())) / static_cast<double>(sets.size());
    const auto runs = static_cast<int64_t>(std::clamp(options_.seconds / once, 1.0, 10000.0));
    double best = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < kTurns; ++turn)
      best = std::min(best, timed(sets, runs) / static_cast<double>(runs));
    return best;
  }

  double timed(const std::vector<Work>& sets, int64_t runs) {
    stream_.synchronize();
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < runs; ++i) sets[static_cast<size_t>(i) % sets.size()].run();
    stream_.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void measure_ceilings() {
    const int64_t n = options_.small ? 256 : on_cpu() ? 2048 : 8192;
    const int64_t copied = options_.small ? 1 << 20 : int64_t{1} << (on_cpu() ? 26 : 28);
    Work work;
    const double seconds = time(
        [=](Operands& o) {
          const Tensor from = o.tensor(DType::kFloat32, {copied}), to = o.zeros(DType::kFloat32, {copied});
          return o.work(&KernelTable::convert, {bytes_of({from, to})}, from, to);
        },
        DType::kFloat32, work);
    ceilings_.copy_bytes = work.bytes / seconds;
    fmt::print("copy of {} MiB: {:.1f} GB/s read and written\n", 4 * copied >> 20,
               ceilings_.copy_bytes * 1e-9);
    report_["copy_bytes_per_second"] = ceilings_.copy_bytes;
    for (const DType dtype : dtypes_) {
      const double taken = time([=, this](Operands& o) { return large_product(o, n); }, dtype, work);
      ceilings_.product[dtype] = work.flops / taken;
      fmt::print("product {}^3 in {}: {:.2f} TFLOP/s{}\n", n, to_string(dtype), work.flops / taken * 1e-12,
                 on_cpu() ? " (oneDNN)" : "");
      report_["product_flops_per_second"][to_string(dtype)] = work.flops / taken;
    }
  }

  Work large_product(Operands& o, int64_t n) const {
    if (on_cpu()) return onednn_product(o, n, n, n);
    const Tensor x = o.tensor({n, n}), w = o.tensor({n, n}), y = o.zeros(o.dtype(), {n, n});
    return o.work(&KernelTable::linear,
                  {.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n),
                   .workspace = o.workspaces().linear(x, w, y, Accumulate::kNo)},
                  x, w, y, Accumulate::kNo);
  }

  void measure_model(const StepShape& shape, DType dtype) {
    const std::string title =
        fmt::format("{} {}x{} {}", shape.name, shape.sequences, shape.positions, to_string(dtype));
    fmt::print("\n{:<34}{:>12}{:>12}{:>10}{:>10}\n", title, "us", "rate", "of floor",
               on_cpu() ? "of oneDNN" : "");
    std::vector<Measured> all;
    std::vector<KernelRow> rows = kernel_rows(shape, dtype);
    rows.push_back(decoded_layer(shape, dtype));
    for (const KernelRow& row : rows) {
      if (row.name.find(options_.filter) == std::string::npos) continue;
      all.push_back(measure(row));
      print(all.back());
      record(title, all.back());
    }
    total(title, "linears", all, [](const KernelRow& row) { return row.product.has_value(); });
    total(title, "all kernels", all, [](const KernelRow&) { return true; });
    if (!options_.filter.empty() || dtype != DType::kBFloat16) return;
    fmt::print("  {:<32}{:>12}{:>12}\n", "what a change could make", "us now", "at least");
    for (const Gain& gain : gains(shape, dtype, all, ceilings_)) {
      fmt::print("  {:<32}{:>12.1f}{:>12.1f}\n", gain.name, 1e6 * gain.seconds, 1e6 * gain.floor_seconds);
      report_["gains"].push_back({{"shape", title},
                                  {"name", gain.name},
                                  {"seconds", gain.seconds},
                                  {"floor_seconds", gain.floor_seconds}});
    }
  }

  Measured measure(const KernelRow& row) {
    Measured m{.row = row};
    Work work;
    m.seconds = time(row.make, row.dtype, work);
    m.flops = work.flops;
    m.bytes = work.bytes;
    m.floor_seconds =
        std::max(work.bytes / ceilings_.copy_bytes, work.flops / ceilings_.product.at(row.dtype));
    if (on_cpu() && row.product)
      m.onednn_seconds =
          time([p = *row.product](Operands& o) { return onednn_product(o, p.m, p.k, p.n); }, row.dtype, work);
    return m;
  }

  static std::string percent(double part, double whole) {
    return part > 0 && whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "";
  }

  static void print(const Measured& m) {
    const std::string rate = m.flops > 0   ? fmt::format("{:.2f} TF/s", m.flops / m.seconds * 1e-12)
                             : m.bytes > 0 ? fmt::format("{:.1f} GB/s", m.bytes / m.seconds * 1e-9)
                                           : "";
    fmt::print("  {:<32}{:>12.1f}{:>12}{:>10}{:>10}\n", m.row.name, 1e6 * m.seconds, rate,
               percent(m.floor_seconds, m.seconds), percent(m.onednn_seconds, m.seconds));
    std::fflush(stdout);
  }

  void record(const std::string& title, const Measured& m) {
    Json row{{"shape", title},      {"name", m.row.name}, {"seconds", m.seconds},
             {"flops", m.flops},    {"bytes", m.bytes},   {"share_of_floor", m.floor_seconds / m.seconds},
             {"times", m.row.times}};
    if (m.onednn_seconds > 0) row["share_of_onednn"] = m.onednn_seconds / m.seconds;
    report_["rows"].push_back(row);
  }

  /// The sum over the rows of a step with one micro-batch, each as often as it occurs.
  template <class Which>
  void total(const std::string& title, const char* name, const std::vector<Measured>& all, Which which) {
    Measured sum{.row = {.name = fmt::format("{} of one step", name), .make = {}}};
    for (const Measured& m : all) {
      if (!which(m.row)) continue;
      sum.seconds += m.row.times * m.seconds;
      sum.flops += m.row.times * m.flops;
      sum.floor_seconds += m.row.times * m.floor_seconds;
      sum.onednn_seconds += m.row.times * m.onednn_seconds;
    }
    if (sum.seconds == 0) return;
    if (std::string_view(name) != "linears") sum.onednn_seconds = 0;  // not only products
    print(sum);
    Json json{{"shape", title},
              {"name", name},
              {"seconds", sum.seconds},
              {"flops", sum.flops},
              {"share_of_floor", sum.floor_seconds / sum.seconds}};
    if (sum.onednn_seconds > 0) json["share_of_onednn"] = sum.onednn_seconds / sum.seconds;
    report_["totals"].push_back(json);
  }

  static constexpr size_t kMostSets = 64;
  static constexpr int kTurns = 5;

  Options options_;
  Device device_;
  Stream stream_;
  int64_t rotated_bytes_;
  std::vector<DType> dtypes_;
  Ceilings ceilings_;
  Json report_;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("time of every kernel at the shapes of one training step");
  app.add_option("--device", o.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--models", o.models, "presets, as in 15m or 110m:16x1024 (sequences x positions)")
      ->delimiter(',');
  app.add_option("--dtypes", o.dtypes)->delimiter(',')->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--filter", o.filter, "measure only kernels with this text in their name");
  app.add_option("--json", o.json, "file for all results");
  app.add_option("--seconds", o.seconds, "duration of one turn")->check(CLI::PositiveNumber);
  app.add_option("--rotate-mib", o.rotate_mebibytes,
                 "MiB of operands that take turns; default: 512 on GPUs, one set on CPUs");
  app.add_flag("--ceilings", o.ceilings_only, "measure only the rates of copies and of a large product");
  app.add_flag("--small", o.small, "tiny sizes, to try the program");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage));
  }
  if (o.models.empty()) o.models = {"15m:8x256", "110m:4x512"};
  return o;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  const ripstop::Options options = ripstop::parse(argc, argv);
  try {
    return ripstop::KernelsBench(options).run();
  } catch (const ripstop::Error& error) {
    fmt::print(stderr, "FATAL {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
