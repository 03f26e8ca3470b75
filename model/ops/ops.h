// Every operation of the model: one function, one contract. Layers call these functions. ops.cpp checks
// shapes and dtypes, and then calls the device's entry of the KernelTable.
//
// For all operations:
// - Tensors are on the context's device. "Activation dtype" is float32 or bfloat16, the same for all
//   activation tensors and weights of a call. Arithmetic and sums are in float32, whatever is stored.
// - The work goes to the context's stream. The call may return before the work is done.
// - The workspace comes from the context's arena (category kWorkspace) and is freed on return.
// - Outputs must not overlap inputs unless the contract allows that.
// - Throws Error(kBug) if shapes or dtypes do not fit.
// - Results do not depend on timing: every sum has a fixed order for a given number of threads. Exception:
//   the backward of attention on kCuda, unless the device is deterministic.
// model/config.h has the letters of shapes. Here also:
//   I, O  columns of a linear's input and output       M  rows picked by a list, such as all with a target
//   S     sequences that decode one token at a time    P  positions of a table or of a cache
//   v     rows of this rank's slice of the vocabulary
#pragma once
#include <cstdint>
#include <vector>

#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

/// Whether an output is overwritten or added to.
enum class Accumulate : bool { kNo = false, kYes = true };

// ---- linear: y = x w^T

// The rows of x, y, dx and dy may be apart (Tensor::column_range).

/// y [N, O] (+)= x [N, I] * w [O, I]^T. x, w activation dtype; y activation dtype or float32.
void linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y,
            Accumulate accumulate = Accumulate::kNo);

/// dx [N, I] (+)= dy [N, O] * w [O, I]. dy, w activation dtype; dx activation dtype or float32.
void linear_backward_input(Context& context, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           Accumulate accumulate = Accumulate::kNo);

/// dw [O, I] (+)= dy [N, O]^T * x [N, I]. dy, x activation dtype; dw float32. With N = 0, kNo fills dw with
/// zeros.
void linear_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dw,
                            Accumulate accumulate);

/// Allocate the workspaces of the products above, free them and compute nothing. For products whose number
/// of rows depends on data: the plan must have room for every number of rows, and fewer rows may need more
/// workspace. Operands as above. Without a tensor `dw` its product does not count.
void reserve_linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y);
void reserve_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                             const Tensor& dx, const Tensor& dw);

// ---- norm

/// Adds and normalizes:
///   sum = residual + branch
///   inverse_rms = 1 / sqrt(mean(sum^2) + epsilon)
///   normed = sum * inverse_rms * weight
/// residual, branch, sum, normed [N, C] activation dtype; weight [C] activation dtype; inverse_rms [N]
/// float32. If `branch` is no tensor, sum = residual. `sum` may be the same tensor as `residual`. The mean
/// reads `sum` as stored (rounded). Source: RMSNorm, arXiv:1910.07467.
void add_rmsnorm(Context& context, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                 double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms);

/// Backward of `add_rmsnorm`. On entry, dresidual is d loss / d sum through everything but this norm; the
/// operation adds the part through the norm. The result is the gradient of residual and of branch alike.
/// dnormed, sum, dresidual [N, C] activation dtype; weight [C]; inverse_rms [N] float32; dweight [C] float32
/// (+)=, or no tensor.
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

/// The documents of a batch; see Batch. Document d is rows [offset[d], offset[d + 1]).
struct Documents {
  Tensor offset;  ///< [capacity] int32, `count` + 1 are used
  int64_t count = 0;
  int64_t longest = 0;
};

enum class Direction : bool { kForward, kBackward };

/// Rotates the query and key heads of qkv [N, row] in place. Elements (2i, 2i+1) of a head of row n turn by
/// the angle whose cosine and sine are angle[position[n], i] of angle [P, D/2, 2] float32; position [N]
/// int32, < P. kBackward turns the other way, which is the gradient. Source: RoPE, arXiv:2104.09864;
/// interleaved pairs as in Meta's LLaMA.
void rope(Context& context, const Tensor& qkv, const Tensor& position, const Tensor& angle,
          const Heads& heads, Direction direction);

/// Causal self-attention within each document, scaled by 1/sqrt(D). Query head h reads key-value head
/// h / (H/K). qkv [N, row], out [N, H*D] activation dtype; log_sum_exp [N, H] float32: log of the sum of
/// exp(scaled scores). Never stores T x T scores. Source: FlashAttention-2, arXiv:2307.08691.
void attention(Context& context, const Tensor& qkv, const Documents& documents, const Heads& heads,
               const Tensor& out, const Tensor& log_sum_exp);

/// dqkv [N, row] = gradient of `attention`, from dout [N, H*D] and the operands and results of forward.
void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Documents& documents, const Heads& heads,
                        const Tensor& dqkv);

/// The sizes of a call of `attention`.
struct AttentionSizes {
  int64_t rows = 0;       ///< N
  int64_t documents = 0;  ///< Documents::count
  int64_t longest = 0;    ///< Documents::longest
  Heads heads;
  DType dtype = DType::kFloat32;
};

