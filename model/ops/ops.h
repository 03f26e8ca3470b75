// Every operation of the model: one function, one contract. Layers call these; ops.cpp checks shapes and
// dtypes and calls the device's row of the KernelTable.
//
// For all: tensors lie on the context's device; "activation dtype" is float32 or bfloat16, the same for all
// activation tensors and weights of a call; arithmetic and sums are in float32 whatever is stored. Work is
// given to the context's stream; the call may return before it is done. Scratch comes from the context's
// arena and is given back on return (category workspace). Outputs must not overlap inputs unless it says so.
// Throws Error(kBug) on shapes or dtypes that do not fit. Results do not depend on timing: every sum has a
// fixed order for a given thread count; on CUDA, attention's backward has one only where the device is
// deterministic. Letters: model/config.h.
#pragma once
#include <cstdint>
#include <vector>

#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

/// Whether an output is overwritten or added to.
enum class Accumulate : bool { kNo = false, kYes = true };

// ---- linear: y = x w^T

/// y [N, O] = x [N, I] * w [O, I]^T. x, w activation dtype; y activation dtype or float32.
void linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y);

/// dx [N, I] (+)= dy [N, O] * w [O, I]. dy, w activation dtype; dx activation dtype or float32.
void linear_backward_input(Context& context, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           Accumulate accumulate = Accumulate::kNo);

/// dw [O, I] (+)= dy [N, O]^T * x [N, I]. dy, x activation dtype; dw float32. With N = 0, kNo fills dw with
/// zeros.
void linear_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dw,
                            Accumulate accumulate);

/// Takes the scratch of the three products above for a moment, and computes nothing: where their number of
/// rows depends on data, a plan must have room for every number that can occur, and fewer rows may need more.
/// Operands as above; `dw` is taken for both values of Accumulate.
void reserve_linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y);
void reserve_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                             const Tensor& dx, const Tensor& dw);

// ---- norm

/// sum = residual + branch; normed = sum * inverse_rms * weight, inverse_rms = 1 / sqrt(mean(sum^2) +
/// epsilon). residual, branch, sum, normed [N, C] activation dtype; weight [C] activation dtype; inverse_rms
/// [N] float32. `branch` may be no tensor: then sum = residual. `sum` may be `residual`. The mean is of `sum`
/// as stored. Source: RMSNorm, arXiv:1910.07467.
void add_rmsnorm(Context& context, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                 double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms);

/// Backward of `add_rmsnorm`: dresidual += d loss / d sum through the norm, so that with dresidual = d loss /
/// d sum from everything after it comes out as the gradient of residual and branch alike. dnormed, sum,
/// dresidual [N, C] activation dtype; weight [C]; inverse_rms [N] float32; dweight [C] float32 (+)=.
/// `dresidual` is read and overwritten.
void add_rmsnorm_backward(Context& context, const Tensor& dnormed, const Tensor& sum, const Tensor& weight,
                          const Tensor& inverse_rms, const Tensor& dresidual, const Tensor& dweight,
                          Accumulate accumulate);

// ---- attention

/// Heads of this rank's slice. A row of q|k|v is H*D query, then K*D key, then K*D value elements.
struct Heads {
  int64_t query = 0;      ///< H
  int64_t key_value = 0;  ///< K; divides H
  int64_t size = 0;       ///< D; even

  int64_t row() const { return (query + 2 * key_value) * size; }
};

/// The rows of a batch cut into documents; see Batch.
struct Documents {
  Tensor offset;  ///< [capacity] int32, `count` + 1 are used
  int64_t count = 0;
  int64_t longest = 0;
};

enum class Direction : bool { kForward, kBackward };

/// Rotates the query and key heads of qkv [N, row] in place: elements (2i, 2i+1) of a head turn by the angle
/// whose cosine and sine are angle [P, D/2, 2] float32 at row position [N] (int32, < P). kBackward turns the
/// other way, which is the gradient. Source: RoPE, arXiv:2104.09864; interleaved pairs as in Meta's LLaMA.
void rope(Context& context, const Tensor& qkv, const Tensor& position, const Tensor& angle,
          const Heads& heads, Direction direction);

/// Causal self-attention within each document, scaled by 1/sqrt(D); query head h reads key-value head h /
/// (H/K). qkv [N, row], out [N, H*D] activation dtype; log_sum_exp [N, H] float32: log of the sum of
/// exp(scaled scores). Never holds T x T. Source: FlashAttention-2, arXiv:2307.08691.
void attention(Context& context, const Tensor& qkv, const Documents& documents, const Heads& heads,
               const Tensor& out, const Tensor& log_sum_exp);

/// dqkv [N, row] = gradient of `attention`, from dout [N, H*D] and what forward read and wrote.
void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Documents& documents, const Heads& heads,
                        const Tensor& dqkv);

/// Copies the key and value heads of qkv [S, row] into cache [slots, P, 2, K*D] (activation dtype) at
/// (slot[s], position[s]); slot, position [S] int32.
void store_key_value(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                     const Heads& heads, const Tensor& cache);

/// Attention of S single rows to what is cached: row s attends to positions 0 .. position[s] of slot[s].
/// qkv [S, row] (only the query part is read: store first), cache [slots, P, 2, K*D], out [S, H*D].
void attention_cached(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                      const Tensor& cache, const Heads& heads, const Tensor& out);

// ---- feed-forward

