// The graphs of model/kernels/cuda/attention_graph.cpp, run by the interpreter through cuDNN's own calls,
// against attention in float64: dense and ragged, with and without groups of heads, every way of adding up.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "model/kernels/cuda/attention_graph.h"
#include "tests/emulated_device/cudnn.h"
#include "tests/emulated_device/cudnn_test_queue.h"
#include "tests/model/reference.h"

namespace ripstop {
namespace {

using cuda::AttentionShape;
using cuda::Plan;
using cuda::Sums;
using emulated::block_of;
using emulated::DeviceBlock;
using reference::at;
using reference::Values;

struct GraphCase {
  const char* name;
  Heads heads;
  std::vector<int32_t> lengths;
  bool dense;
  Sums sums;
};
std::ostream& operator<<(std::ostream& out, const GraphCase& c) {
  return out << c.name;
}

std::vector<BFloat16> narrow(const Values& values) {
  std::vector<BFloat16> result;
  for (const double v : values) result.emplace_back(static_cast<float>(v));
  return result;
}
Values wide(const DeviceBlock& block, int64_t count) {
  Values result;
  for (int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<double>(static_cast<float>(block.as<BFloat16>()[i])));
  return result;
}

class AttentionGraphs : public testing::TestWithParam<GraphCase> {
 protected:
  AttentionGraphs() {
    emulated::set_cudnn_version(92500);  // the first with every way of adding up
    cuda::check_cudnn(cudnnCreate(&handle_), "cudnnCreate");
    for (const int32_t length : lengths()) offset_.push_back(offset_.back() + length);
    for (int64_t d = 0; d <= documents(); ++d) {
      const int64_t first = offset_[at(d)];
      row_.push_back(first * heads().row());
      query_.push_back(first * query());
      key_value_.push_back(first * key_value());
      by_head_.push_back(first * heads().query);
    }
    qkv_ = random(rows() * heads().row());
    dout_ = random(rows() * query());
    forward_ = reference::attention(qkv_, offset_, heads());
    for (double& v : forward_.out) v = reference::stored(v, DType::kBFloat16);
  }
  ~AttentionGraphs() override {
    cudnnDestroy(handle_);
    emulated::set_cudnn_version(std::nullopt);
  }

  const Heads& heads() const { return GetParam().heads; }
  const std::vector<int32_t>& lengths() const { return GetParam().lengths; }
  int64_t documents() const { return static_cast<int64_t>(lengths().size()); }
  int64_t rows() const { return offset_.back(); }
  int64_t query() const { return heads().query * heads().size; }
  int64_t key_value() const { return heads().key_value * heads().size; }
  int64_t length() const {
    return GetParam().dense ? lengths()[0]
                            : 128 * ((*std::max_element(lengths().begin(), lengths().end()) + 127) / 128);
  }
  AttentionShape shape() const {
    return {heads().query, heads().key_value, heads().size,   documents(),
            length(),      GetParam().dense,  GetParam().sums};
  }
  bool by_place() const { return GetParam().dense || GetParam().sums == Sums::kByPlace; }

  Values random(int64_t count) {
    std::normal_distribution<double> normal(0, 1);
    Values values(at(count));
    for (double& v : values) v = reference::stored(normal(generator_), DType::kBFloat16);
    return values;
  }

  /// log_sum_exp as the backward graph reads it.
  std::vector<float> log_sum_exp_in() const {
    const int64_t h = heads().query;
    std::vector<float> result(at(by_place() ? documents() * h * length() : rows() * h), 0.0F);
    for (int64_t d = 0; d < documents(); ++d)
      for (int64_t p = 0; p < lengths()[at(d)]; ++p)
        for (int64_t i = 0; i < h; ++i) {
          const int64_t n = offset_[at(d)] + p;
          result[at(by_place() ? (d * h + i) * length() + p : n * h + i)] =
              static_cast<float>(forward_.log_sum_exp[at(n * h + i)]);
        }
    return result;
  }

