// The rule of mode record against the installed cuDNN: the same graphs have plans, with the same workspace.
#include <gtest/gtest.h>

#include <random>

#include "model/kernels/cuda/attention_graph.h"
#include "model/kernels/cuda/attention_plans.h"
#include "tests/emulated_device/cudnn.h"

namespace ripstop {
namespace {

using cuda::AttentionShape;
using cuda::Plan;
using cuda::Sums;
using emulated::CudnnMode;

struct Answer {
  bool ok;
  int64_t workspace_bytes;
  bool operator==(const Answer&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Answer& a) {
  return out << (a.ok ? "a plan of " : "no plan, ") << a.workspace_bytes << " bytes";
}

Answer answer(CudnnMode mode, const AttentionShape& shape, bool backward, std::string* why = nullptr) {
  emulated::set_cudnn_mode(mode);
  cudnnHandle_t handle = nullptr;
  cuda::check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  constexpr int64_t kEnough = int64_t{1} << 50;
  Answer result{};
  {
    const Plan plan = attention_plan(backward ? Direction::kBackward : Direction::kForward, shape,
                                     {.handle = handle}, kEnough);
    result = {plan.ok(), plan.workspace_bytes()};
    if (why != nullptr) *why = plan.refusal();
  }
  cudnnDestroy(handle);
  emulated::set_cudnn_mode(CudnnMode::kRecord);
  return result;
}

void expect_same(const AttentionShape& shape, bool backward) {
  std::string why;
  const Answer real = answer(CudnnMode::kReal, shape, backward, &why);
  EXPECT_EQ(answer(CudnnMode::kRecord, shape, backward), real)
      << (backward ? "backward" : "forward") << " of " << shape.query_heads << " heads on "
      << shape.key_value_heads << " of " << shape.head_size << ", " << shape.documents << " documents of "
      << shape.length << (shape.dense ? ", dense" : ", ragged") << ", sums " << static_cast<int>(shape.sums)
      << ": " << why;
}

TEST(CudnnRule, AgreesWithTheInstalledCudnn) {
  std::mt19937 random(11);
  const auto one_of = [&](const auto& values) { return values[random() % std::size(values)]; };
  constexpr int64_t kHeads[] = {1, 2, 4, 6, 8, 12, 32}, kSizes[] = {8, 16, 40, 48, 64, 128, 192, 256};
  constexpr int64_t kDocuments[] = {1, 2, 4, 16, 64, 512}, kLengths[] = {128, 256, 512, 2048};
  for (int trial = 0; trial < 24; ++trial) {
    AttentionShape shape;
    shape.key_value_heads = one_of(kHeads);
    shape.query_heads = shape.key_value_heads * one_of(std::vector<int64_t>{1, 1, 2, 4});
    shape.head_size = one_of(kSizes);
    shape.documents = one_of(kDocuments);
    shape.length = one_of(kLengths);
    shape.dense = random() % 2 == 0;
    const bool backward = random() % 3 != 0;
    if (backward)
      shape.sums = one_of(std::vector<Sums>{Sums::kByRow, Sums::kByRow, Sums::kByPlace, Sums::kFromScores});
    expect_same(shape, backward);
  }
}

TEST(CudnnRule, RefusesTheSameHeads) {
  for (const bool backward : {false, true})
    for (const bool dense : {true, false})
      for (const Heads& heads : {Heads{8, 8, 60}, Heads{8, 8, 4}, Heads{8, 8, 264}, Heads{32, 5, 128}})
        expect_same({heads.query, heads.key_value, heads.size, 2, 1024, dense, Sums::kByRow}, backward);
}

}  // namespace
}  // namespace ripstop
