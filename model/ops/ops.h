// The operations of the model. ops.cpp checks shapes and dtypes, and calls the device's entry of KernelTable.
//
// For all operations:
// - Tensors are on the context's device. "Activation dtype" is float32 or bfloat16, the same for all
//   activation tensors and weights of a call. Sums are at least in float32 for both dtypes.
// - The work goes to the context's stream. The call may return before the work is done.
// - The workspace comes from the context's arena (category kWorkspace) and is freed on return.
// - Outputs must not overlap inputs unless the contract allows that.
// - Throws Error(kBug) if shapes or dtypes do not fit.
// - Every sum has a fixed order for a given number of threads. Exceptions on kCuda, unless the device is
//   deterministic: the backward of attention, and products, which may change their algorithm (GemmPlans).
// model/config.h has the letters of shapes. Here also:
//   I, O  columns of a linear's input and output       M  rows picked by a list, such as rows with a target
//   S     sequences that decode one token at a time    P  positions of a table or of a cache
//   v     rows of this rank's slice of the vocabulary
#pragma once
#include <cstdint>
#include <vector>

#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

enum class Accumulate : bool { kNo = false, kYes = true };

// ---- linear: y = x w^T

// x, y, dx and dy may be views of some columns (Tensor::column_range).

/// y [N, O] (+)= x [N, I] * w [O, I]^T. x, w activation dtype; y activation dtype or float32.
void linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y,
            Accumulate accumulate = Accumulate::kNo);

/// dx [N, I] (+)= dy [N, O] * w [O, I]. dy, w activation dtype; dx activation dtype or float32.
void linear_backward_input(Context& context, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           Accumulate accumulate = Accumulate::kNo);

/// dw [O, I] (+)= dy [N, O]^T * x [N, I] (0 if N = 0). dy, x activation dtype; dw float32.
void linear_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dw,
                            Accumulate accumulate);

/// reserve_linear allocates and frees the workspace of linear(), reserve_linear_backward the workspace of
/// both gradients, or of dx alone if dw is null. For products whose number of rows depends on data, because
/// a plan needs room for every number, and fewer rows may need more workspace.
void reserve_linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y);
void reserve_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                             const Tensor& dx, const Tensor& dw);

/// y [N, O] += bias [O] in each row. bias, y activation dtype.
void add_bias(Context& context, const Tensor& bias, const Tensor& y);

/// dbias [O] float32 (+)= the sum of the rows of dy [N, O] (0 if N = 0); dy activation dtype.
void add_bias_backward(Context& context, const Tensor& dy, const Tensor& dbias, Accumulate accumulate);

// ---- norm

/// Adds and normalizes:
///   sum = residual + branch
///   inverse_rms = 1 / sqrt(mean(sum^2) + epsilon)
///   normed = sum * inverse_rms * weight
/// residual, branch, sum, normed [N, C], weight [C] activation dtype; inverse_rms [N] float32. If `branch` is
/// null, sum = residual. `sum` may be the tensor `residual`. The mean reads `sum` as stored (rounded).
/// Source: RMSNorm, arXiv:1910.07467.
void add_rmsnorm(Context& context, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                 double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms);

/// Backward of `add_rmsnorm`. On entry, dresidual is the gradient of the loss w.r.t. `sum`, without the part
/// through this norm, which the operation adds. On return, it is the gradient w.r.t. residual and branch.
/// dnormed, sum, dresidual [N, C] activation dtype; weight [C]; inverse_rms [N] float32; dweight [C] float32
/// is written or added to, unless it is null.
void add_rmsnorm_backward(Context& context, const Tensor& dnormed, const Tensor& sum, const Tensor& weight,
                          const Tensor& inverse_rms, const Tensor& dresidual, const Tensor& dweight,
                          Accumulate accumulate);

// ---- attention

/// The heads of this rank's slice. A row of q|k|v has H*D query, then K*D key, then K*D value elements.
struct Heads {
  int64_t query = 0;      ///< H
  int64_t key_value = 0;  ///< K; divides H
  int64_t size = 0;       ///< D; even

  int64_t row() const { return (query + 2 * key_value) * size; }
};

/// The documents of a batch. Document d has rows [offset[d], offset[d + 1]).
struct Documents {
  Tensor offset;  ///< [capacity] int32, of which `count` + 1 are used
  int64_t count = 0;
  int64_t longest = 0;  ///< rows of the longest document
};