/// Makes the plans that `attention`, or its backward, of such sizes keeps between calls and would otherwise
/// make in its first call: on kCuda plans of cuDNN, which take up to a second each. Returns how many were
/// made. They belong to `stream`. Computes nothing. Synchronous.
int64_t prepare_attention(const Stream& stream, const AttentionSizes& sizes, Direction direction);

/// Copies the key and value heads of row s of qkv [S, row] to cache[slot[s], position[s]] of cache
/// [slots, P, 2, K*D] (activation dtype); slot, position [S] int32.
void store_key_value(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                     const Heads& heads, const Tensor& cache);

/// The places in the cache of sequences that share a slot and its beginning, such as the beams of a search,
/// which so copy no keys and values. Position p < first[s] of row s is at place p of its slot, position p >=
/// first[s] at place[s, p - first[s]]. first [S] int32; place [S, G] int32. Without tensors each position p
/// is at place p.
struct CachedTail {
  Tensor first;
  Tensor place;

  bool empty() const { return place.empty(); }
};

/// Attention of S single rows to cached keys and values: row s attends to positions 0 .. position[s] of
/// slot[s], at the places that `tail` says. Reads only the query heads of qkv [S, row]: call
/// `store_key_value` first. cache [slots, P, 2, K*D], out [S, H*D].
void attention_cached(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                      const Tensor& cache, const Heads& heads, const CachedTail& tail, const Tensor& out);

// ---- feed-forward

/// out [N, F] = silu(gate) * up. The first F columns of gate_up [N, 2F] are gate, the others are up. Source:
/// SwiGLU, arXiv:2002.05202.
void swiglu(Context& context, const Tensor& gate_up, const Tensor& out);

/// Backward of `swiglu`. Overwrites both operands: gate_up [N, 2F] becomes its gradient; dout [N, F], the
/// gradient of out, becomes out itself, which the weight gradient of the next linear needs.
void swiglu_backward(Context& context, const Tensor& gate_up, const Tensor& dout);

// ---- vocabulary

/// out [N, C] = rows of table [v, C] for token [N] (int32). The table has ids [first_id, first_id + v) of
/// the vocabulary. Any other id gives a row of zeros.
void embedding(Context& context, const Tensor& token, const Tensor& table, int64_t first_id,
               const Tensor& out);

/// dtable [v, C] float32 (+)= dout [N, C]: row n goes to the row of its token. token_order [N] int32:
/// Batch::token_order.
void embedding_backward(Context& context, const Tensor& token, const Tensor& token_order, const Tensor& dout,
                        int64_t first_id, const Tensor& dtable, Accumulate accumulate);

/// out [M, C] = x [N, C] at rows index [M] (int32).
void gather_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out);

/// out [N, C] at rows index [M] (int32, distinct) = x [M, C]; other rows do not change.
void scatter_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out);

/// The columns of this rank's logits: ids [first, first + valid) of the vocabulary. Further columns are
/// padding and count as minus infinity.
struct VocabularySlice {
  int64_t first = 0;
  int64_t valid = 0;
};

/// Statistics of each row over one slice of the vocabulary; the statistics of all slices give the loss.
/// statistics [M, 3] float32 = the largest logit, the sum of exp(logit - largest), and the target's logit (0
/// if the target is in another slice). A slice without valid columns gives -infinity, 0, 0. logits [M, v]
/// float32; target [M] int32.
void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& target,
                              const VocabularySlice& slice, const Tensor& statistics);

/// loss [M] float32 = log sum exp(logits) - logit of the target, over all slices. `all` [slices, M, 3]
/// float32 has the statistics of every slice. If dlogits is a tensor: dlogits [M, v] = softmax - one-hot of
/// the target, the gradient of the *sum* of the losses; padding columns get 0. dlogits has the activation
/// dtype; in float32 it may share memory with logits.
void cross_entropy(Context& context, const Tensor& logits, const Tensor& target, const Tensor& all,
                   const VocabularySlice& slice, const Tensor& loss, const Tensor& dlogits);

/// The largest of the valid columns of each row of logits [M, v] float32: value [M] float32, and id [M] int32
/// = slice.first + column, the lowest column of equals. Without a valid column: -infinity and slice.first.
void argmax_rows(Context& context, const Tensor& logits, const VocabularySlice& slice, const Tensor& value,
                 const Tensor& id);

// ---- reductions and elementwise

/// total [1] float64 += sum of x [M] float32 or float64, added in float64. kCpu adds float64 elements to the
/// total one after another.
void add_sum(Context& context, const Tensor& x, const Tensor& total);

/// total [1] float64 += sum of squares of x [any] float32, added in float64 in blocks of fixed size.
void add_squared_norm(Context& context, const Tensor& x, const Tensor& total);

/// add_squared_norm on a stream without an arena. workspace: squared_norm_workspace_bytes of x, untouched
/// until the stream has passed this call.
void add_squared_norm(const Stream& stream, const Tensor& x, const Tensor& total, const Tensor& workspace);
int64_t squared_norm_workspace_bytes(const Device& device, int64_t count);

/// x = 0.
void fill_zero(Context& context, const Tensor& x);

