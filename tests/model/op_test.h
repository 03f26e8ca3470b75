// A fixture for tests of one operation, with back end and dtype as parameters. Makes tensors from float64
// values with guards around them, and runs an operation under several numbers or orders of threads, whose
// results must agree.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "model/ops/kernel_table.h"
#include "tests/model/reference.h"

namespace ripstop {

using reference::at;
using reference::Values;

/// One table of kernels on one device, and the activation dtype to test it with.
struct OpCase {
  std::string name;
  Device device;
  const KernelTable* kernels;
  const WorkspaceTable* workspaces;
  DType dtype;
  /// Sets up variation 0, 1, 2 or 3 of a run; -1 restores the start.
  void (*set_variation)(int run);
  /// Whether variations may change the last bits in tests that allow it; the last two variations are then
  /// equal.
  bool threads_matter = false;
  /// Whether these last two variations give equal bits in such tests, too.
  bool repeatable = true;
  /// Whether tests leave out their longest sequences.
  bool slow = false;
};
inline std::ostream& operator<<(std::ostream& out, const OpCase& c) {
  return out << c.name;
}

/// The back ends that this program tests, each in both dtypes.
std::vector<OpCase> op_cases();

/// The back end of GPU 0, with the fastest order of sums and with a fixed order.
inline std::vector<OpCase> gpu_op_cases(bool slow) {
  std::vector<OpCase> cases;
  for (const bool deterministic : {false, true})
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      Device device = Device::cuda(0);
      device.deterministic = deterministic;
      cases.push_back({.name = fmt::format("{}{}", deterministic ? "deterministic_" : "", to_string(dtype)),
                       .device = device,
                       .kernels = &cuda_kernels(),
                       .workspaces = &cuda_workspaces(),
                       .dtype = dtype,
                       .set_variation = [](int) {},
                       .threads_matter = !deterministic,
                       .repeatable = deterministic,
                       .slow = slow});
    }
  return cases;
}

class OpTest : public testing::TestWithParam<OpCase> {
 protected:
  OpTest() : stream_(GetParam().device) {}
  ~OpTest() override { GetParam().set_variation(-1); }
  void TearDown() override { expect_guards(0); }

  const KernelTable& kernels() const { return *GetParam().kernels; }
  const WorkspaceTable& workspaces() const { return *GetParam().workspaces; }
  DType dtype() const { return GetParam().dtype; }

  /// Normal random values, rounded to `dtype`.
  Values random(int64_t count, DType dtype, double scale = 1) {
    std::normal_distribution<double> normal(0, scale);
    Values values(at(count));
    for (double& v : values) v = reference::stored(normal(generator_), dtype);
    return values;
  }
  Values random(int64_t count) { return random(count, dtype()); }
  /// Integers in [0, limit).
  std::vector<int32_t> random_ids(int64_t count, int32_t limit) {
    std::uniform_int_distribution<int32_t> uniform(0, limit - 1);
    std::vector<int32_t> ids(at(count));
    for (auto& id : ids) id = uniform(generator_);
    return ids;
  }