/// RMSNorm of each query and key head x [D] of a row: y = x * weight / sqrt(mean(x^2) + epsilon). Value heads
/// are copied. qkv, out [N, row] activation dtype; weight [2D]: for queries, then for keys. On kCuda throws,
/// like the backward, Error(kResources) if D is above 512. Source: Qwen3, arXiv:2505.09388, section 2.
void norm_heads(Context& context, const Tensor& qkv, const Tensor& weight, double epsilon, const Heads& heads,
                const Tensor& out);

/// Backward of `norm_heads`. On entry, dqkv [N, row] is the gradient of the loss w.r.t. out; on return,
/// w.r.t. qkv. dweight [2D] float32 is written or added to, unless it is null.
void norm_heads_backward(Context& context, const Tensor& qkv, const Tensor& weight, double epsilon,
                         const Heads& heads, const Tensor& dqkv, const Tensor& dweight,
                         Accumulate accumulate);

enum class Direction : bool { kForward, kBackward };

/// Rotates the query and key heads of qkv [N, row] in place: turns elements (2i, 2i+1) of each head in row n
/// by the angle whose cosine and sine are angle[position[n], i]. angle [P, D/2, 2] float32; position [N]
/// int32, below P. kBackward rotates by the negative angle, which gives the gradient. Source: RoPE,
/// arXiv:2104.09864; interleaved pairs as in Meta's LLaMA.
void rope(Context& context, const Tensor& qkv, const Tensor& position, const Tensor& angle,
          const Heads& heads, Direction direction);

/// Causal self-attention within each document, scaled by 1/sqrt(D). Query head h reads key-value head
/// h / (H/K). qkv [N, row], out [N, H*D] activation dtype; log_sum_exp [N, H] float32: log of the sum of
/// exp(scaled scores). Never stores T x T scores. Source: FlashAttention-2, arXiv:2307.08691.
void attention(Context& context, const Tensor& qkv, const Documents& documents, const Heads& heads,
               const Tensor& out, const Tensor& log_sum_exp);

/// dqkv [N, row] = the gradient of the loss w.r.t. qkv. dout [N, H*D]; other operands as in attention().
void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Documents& documents, const Heads& heads,
                        const Tensor& dqkv);

struct AttentionSizes {
  int64_t rows = 0;       ///< N
  int64_t documents = 0;  ///< Documents::count
  int64_t longest = 0;    ///< Documents::longest
  Heads heads;
  DType dtype = DType::kFloat32;
};

/// Makes the cuDNN plans that attention() or attention_backward() with these sizes needs on kCuda, and keeps
/// them in `stream`. A plan takes up to a second. Returns the number of plans made. Synchronous.
int64_t prepare_attention(const Stream& stream, const AttentionSizes& sizes, Direction direction);

/// For each row s of qkv [S, row]: cache[slot[s], position[s]] = the row's key and value heads. cache [slots,
/// P, 2, K*D] activation dtype; slot, position (a place, see CachedTail) [S] int32.
void store_key_value(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                     const Heads& heads, const Tensor& cache);

/// The places of sequences' positions in the cache. Sequences with a common beginning, such as the beams of
/// a search, share a slot. For row s, position p < first[s] is at place p of the slot, and position p >=
/// first[s] at place[s, p - first[s]]. If `place` is null, each position p is at place p.
struct CachedTail {
  Tensor first;  ///< [S] int32
  Tensor place;  ///< [S, G] int32, G: the largest number of positions from first[s] on

  bool empty() const { return place.empty(); }
};

/// Attention of S single rows to cached keys and values: row s attends to positions 0 .. position[s] of
/// slot[s], at the places given by `tail`. Reads only the query heads of qkv [S, row], so call
/// store_key_value() first. cache [slots, P, 2, K*D], out [S, H*D].
void attention_cached(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                      const Tensor& cache, const Heads& heads, const CachedTail& tail, const Tensor& out);

// ---- feed-forward

/// out [N, F] = silu(gate) * up. The first F columns of gate_up [N, 2F] are gate, the others are up. Source:
/// SwiGLU, arXiv:2002.05202.
void swiglu(Context& context, const Tensor& gate_up, const Tensor& out);

