// cuDNN's attention and the plain kernels beside each other: what one leaves, the other goes on with, as when
// cuDNN refuses one of the two passes.
#include <algorithm>

#include "model/kernels/cuda/cuda_kernels.h"
#include "tests/model/op_test.h"

namespace ripstop {
namespace {

struct MixedCase {
  Heads heads;
  std::vector<int32_t> lengths;
};

class MixedAttentionTest : public OpTest {
 protected:
  using Forward = decltype(KernelTable::attention);
  using Backward = decltype(KernelTable::attention_backward);

  /// The gradient by `backward` of what `forward` left, against the formula.
  void expect_gradient(const MixedCase& c, Forward forward, Backward backward) {
    std::vector<int32_t> offset{0};
    for (const int32_t n : c.lengths) offset.push_back(offset.back() + n);
    const int64_t rows = offset.back(), width = c.heads.query * c.heads.size;
    const Values qkv = random(rows * c.heads.row()), dout = random(rows * width);
    const Tensor x = put(qkv, {rows, c.heads.row()}), dy = put(dout, {rows, width});
    const Tensor out = room(dtype(), {rows, width}), dqkv = room(dtype(), {rows, c.heads.row()});
    const Tensor log_sum_exp = room(DType::kFloat32, {rows, c.heads.query});
    const Documents documents{put_ids(offset), static_cast<int64_t>(c.lengths.size()),
                              *std::max_element(c.lengths.begin(), c.lengths.end())};
    const bool deterministic = GetParam().device.deterministic;
    forward(call(workspaces().attention(rows, c.heads, dtype())), x, documents, c.heads, out, log_sum_exp);
    backward(call(workspaces().attention_backward(rows, documents.longest, c.heads, dtype(), deterministic)),
             dy, x, out, log_sum_exp, documents, c.heads, dqkv);
    const auto expected = reference::attention(qkv, offset, c.heads);
    expect_close(get(log_sum_exp), expected.log_sum_exp, DType::kFloat32, 4);
    expect_close(get(dqkv), reference::attention_backward(dout, qkv, expected, offset, c.heads), dtype(), 16,
                 c.heads.row());
  }

  const std::vector<MixedCase> cases_{
      {{2, 2, 64}, {128, 128}}, {{4, 1, 64}, {256}}, {{4, 2, 48}, {33, 100, 2}}};
};

TEST_P(MixedAttentionTest, PlainBackwardGoesOnWithCudnn) {
  for (const MixedCase& c : cases_) expect_gradient(c, kernels().attention, cuda::plain_attention_backward);
}

TEST_P(MixedAttentionTest, CudnnGoesOnWithPlainForward) {
  for (const MixedCase& c : cases_) expect_gradient(c, cuda::plain_attention, kernels().attention_backward);
}

RIPSTOP_OP_TESTS(MixedAttentionTest);

}  // namespace
}  // namespace ripstop