  Tensor put(const Values& values, DType dtype, const Shape& shape) {
    EXPECT_EQ(shape.count(), static_cast<int64_t>(values.size()));
    std::vector<std::byte> bytes(values.size() * at(element_bytes(dtype)));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto f = static_cast<float>(values[i]);
      const BFloat16 b(f);
      const void* from = dtype == DType::kFloat64    ? static_cast<const void*>(&values[i])
                         : dtype == DType::kBFloat16 ? static_cast<const void*>(&b)
                                                     : static_cast<const void*>(&f);
      std::memcpy(bytes.data() + i * at(element_bytes(dtype)), from, at(element_bytes(dtype)));
    }
    return put_bytes(bytes.data(), dtype, shape);
  }
  Tensor put(const Values& values, const Shape& shape) { return put(values, dtype(), shape); }
  Tensor put_ids(const std::vector<int32_t>& ids) {
    return put_bytes(ids.data(), DType::kInt32, {static_cast<int64_t>(ids.size())});
  }
  /// An output full of NaN, which shows elements that are not written.
  Tensor room(DType dtype, const Shape& shape) {
    return put(Values(at(shape.count()), std::numeric_limits<double>::quiet_NaN()), dtype, shape);
  }

  Values get(const Tensor& t) const {
    std::vector<std::byte> bytes(at(t.bytes()));
    copy_bytes(stream_, bytes.data(), t.data, t.bytes());
    stream_.synchronize();
    Values values;
    for (int64_t i = 0; i < t.count(); ++i) {
      const std::byte* from = bytes.data() + at(i * element_bytes(t.dtype));
      if (t.dtype == DType::kFloat64) values.push_back(read<double>(from));
      if (t.dtype == DType::kFloat32) values.push_back(static_cast<double>(read<float>(from)));
      if (t.dtype == DType::kBFloat16)
        values.push_back(static_cast<double>(static_cast<float>(read<BFloat16>(from))));
      if (t.dtype == DType::kInt32) values.push_back(read<int32_t>(from));
    }
    return values;
  }

  /// A call with exactly the scratch that the operation asks for, filled with NaN. Equal sizes share the
  /// memory, because matrix products ask for 32 MiB.
  KernelCall call(int64_t workspace_bytes = 0) {
    if (workspace_bytes == 0) return {stream_, nullptr};
    const int64_t count = (workspace_bytes + 3) / 4;
    Scratch& scratch = scratch_[count];
    if (scratch.tensor.empty()) {
      scratch.nan.resize(at(4 * count), 0xff);
      scratch.tensor = put_bytes(scratch.nan.data(), DType::kFloat32, {count});
    } else {
      copy_bytes(stream_, scratch.tensor.data, scratch.nan.data(), scratch.tensor.bytes());
    }
    return {stream_, scratch.tensor.data};
  }

  using Outputs = std::vector<Values>;
  enum class ThreadsMatter : bool { kNo, kYes };
  /// Calls `run`, which returns a vector of Values, under each variation, and expects the same bits if the
  /// number of threads is the same, or always. Returns the outputs of the last variation.
  template <class Run>
  Outputs repeated(Run run, ThreadsMatter threads_matter = ThreadsMatter::kNo) {
    std::vector<Outputs> results;
    for (int variation = 0; variation < 4; ++variation) {
      GetParam().set_variation(variation);
      const size_t first = buffers_.size();
      results.push_back(run());
      expect_guards(first);  // of all tensors at the end of the test
    }
    const bool matters = threads_matter == ThreadsMatter::kYes && GetParam().threads_matter;
    const size_t same = !matters ? 0 : GetParam().repeatable ? 2 : 3;
    for (size_t i = same; i < 3; ++i) EXPECT_TRUE(same_bits(results[i], results[3])) << "run " << i;
    if (matters)
      for (size_t i = 0; i < 2; ++i)
        for (size_t j = 0; j < results[i].size(); ++j) expect_close(results[i][j], results[3][j], dtype(), 2);
    return results[3];
  }

  /// Expects each value within `slack` roundings of `dtype` of the expected one, relative to the larger of
  /// the value and the root mean square of its row (of all values if `row` is 0).
  static void expect_close(const Values& actual, const Values& expected, DType dtype, double slack = 1,
                           int64_t row = 0) {
    ASSERT_EQ(actual.size(), expected.size());
    const double unit = slack * (dtype == DType::kBFloat16 ? 0.004 : dtype == DType::kFloat32 ? 2e-6 : 1e-13);
    const size_t width = row > 0 ? at(row) : expected.size();
    for (size_t first = 0; first < expected.size(); first += width) {
      double squares = 0;
      for (size_t i = first; i < first + width; ++i) squares += expected[i] * expected[i];
      const double typical = std::sqrt(squares / static_cast<double>(width));
      for (size_t i = first; i < first + width; ++i) {
        const double error = std::abs(actual[i] - expected[i]), scale = std::abs(expected[i]) + typical;
        ASSERT_TRUE(actual[i] == expected[i] || error <= unit * scale)
            << "element " << i << " of " << actual.size() << ": " << actual[i] << ", expected " << expected[i]
            << ", off by " << error / scale / unit << " of what is allowed";
      }
    }
  }

 private:
  static constexpr int64_t kGuardBytes = 256;
  static constexpr unsigned char kGuard = 0xa5;

  template <class T>
  static T read(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  /// Expects equal values, NaN and signs of zero included.
  static bool same_bits(const std::vector<Values>& a, const std::vector<Values>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i].size() != b[i].size() ||
          (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(double)) != 0))
        return false;
    return true;
  }
  Tensor put_bytes(const void* bytes, DType dtype, const Shape& shape) {
    const int64_t size = shape.count() * element_bytes(dtype);
    buffers_.emplace_back(GetParam().device, ledger_, MemoryCategory::kActivations, size + 2 * kGuardBytes);
    sizes_.push_back(size);
    const std::vector<unsigned char> guard(at(kGuardBytes), kGuard);
    const Tensor t = tensor_in(buffers_.back(), kGuardBytes, dtype, shape);
    copy_bytes(stream_, before(buffers_.size() - 1), guard.data(), kGuardBytes);
    copy_bytes(stream_, t.data, bytes, size);
    copy_bytes(stream_, behind(buffers_.size() - 1), guard.data(), kGuardBytes);
    stream_.synchronize();
    return t;
  }
  // A tensor's elements with the guards around them.
  std::byte* before(size_t buffer) const { return static_cast<std::byte*>(buffers_[buffer].data()); }
  std::byte* behind(size_t buffer) const { return before(buffer) + kGuardBytes + sizes_[buffer]; }
  void expect_guards(size_t first) {
    std::vector<unsigned char> found((buffers_.size() - first) * 2 * at(kGuardBytes));
    unsigned char* to = found.data();
    for (size_t b = first; b < buffers_.size(); ++b)
      for (const std::byte* guard : {before(b), behind(b)}) {
        copy_bytes(stream_, to, guard, kGuardBytes);
        to += kGuardBytes;
      }
    stream_.synchronize();
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], kGuard) << "written outside of tensor " << first + i / at(2 * kGuardBytes) << " of "
                                  << sizes_[first + i / at(2 * kGuardBytes)] << " bytes";
  }

  MemoryLedger ledger_;
  std::vector<Buffer> buffers_;
  std::vector<int64_t> sizes_;
  struct Scratch {
    Tensor tensor;
    std::vector<unsigned char> nan;  // the bytes that fill `tensor`
  };
  std::map<int64_t, Scratch> scratch_;  // of `call`, by number of elements
  Stream stream_;
  std::mt19937_64 generator_{42};
};

#define RIPSTOP_OP_TESTS(suite)                                       \
  INSTANTIATE_TEST_SUITE_P(All, suite, testing::ValuesIn(op_cases()), \
                           [](const auto& info) { return info.param.name; })

}  // namespace ripstop