/// out [N, F] = silu(gate) * up, where gate_up [N, 2F] holds gate in its first F columns and up in the
/// others. Source: SwiGLU, arXiv:2002.05202.
void swiglu(Context& context, const Tensor& gate_up, const Tensor& out);

/// Backward of `swiglu`, in place on both: gate_up [N, 2F] turns into its gradient, and dout [N, F] turns
/// from the gradient of out into out itself, which the weight gradient needs next.
void swiglu_backward(Context& context, const Tensor& gate_up, const Tensor& dout);

// ---- vocabulary

/// out [N, C] = rows of table [v, C] for token [N] (int32), where the table holds ids [first_row, first_row +
/// v) of the vocabulary; other ids give a row of zeros.
void embedding(Context& context, const Tensor& token, const Tensor& table, int64_t first_row,
               const Tensor& out);

/// dtable [v, C] float32 (+)= rows of dout [N, C] at their token's row. token_order [N] int32:
/// Batch::token_order.
void embedding_backward(Context& context, const Tensor& token, const Tensor& token_order, const Tensor& dout,
                        int64_t first_row, const Tensor& dtable, Accumulate accumulate);

/// out [M, C] = x [N, C] at rows index [M] (int32).
void gather_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out);

/// out [N, C] at rows index [M] (int32, distinct) = x [M, C]; other rows are left alone.
void scatter_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out);

/// Columns of the logits that this rank holds: ids [first, first + valid) of the vocabulary; further columns
/// are padding and count as minus infinity.
struct VocabularySlice {
  int64_t first = 0;
  int64_t valid = 0;
};

/// What a slice of the vocabulary tells the others about each row: statistics [M, 3] float32 = the largest
/// logit, the sum of exp(logit - largest), and the target's logit (0 where the target lies in another slice;
/// a slice without valid columns says -infinity, 0, 0). logits [M, v] float32; target [M] int32.
void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& target,
                              const VocabularySlice& slice, const Tensor& statistics);

/// loss [M] float32 = log sum exp(logits) - logit of the target, over all slices, from all [slices, M, 3]
/// float32; and, unless dlogits is no tensor, dlogits [M, v] (activation dtype; may share memory with logits
/// where float32) = softmax - one-hot of the target: the gradient of the *sum* of the losses. Padding columns
/// get 0.
void cross_entropy(Context& context, const Tensor& logits, const Tensor& target, const Tensor& all,
                   const VocabularySlice& slice, const Tensor& loss, const Tensor& dlogits);

/// The largest of the valid columns of logits [M, v] float32: value [M] float32 and its id [M] int32
/// (slice.first + column; the lowest of equals). No valid column: -infinity and slice.first.
void argmax_rows(Context& context, const Tensor& logits, const VocabularySlice& slice, const Tensor& value,
                 const Tensor& id);

// ---- reductions and elementwise

/// total [1] float64 += sum of x [M] float32, added in float64.
void add_sum(Context& context, const Tensor& x, const Tensor& total);

/// total [1] float64 += sum of squares of x [any] float32, added in float64 in blocks of fixed size.
void add_squared_norm(Context& context, const Tensor& x, const Tensor& total);

/// x = 0.
void fill_zero(Context& context, const Tensor& x);

/// y = x in y's dtype; float32 <-> bfloat16, or a copy. Equal counts.
void convert(Context& context, const Tensor& x, const Tensor& y);

/// y += x. float32, equal counts.
void add(Context& context, const Tensor& x, const Tensor& y);

// ---- what ranks sent

enum class Reduce : uint8_t { kSum, kMax };

/// The elements of one rank, as they arrived; on the device of what they are reduced into.
struct RankPiece {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
};

/// out [n] (+)= pieces[0] + pieces[1] + ..., or their maximum (NaN wins), added in this order in float32
/// (float64 and int32 in themselves) and rounded once. Pieces have `n` elements each, of out's dtype or,
/// where that is float32, of bfloat16. A piece may be `out` itself. Takes the stream and no context, as
/// communicators have no arena; needs no scratch. CUDA: sums of float32 and bfloat16, at most
/// kMostPieces pieces, else Error(kResources).
void reduce_pieces(const Stream& stream, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Reduce reduce, Accumulate accumulate);
inline constexpr size_t kMostPieces = 400;

// ---- optimizer

/// AdamW's numbers for one step. Source: arXiv:1711.05101, algorithm 2, with torch.optim.AdamW's order of
/// operations.
struct AdamWStep {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;  ///< from 1; for the bias correction
};

/// What the gradients of this step are multiplied by: scale [2] float32 = {factor, 1}, or {0, 0} where the
/// squared norm or the loss is not finite (the update is then skipped). global [3] float64 = {loss sum,
/// target count, squared norm of the summed gradients}. factor = clip / count, clip = min(1, max_norm / (norm
/// / count + 1e-6)); max_norm 0 means no clipping. Targets 0: {0, 0}. The clip rule is
/// torch.nn.utils.clip_grad_norm_'s.
void gradient_scale(Context& context, const Tensor& global, double max_norm, const Tensor& scale);

/// One AdamW step on a range: g = gradient * scale[0]; moments and master weights are updated in float32, and
/// copy, where it is a tensor, gets the new weights in its dtype. All but scale have equal counts; master,
/// gradient, first, second float32. Where scale[1] is 0 nothing changes (copy is still written).
void adamw(Context& context, const AdamWStep& step, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy);

}  // namespace ripstop