  /// Binds the operands that forward and backward share, and runs.
  void run(const Plan& plan, std::vector<cuda::Binding> bindings, bool backward) {
    ASSERT_TRUE(plan.ok()) << plan.refusal();
    std::vector<DeviceBlock> blocks;
    const auto bind = [&](cuda::AttentionTensor id, DeviceBlock block) {
      blocks.push_back(std::move(block));
      bindings.push_back({id, blocks.back().data()});
    };
    const DeviceBlock qkv = block_of(narrow(qkv_));
    bindings.push_back({cuda::kQuery, qkv.data()});
    bindings.push_back({cuda::kKey, qkv.data() + 2 * query()});
    bindings.push_back({cuda::kValue, qkv.data() + 2 * (query() + key_value())});
    float scale = 1 / std::sqrt(static_cast<float>(heads().size)), one = 1;
    float masked = -std::numeric_limits<float>::infinity();
    bindings.push_back({cuda::kScale, &scale});
    bindings.push_back({cuda::kMaskedFuture, &masked});
    if (backward) bindings.push_back({cuda::kOne, &one});
    if (!GetParam().dense) {
      bindings.push_back({cuda::kMaskedPadding, &masked});
      bind(cuda::kLength, block_of(lengths()));
      bind(cuda::kOffsetRow, block_of(row_));
      bind(cuda::kOffsetQuery, block_of(query_));
      if (backward) bind(cuda::kOffsetKeyValue, block_of(key_value_));
      if (!backward || !by_place()) bind(cuda::kOffsetHeads, block_of(by_head_));
    }
    const DeviceBlock workspace(plan.workspace_bytes());
    plan.run(handle_, bindings, workspace.data());
    scale = one = masked = 0;  // they were read at the call
    emulated::run_submitted();
  }

  static void expect_close(const Values& actual, const Values& expected, double slack) {
    ASSERT_EQ(actual.size(), expected.size());
    double squares = 0;
    for (const double e : expected) squares += e * e;
    const double typical = std::sqrt(squares / static_cast<double>(expected.size()));
    for (size_t i = 0; i < actual.size(); ++i)
      ASSERT_LE(std::abs(actual[i] - expected[i]), slack * (std::abs(expected[i]) + typical))
          << "element " << i << " of " << actual.size() << ": " << actual[i] << ", expected " << expected[i];
  }

  cudnnHandle_t handle_ = nullptr;
  std::vector<int32_t> offset_{0};
  std::vector<int64_t> row_, query_, key_value_, by_head_;
  Values qkv_, dout_;
  reference::Attention forward_;