/// y = x in y's dtype; float32 <-> bfloat16, or a copy. Equal counts.
void convert(Context& context, const Tensor& x, const Tensor& y);

/// y += x. float32, equal counts.
void add(Context& context, const Tensor& x, const Tensor& y);

/// x *= factor, activation dtype.
void scale(Context& context, double factor, const Tensor& x);

/// The random bits of dropout. They belong to logical elements, so they depend neither on the mesh nor on the
/// cut of a call. With T = sequence_length, row n and column c of the operands are the logical column
/// l = first_column + c of position r = (first_row + n) mod T in sequence number
///   s = first_sequence + (first_row + n) / T * sequence_step
/// of the step. The element is dropped if word l mod 4 of the Philox block {l / 4 (two words), r, s} under
/// `key` is below `threshold`. Source: Philox 4x32-10, model/core/philox.h.
struct DropoutBits {
  uint64_t key = 0;        ///< a function of seed, step and adapter
  uint32_t threshold = 0;  ///< 2^32 times the probability
  int64_t first_row = 0;   ///< in the micro-batch
  int64_t first_column = 0;
  int64_t sequence_length = 1;
  int64_t first_sequence = 0, sequence_step = 1;
};

/// y = x with zeros for dropped elements; the others are not scaled. x, y [N, I] activation dtype.
void dropout(Context& context, const Tensor& x, const DropoutBits& bits, const Tensor& y);
/// y += x without its dropped elements.
void add_dropout(Context& context, const Tensor& x, const DropoutBits& bits, const Tensor& y);

// ---- sums over ranks

enum class Reduce : uint8_t { kSum, kMax };

/// The elements from one rank, on the device of the result.
struct RankPiece {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
};

/// out [n] (+)= pieces[0] + pieces[1] + ..., or their maximum (NaN wins). Adds in this order and rounds once:
/// float32 and bfloat16 in float32, float64 and int32 in their own type. Each piece has `n` elements of out's
/// dtype, or of bfloat16 if out is float32. A piece may be `out` itself. Takes a stream instead of a context,
/// because communicators have no arena; needs no workspace. kCuda: only sums, only float32 and bfloat16, at
/// most kMostPieces pieces, else Error(kResources).
void reduce_pieces(const Stream& stream, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Reduce reduce, Accumulate accumulate);
inline constexpr size_t kMostPieces = 400;

// ---- optimizer

/// The random bits that round bfloat16 moments. They belong to logical elements, so they depend neither on
/// the mesh nor on the cut of a call. Element i of the operands lies at place p = begin + i of a slice, whose
/// rows have `stride` elements each, and is the logical element
///   l = origin + p / stride * columns + p mod stride
/// Its bits are word l mod 4 of the Philox block {l / 4, step} (two words each, the lower first) under `key`:
/// the lower 16 for the first moment, the upper 16 for the second. A row may end in padding, which is 0 in
/// all operands and stays 0. Source: Philox 4x32-10, model/core/philox.h.
struct MomentBits {
  uint64_t key = 0;     ///< a function of seed and parameter
  int64_t origin = 0;   ///< logical element, row-major, at place 0
  int64_t begin = 0;    ///< place of element 0 of the operands
  int64_t stride = 1;   ///< elements of a row in memory
  int64_t columns = 1;  ///< elements of a row of the logical parameter
  bool operator==(const MomentBits&) const = default;
};

/// The hyperparameters of one AdamW step. Source: arXiv:1711.05101, algorithm 2, in the order of operations
/// of torch.optim.AdamW.
struct AdamWStep {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;      ///< counted from 1; for the bias correction
  MomentBits bits = {};  ///< only for bfloat16 moments
};

/// Computes the factor of this step's gradients, on the device. global [3] float64 = {loss sum, target count,
/// squared norm of the summed gradients}. scale [2] float32 = {factor, 1} with
///   factor = clip / count,  clip = min(1, max_norm / (norm / count + 1e-6)),  clip = 1 if max_norm is 0.
/// If the loss or the squared norm is not finite, or count is 0: scale = {0, 0}, and `adamw` skips the
/// update. The clip rule is torch.nn.utils.clip_grad_norm_'s.
void gradient_scale(Context& context, const Tensor& global, double max_norm, const Tensor& scale);

/// One AdamW step on a shard, with g = gradient * scale[0]. Updates the moments `first` and `second` and the
/// master weights in float32. If `copy` is a tensor, it gets the new weights in its dtype. All operands but
/// scale have equal counts; master and gradient float32, both moments float32 or both bfloat16. If scale[1]
/// is 0, only `copy` is written. bfloat16 moments are read as float32, and the weights are updated from the
/// new moments before these are rounded. A new moment is first limited to bfloat16's largest finite number,
/// so it never becomes infinite. Then its size is rounded up or down at random, such that the mean is exact:
/// 16 random bits (MomentBits) are added to the 16 bits that bfloat16 lacks, and the lower half is cut off.
/// Numbers that bfloat16 holds exactly stay, so zero stays zero; the sign never changes. Source: stochastic
/// rounding, Gupta et al., arXiv:1502.02551.
void adamw(Context& context, const AdamWStep& step, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy);

}  // namespace ripstop