/// Backward of `swiglu`. gate_up [N, 2F] becomes its gradient. dout [N, F], the gradient of out, becomes out
/// itself, which the weight gradient of the next linear needs.
void swiglu_backward(Context& context, const Tensor& gate_up, const Tensor& dout);

// ---- vocabulary

/// out [N, C] = the rows of table [v, C] for token [N] (int32). Row i of the table belongs to id first_id +
/// i; an id without a row gives zeros.
void embedding(Context& context, const Tensor& token, const Tensor& table, int64_t first_id,
               const Tensor& out);

/// Backward of embedding(): adds each row n of dout [N, C] to the row of dtable [v, C] (float32) for
/// token[n], if there is one. With kNo dtable is first set to 0. token_order [N] int32: Batch::token_order.
void embedding_backward(Context& context, const Tensor& token, const Tensor& token_order, const Tensor& dout,
                        int64_t first_id, const Tensor& dtable, Accumulate accumulate);

/// out[m] = x[index[m]] for each m. x [N, C], index [M] int32, out [M, C].
void gather_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out);

/// out[index[m]] = x[m] for each m; other rows of out do not change. x [M, C], index [M] int32 (distinct),
/// out [N, C].
void scatter_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out);

/// The ids [first, first + valid) of the vocabulary, to which the columns of this rank's logits belong.
/// Columns beyond `valid` are padding and count as minus infinity.
struct VocabularySlice {
  int64_t first = 0;
  int64_t valid = 0;
};

/// Statistics of each row over one slice of the vocabulary: statistics [M, 3] float32 = the largest logit,
/// the sum of exp(logit - largest), and the target's logit (0 if the target is in another slice). A slice
/// without valid columns gives -infinity, 0, 0. logits [M, v] float32; target [M] int32.
void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& target,
                              const VocabularySlice& slice, const Tensor& statistics);

/// loss [M] float32 = log(sum of exp(logits)) - the target's logit, over all slices. `all` [slices, M or
/// more, 3] float32: every slice's statistics. If dlogits is not null: dlogits [M, v] (activation dtype) =
/// softmax - one-hot of the target, the gradient of the *sum* of the losses; 0 in padding columns. A float32
/// dlogits may be the memory of logits.
void cross_entropy(Context& context, const Tensor& logits, const Tensor& target, const Tensor& all,
                   const VocabularySlice& slice, const Tensor& loss, const Tensor& dlogits);

/// For each row of logits [M, v] float32: value [M] float32 = the largest valid logit, id [M] int32 =
/// slice.first + its column (of equal logits, the lowest column). Ignores NaN. A slice without a number in
/// its valid columns gives -infinity and slice.first.
void argmax_rows(Context& context, const Tensor& logits, const VocabularySlice& slice, const Tensor& value,
                 const Tensor& id);

// ---- reductions and elementwise

/// total [1] float64 += sum of x [M] float32 or float64, in float64. kCpu adds float64 elements in order.
void add_sum(Context& context, const Tensor& x, const Tensor& total);

/// total [1] float64 += sum of squares of x [any] float32, added in float64.
void add_squared_norm(Context& context, const Tensor& x, const Tensor& total);

/// add_squared_norm() without an arena. `workspace` has squared_norm_workspace_bytes(device, x.count())
/// bytes, and must not be used for other work until the stream has done this call.
void add_squared_norm(const Stream& stream, const Tensor& x, const Tensor& total, const Tensor& workspace);
int64_t squared_norm_workspace_bytes(const Device& device, int64_t count);

void fill_zero(Context& context, const Tensor& x);

/// y = x, converted to y's dtype: between float32 and bfloat16, or a copy. Equal counts.
void convert(Context& context, const Tensor& x, const Tensor& y);

/// y += x. float32, equal counts.
void add(Context& context, const Tensor& x, const Tensor& y);

/// x *= factor; x activation dtype.
void scale(Context& context, double factor, const Tensor& x);

/// The random bits of dropout do not depend on the mesh. Row n and column c of the operands are logical
/// column l of position r in the step's sequence number s:
///   l = first_column + c,   r = (first_row + n) mod T,   T = sequence_length,
///   s = first_sequence + (first_row + n) / T * sequence_step
/// The element is dropped if word l mod 4 of the Philox block {l / 4 (two words), r, s} under `key` is below
/// `threshold`. Source: Philox 4x32-10, model/core/philox.h.
struct DropoutBits {
  uint64_t key = 0;          ///< a function of seed, step and adapter
  uint32_t threshold = 0;    ///< 2^32 times the probability
  int64_t first_row = 0;     ///< row of the micro-batch that is row 0 of the operands
  int64_t first_column = 0;  ///< logical column that is column 0 of the operands
  int64_t sequence_length = 1;
  int64_t first_sequence = 0, sequence_step = 1;
};