 private:
  std::mt19937_64 generator_{42};
};

constexpr int64_t kEnough = int64_t{1} << 40;
constexpr double kNarrow = 6 * 0.004, kWide = 4 * 2e-6, kGradient = 10 * 0.004;

TEST_P(AttentionGraphs, ForwardIsAttention) {
  const Plan plan = cuda::attention_plan(Direction::kForward, shape(), {.handle = handle_}, kEnough);
  AttentionShape forward = shape();
  forward.sums = Sums::kByRow;
  const int64_t h = heads().query;
  const int64_t numbers = GetParam().dense ? documents() * h * length() : rows() * h;
  const DeviceBlock out(2 * rows() * query()), log_sum_exp(4 * numbers);
  run(cuda::attention_plan(Direction::kForward, forward, {.handle = handle_}, kEnough),
      {{cuda::kOut, out.data()}, {cuda::kLogSumExp, log_sum_exp.data()}}, /*backward=*/false);
  expect_close(wide(out, rows() * query()), forward_.out, kNarrow);
  Values sums;
  for (int64_t n = 0; n < rows(); ++n)
    for (int64_t i = 0; i < h; ++i) {
      const int64_t place = GetParam().dense ? (n / length() * h + i) * length() + n % length() : n * h + i;
      sums.push_back(static_cast<double>(log_sum_exp.as<float>()[place]));
    }
  expect_close(sums, forward_.log_sum_exp, kWide);
}

TEST_P(AttentionGraphs, BackwardIsItsGradient) {
  const bool dense = GetParam().dense, grouped = heads().query != heads().key_value;
  const Plan plan = cuda::attention_plan(Direction::kBackward, shape(), {.handle = handle_}, kEnough);
  const int64_t padded = documents() * length();
  const DeviceBlock out = block_of(narrow(forward_.out)), dout = block_of(narrow(dout_));
  const DeviceBlock log_sum_exp = block_of(log_sum_exp_in());
  const DeviceBlock joined(2 * rows() * heads().row()), dquery(2 * rows() * query());
  const DeviceBlock dkey(2 * rows() * key_value()), dvalue(2 * rows() * key_value());
  const DeviceBlock sums(4 * padded * query()), row_sum(4 * padded * heads().query);
  const DeviceBlock dkeys(2 * rows() * query()), dvalues(2 * rows() * query());
  std::vector<cuda::Binding> bindings{
      {cuda::kOut, out.data()},
      {cuda::kDOut, dout.data()},
      {cuda::kLogSumExp, log_sum_exp.data()},
      {cuda::kRowSum, row_sum.data()},
      {cuda::kDQuery, dense ? joined.data() : dquery.data()},
      {cuda::kDKey, dense ? joined.data() + 2 * query() : dkey.data()},
      {cuda::kDValue, dense ? joined.data() + 2 * (query() + key_value()) : dvalue.data()}};
  if (GetParam().sums != Sums::kFromScores) bindings.push_back({cuda::kDQuerySum, sums.data()});
  if (grouped && !by_place()) {
    if (GetParam().sums != Sums::kFromScores || !dense) {
      bindings.push_back({cuda::kDKeyGrouped, dkeys.data()});
      bindings.push_back({cuda::kDValueGrouped, dvalues.data()});
    }
  }
  run(plan, bindings, /*backward=*/true);
  Values actual;
  if (dense) {
    actual = wide(joined, rows() * heads().row());
  } else {
    const Values q = wide(dquery, rows() * query()), k = wide(dkey, rows() * key_value());
    const Values v = wide(dvalue, rows() * key_value());
    for (int64_t n = 0; n < rows(); ++n) {
      actual.insert(actual.end(), q.begin() + n * query(), q.begin() + (n + 1) * query());
      actual.insert(actual.end(), k.begin() + n * key_value(), k.begin() + (n + 1) * key_value());
      actual.insert(actual.end(), v.begin() + n * key_value(), v.begin() + (n + 1) * key_value());
    }
  }
  expect_close(actual, reference::attention_backward(dout_, qkv_, forward_, offset_, heads()), kGradient);
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionGraphs,
    testing::Values(GraphCase{"Dense", {4, 4, 128}, {256, 256}, true, Sums::kByRow},
                    GraphCase{"DenseGrouped", {8, 2, 64}, {384}, true, Sums::kByRow},
                    GraphCase{"DenseFromScores", {4, 2, 64}, {128, 128, 128}, true, Sums::kFromScores},
                    GraphCase{"DenseOrdered", {2, 2, 64}, {256}, true, Sums::kOrdered},
                    GraphCase{"DenseByPlace", {4, 1, 40}, {128, 128}, true, Sums::kByPlace},
                    GraphCase{"Ragged", {3, 3, 64}, {65, 2, 130, 128}, false, Sums::kByRow},
                    GraphCase{
                        "RaggedGrouped", {4, 2, 48}, {3, 2, 63, 64, 65, 17, 16, 15}, false, Sums::kByRow},
                    GraphCase{"RaggedOrdered", {6, 2, 32}, {100, 28, 5, 7}, false, Sums::kOrdered},
                    GraphCase{"RaggedFromScores", {4, 2, 64}, {100, 28, 5, 7}, false, Sums::kFromScores},
                    GraphCase{"RaggedByPlace", {4, 2, 40}, {100, 28, 129, 7}, false, Sums::kByPlace},
                    GraphCase{"RaggedByPlaceAlike", {2, 2, 8}, {100, 28, 129, 7}, false, Sums::kByPlace}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ripstop
