// Executions of a plan: what is read when, and what is refused.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/kernels/cuda/attention_graph.h"
#include "tests/cuda/described_gpu.h"
#include "tests/emulated_device/cudnn.h"
#include "tests/emulated_device/cudnn_test_queue.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

using cuda::Binding;
using cuda::Plan;
using emulated::DeviceBlock;
using emulated::Refused;

constexpr int64_t kLength = 128, kSize = 8, kEnough = int64_t{1} << 30;

// Attention of one head over one document of equal rows: the output is the mean of all values before.
class CudnnExecution : public testing::Test {
 protected:
  CudnnExecution() {
    cuda::check_cudnn(cudnnCreate(&handle_), "cudnnCreate");
    plan_ = cuda::attention_plan(Direction::kForward, shape(), {.handle = handle_}, kEnough);
    for (int64_t i = 0; i < kLength * 3 * kSize; ++i) qkv_.as<BFloat16>()[i] = BFloat16(1.0F);
  }
  ~CudnnExecution() override {
    plan_ = Plan();
    cudnnDestroy(handle_);
  }
  static cuda::AttentionShape shape() { return {1, 1, kSize, 1, kLength, true, cuda::Sums::kByRow}; }

  std::vector<Binding> bindings() {
    return {{cuda::kQuery, qkv_.data()},
            {cuda::kKey, qkv_.data() + 2 * kSize},
            {cuda::kValue, qkv_.data() + 4 * kSize},
            {cuda::kOut, out_.data()},
            {cuda::kLogSumExp, log_sum_exp_.data()},
            {cuda::kScale, &scale_},
            {cuda::kMaskedFuture, &masked_}};
  }
  Binding& binding(std::vector<Binding>& all, int64_t id) {
    return *std::find_if(all.begin(), all.end(), [&](const Binding& b) { return b.id == id; });
  }
  std::string refusal(const std::vector<Binding>& bindings) {
    return error_of([&] { plan_.run(handle_, bindings, workspace_.data()); }).what();
  }

  cudnnHandle_t handle_ = nullptr;
  Plan plan_;
  DeviceBlock qkv_{kLength * 3 * kSize * 2}, out_{kLength * kSize * 2}, log_sum_exp_{kLength * 4};
  DeviceBlock workspace_{1 << 20, 0};
  float scale_ = 0.5F, masked_ = -std::numeric_limits<float>::infinity();
};

TEST_F(CudnnExecution, MemoryIsReadWhenTheWorkRuns) {
  ASSERT_TRUE(plan_.ok()) << plan_.refusal();
  EXPECT_EQ(refusal(bindings()), "");
  EXPECT_EQ(emulated::submitted(), 1U);
  EXPECT_TRUE(std::isnan(static_cast<float>(out_.as<BFloat16>()[0]))) << "nothing has run";
  for (int64_t i = 0; i < kLength * 3 * kSize; ++i) qkv_.as<BFloat16>()[i] = BFloat16(2.0F);
  scale_ = masked_ = 7;  // read at the call
  emulated::run_submitted();
  for (int64_t i = 0; i < kLength * kSize; ++i)
    ASSERT_NEAR(static_cast<float>(out_.as<BFloat16>()[i]), 2, 0.02);  // probabilities are bfloat16
  EXPECT_NEAR(log_sum_exp_.as<float>()[2], 2 * 2 * 8 * 0.5 + std::log(3.0), 1e-5);
}

TEST_F(CudnnExecution, ThePlanUsesItsWorkspace) {
  ASSERT_GT(plan_.workspace_bytes(), 0);
  EXPECT_EQ(refusal(bindings()), "");
  emulated::run_submitted();
  for (int64_t i = 0; i < plan_.workspace_bytes(); ++i)
    ASSERT_NE(workspace_.data()[i], std::byte{0}) << "byte " << i << " of " << plan_.workspace_bytes();
  EXPECT_EQ(workspace_.data()[plan_.workspace_bytes()], std::byte{0});
}

TEST_F(CudnnExecution, TooLittleWorkspaceIsRefused) {
  const DeviceBlock small(plan_.workspace_bytes() - 1);
  plan_.run(handle_, bindings(), small.data());
  EXPECT_THROW(emulated::run_submitted(), Refused);
  EXPECT_THROW(plan_.run(handle_, bindings(), nullptr), Error);
}

TEST_F(CudnnExecution, EveryTensorNeedsItsPointer) {
  for (const Binding& left_out : bindings()) {
    std::vector<Binding> all = bindings();
    all.erase(std::find_if(all.begin(), all.end(), [&](const Binding& b) { return b.id == left_out.id; }));
    EXPECT_NE(refusal(all), "") << left_out.id;
  }
  std::vector<Binding> all = bindings();
  all.push_back({cuda::kDOut, qkv_.data()});
  EXPECT_NE(refusal(all), "") << "a tensor of another graph";
  all = bindings();
  binding(all, cuda::kOut).data = nullptr;
  EXPECT_NE(refusal(all), "");
  EXPECT_EQ(emulated::submitted(), 0U);
}

TEST_F(CudnnExecution, PointersMustKeepTheAlignmentThatWasPromised) {
  std::vector<Binding> all = bindings();
  binding(all, cuda::kKey).data = qkv_.data() + 2 * kSize + 8;
  EXPECT_HAS(refusal(all), "multiple of 16");
}

TEST_F(CudnnExecution, TensorsLieOnTheDeviceAndScalarsOnTheHost) {
  alignas(16) static std::byte host[kLength * kSize * 2];
  std::vector<Binding> all = bindings();
  binding(all, cuda::kOut).data = host;
  EXPECT_EQ(refusal(all), "");
  EXPECT_THROW(emulated::run_submitted(), Refused);
  all = bindings();
  binding(all, cuda::kScale).data = qkv_.data();
  EXPECT_THROW(plan_.run(handle_, all, workspace_.data()), Refused);
}

TEST_F(CudnnExecution, NeedsAFinalizedPlanOfAHandle) {
  cuda::Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const cuda::Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  EXPECT_NE(cudnnBackendExecute(handle_, plan.get(), pack.get()), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(cudnnBackendExecute(handle_, pack.get(), plan.get()), CUDNN_STATUS_SUCCESS);
  const cuda::Descriptor gpu = cuda::device_properties(kH100.json());
  const Plan described = cuda::attention_plan(Direction::kForward, shape(), {.properties = &gpu}, kEnough);
  ASSERT_TRUE(described.ok()) << described.refusal();
  EXPECT_THROW(described.run(handle_, bindings(), workspace_.data()), Error);
  cudnnHandle_t gone = nullptr;
  cuda::check_cudnn(cudnnCreate(&gone), "cudnnCreate");
  cudnnDestroy(gone);
  EXPECT_THROW(plan_.run(gone, bindings(), workspace_.data()), Refused);
}

}  // namespace
}  // namespace ripstop