/// dropout(): y = x with zeros for dropped elements. add_dropout(): y += the same. The other elements are not
/// scaled. x, y [N, I] activation dtype.
void dropout(Context& context, const Tensor& x, const DropoutBits& bits, const Tensor& y);
void add_dropout(Context& context, const Tensor& x, const DropoutBits& bits, const Tensor& y);

// ---- sums over ranks

/// One term of reduce_pieces(); `data` is on the device of `out`.
struct RankPiece {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
};

/// out [n] (+)= pieces[0] + pieces[1] + ..., added in this order. Each piece has n elements of out's dtype,
/// or of bfloat16 if out is float32; a piece may be the memory of `out`. Sums of bfloat16 are in float32,
/// rounded once at the end; other sums are in out's dtype. Needs no workspace. On kCuda throws Error(kBug) if
/// `out` is neither float32 nor bfloat16, and Error(kResources) for more than kMostPieces pieces.
void reduce_pieces(const Stream& stream, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Accumulate accumulate);
inline constexpr size_t kMostPieces = 400;

// ---- optimizer

/// The random bits that round bfloat16 moments do not depend on the mesh. Element i of the operands is at
/// place p = begin + i of a slice whose rows have `stride` elements in memory, and is the logical element
///   l = origin + p / stride * columns + p mod stride
/// Its bits are word l mod 4 of the Philox block {l / 4, step} (two words each, the lower first) under `key`:
/// the lower 16 bits for the first moment, the upper 16 for the second. A row may end in padding, which stays
/// 0. Source: Philox 4x32-10, model/core/philox.h.
struct MomentBits {
  uint64_t key = 0;     ///< a function of seed and parameter
  int64_t origin = 0;   ///< row-major index of the logical element at place 0 of the slice
  int64_t begin = 0;    ///< place in the slice of element 0 of the operands
  int64_t stride = 1;   ///< elements of a row in memory
  int64_t columns = 1;  ///< elements of a row of the logical parameter
  bool operator==(const MomentBits&) const = default;
};

/// The settings of one step of adamw(). Source: arXiv:1711.05101, algorithm 2, in torch.optim.AdamW's order.
struct AdamWStep {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;      ///< number of the update, from 1
  MomentBits bits = {};  ///< for bfloat16 moments
};

/// The factors of one update, computed in float64 and then rounded once to float32.
struct AdamWFactors {
  float keep, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_root, epsilon;

  explicit AdamWFactors(const AdamWStep& s);
};

/// Computes the factor of this step's gradients on the device. global [3] float64 = {loss sum, target count,
/// squared norm of the summed gradients}. scale [2] float32 = {factor, 1} with
///   factor = clip / count,  clip = min(1, max_norm / (norm / count + 1e-6)),  clip = 1 if max_norm is 0.
/// If the loss or the squared norm is not finite, or count is 0: scale = {0, 0}, and `adamw` skips the
/// update. Source of clip: torch.nn.utils.clip_grad_norm_.
void gradient_scale(Context& context, const Tensor& global, double max_norm, const Tensor& scale);

/// One AdamW step on a shard, with g = gradient * scale[0]. Updates the moments `first` and `second`, and the
/// weights `master`. If `copy` is not null, writes the new weights to it in its dtype. If scale[1] is 0,
/// writes only `copy`. All operands but scale have equal counts; master and gradient are float32, both
/// moments float32 or both bfloat16. Arithmetic is in float32. For bfloat16, a new moment is limited to
/// bfloat16's largest finite number, the weights are updated from it, and then it is rounded: 16 random bits
/// (MomentBits) are added to the 16 bits that bfloat16 lacks, and the lower half is truncated, so the mean of
/// the result is the moment. Moments that bfloat16 holds exactly do not change.
/// Source: stochastic rounding, Gupta et al., arXiv:1502.02551.
void adamw(Context& context, const AdamWStep& step, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy);

}  // namespace ripstop
