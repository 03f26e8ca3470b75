#include "model/ops/ops.h"

#include <algorithm>
#include <cmath>

#include "model/ops/kernel_table.h"
#include "model/ops/operand_checks.h"

namespace ripstop {
namespace {

/// The workspace of an operation, freed when the operation returns. The next operation may use the same
/// bytes, because it runs later on the stream.
struct Workspace {
  Workspace(Context& context, int64_t bytes) : frame(context.arena), call{context.stream} {
    if (bytes > 0)
      call.workspace =
          context.arena.allocate(DType::kInt32, {(bytes + 3) / 4}, MemoryCategory::kWorkspace).data;
  }
  Frame frame;
  KernelCall call;
};

const KernelTable& kernels(const Stream& stream, DeviceKind kind) {
  return stream.observer() != nullptr ? observed_kernels() : kernels(kind);
}
const KernelTable& kernels(const Context& context) {
  return kernels(context.stream, context.device().kind);
}
// Plans run the same code on kMeta, with the workspaces of the planned device.
const WorkspaceTable& workspace_bytes(const Context& context) {
  return workspaces(context.device().planned);
}

void check_norm_heads(const Tensor& qkv, const Tensor& weight, const Heads& heads, const Tensor& written) {
  check_heads(heads);
  check_activation(qkv, "qkv");
  for (const Tensor* t : {&qkv, &written}) check_matrix(*t, qkv.rows(), heads.row(), qkv.dtype, "qkv");
  check_count(weight, 2 * heads.size, qkv.dtype, "weight");
}

}  // namespace

const KernelTable& kernels(DeviceKind kind) {
  if (kind == DeviceKind::kMeta) return meta_kernels();
  return kind == DeviceKind::kCpu ? cpu_kernels() : cuda_kernels();
}

const WorkspaceTable& workspaces(DeviceKind kind) {
  RIPSTOP_CHECK(kind != DeviceKind::kMeta, "the meta device has no workspaces; ask for its planned kind");
  return kind == DeviceKind::kCpu ? cpu_workspaces() : cuda_workspaces();
}

void linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y, Accumulate accumulate) {
  check_operand(x, "x");
  check_matrix(w, y.cols(), x.cols(), x.dtype, "w");
  check_rows(y, x.rows(), w.rows(), "y");
  check_result(y, x.dtype, "y");
  const Workspace workspace(context, workspace_bytes(context).linear(x, w, y, accumulate));
  kernels(context).linear(workspace.call, x, w, y, accumulate);
}

void linear_backward_input(Context& context, const Tensor& dy, const Tensor& w, const Tensor& dx,
                           Accumulate accumulate) {
  check_operand(dy, "dy");
  check_matrix(w, dy.cols(), dx.cols(), dy.dtype, "w");
  check_rows(dx, dy.rows(), w.cols(), "dx");
  check_result(dx, dy.dtype, "dx");
  const Workspace workspace(context, workspace_bytes(context).linear_backward_input(dy, w, dx, accumulate));
  kernels(context).linear_backward_input(workspace.call, dy, w, dx, accumulate);
}

void linear_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dw,
                            Accumulate accumulate) {
  check_operand(dy, "dy");
  check_matrix(dw, dy.cols(), x.cols(), DType::kFloat32, "dw");
  check_rows(x, dy.rows(), dw.cols(), "x");
  check_dtype(x, dy.dtype, "x");
  const Workspace workspace(context, workspace_bytes(context).linear_backward_weight(dy, x, dw, accumulate));
  kernels(context).linear_backward_weight(workspace.call, dy, x, dw, accumulate);
}

void reserve_linear(Context& context, const Tensor& x, const Tensor& w, const Tensor& y) {
  const Workspace workspace(context, workspace_bytes(context).linear(x, w, y, Accumulate::kNo));
}

void reserve_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& w,
                             const Tensor& dx, const Tensor& dw) {
  const WorkspaceTable& bytes = workspace_bytes(context);
  // The products run one after another, each with the whole workspace, so reserve the largest size.
  const Workspace workspace(
      context, std::max({bytes.linear_backward_input(dy, w, dx, Accumulate::kNo),
                         dw.empty() ? 0 : bytes.linear_backward_weight(dy, x, dw, Accumulate::kNo),
                         dw.empty() ? 0 : bytes.linear_backward_weight(dy, x, dw, Accumulate::kYes)}));
}

void add_bias(Context& context, const Tensor& bias, const Tensor& y) {
  check_activation(y, "y");
  check_count(bias, y.cols(), y.dtype, "bias");
  kernels(context).add_bias({context.stream}, bias, y);
}

void add_bias_backward(Context& context, const Tensor& dy, const Tensor& dbias, Accumulate accumulate) {
  check_activation(dy, "dy");
  check_float(dbias, dy.cols(), "dbias");
  const Workspace workspace(context, workspace_bytes(context).add_bias_backward(dy.rows(), dy.cols()));
  kernels(context).add_bias_backward(workspace.call, dy, dbias, accumulate);
}

void add_rmsnorm(Context& context, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                 double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms) {
  check_activation(residual, "residual");
  for (const Tensor* t : {&sum, &normed})
    check_matrix(*t, residual.rows(), residual.cols(), residual.dtype, "sum or normed");
  if (!branch.empty()) check_matrix(branch, residual.rows(), residual.cols(), residual.dtype, "branch");
  check_count(weight, residual.cols(), residual.dtype, "weight");
  check_float(inverse_rms, residual.rows(), "inverse_rms");
  kernels(context).add_rmsnorm({context.stream}, residual, branch, weight, epsilon, sum, normed, inverse_rms);
}

void add_rmsnorm_backward(Context& context, const Tensor& dnormed, const Tensor& sum, const Tensor& weight,
                          const Tensor& inverse_rms, const Tensor& dresidual, const Tensor& dweight,
                          Accumulate accumulate) {
  check_activation(sum, "sum");
  for (const Tensor* t : {&dnormed, &dresidual})
    check_matrix(*t, sum.rows(), sum.cols(), sum.dtype, "dnormed or dresidual");
  check_count(weight, sum.cols(), sum.dtype, "weight");
  check_float(inverse_rms, sum.rows(), "inverse_rms");
  if (!dweight.empty()) check_float(dweight, sum.cols(), "dweight");
  const Workspace workspace(context, workspace_bytes(context).add_rmsnorm_backward(sum.rows(), sum.cols()));
  kernels(context).add_rmsnorm_backward(workspace.call, dnormed, sum, weight, inverse_rms, dresidual, dweight,
                                        accumulate);
}

void norm_heads(Context& context, const Tensor& qkv, const Tensor& weight, double epsilon, const Heads& heads,
                const Tensor& out) {
  check_norm_heads(qkv, weight, heads, out);
  kernels(context).norm_heads({context.stream}, qkv, weight, epsilon, heads, out);
}

void norm_heads_backward(Context& context, const Tensor& qkv, const Tensor& weight, double epsilon,
                         const Heads& heads, const Tensor& dqkv, const Tensor& dweight,
                         Accumulate accumulate) {
  check_norm_heads(qkv, weight, heads, dqkv);
  if (!dweight.empty()) check_float(dweight, 2 * heads.size, "dweight");
  const Workspace workspace(context, workspace_bytes(context).norm_heads_backward(qkv.rows(), heads));
  kernels(context).norm_heads_backward(workspace.call, qkv, weight, epsilon, heads, dqkv, dweight,
                                       accumulate);
}

void rope(Context& context, const Tensor& qkv, const Tensor& position, const Tensor& angle,
          const Heads& heads, Direction direction) {
  check_heads(heads);
  check_activation(qkv, "qkv");
  check_rows(qkv, position.count(), heads.row(), "qkv");
  check_index(position, qkv.rows(), "position");
  check_matrix(angle, angle.rows(), heads.size, DType::kFloat32, "angle");
  kernels(context).rope({context.stream}, qkv, position, angle, heads, direction);
}

void attention(Context& context, const Tensor& qkv, const Documents& documents, const Heads& heads,
               const Tensor& out, const Tensor& log_sum_exp) {
  check_heads(heads);
  check_documents(documents);
  check_activation(qkv, "qkv");
  check_rows(qkv, out.rows(), heads.row(), "qkv");
  check_matrix(out, qkv.rows(), heads.query * heads.size, qkv.dtype, "out");
  check_float(log_sum_exp, qkv.rows() * heads.query, "log_sum_exp");
  const Workspace workspace(context, workspace_bytes(context).attention(qkv.rows(), heads, qkv.dtype));
  kernels(context).attention(workspace.call, qkv, documents, heads, out, log_sum_exp);
}

void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Documents& documents, const Heads& heads,
                        const Tensor& dqkv) {
  check_heads(heads);
  check_documents(documents);
  check_activation(qkv, "qkv");
  for (const Tensor* t : {&dout, &out})
    check_matrix(*t, qkv.rows(), heads.query * heads.size, qkv.dtype, "dout or out");
  for (const Tensor* t : {&qkv, &dqkv}) check_matrix(*t, out.rows(), heads.row(), qkv.dtype, "qkv or dqkv");
  check_float(log_sum_exp, qkv.rows() * heads.query, "log_sum_exp");
  const Workspace workspace(
      context, workspace_bytes(context).attention_backward(qkv.rows(), documents.longest, heads, qkv.dtype,
                                                           context.device().deterministic));
  kernels(context).attention_backward(workspace.call, dout, qkv, out, log_sum_exp, documents, heads, dqkv);
}

int64_t prepare_attention(const Stream& stream, const AttentionSizes& sizes, Direction direction) {
  check_heads(sizes.heads);
  return kernels(stream.device().kind).prepare_attention(stream, sizes, direction);
}

void store_key_value(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                     const Heads& heads, const Tensor& cache) {
  check_cache(qkv, slot, position, heads, cache);
  kernels(context).store_key_value({context.stream}, qkv, slot, position, heads, cache);
}

void attention_cached(Context& context, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                      const Tensor& cache, const Heads& heads, const CachedTail& tail, const Tensor& out) {
  check_cache(qkv, slot, position, heads, cache);
  if (!tail.empty()) {
    check_index(tail.first, qkv.rows(), "tail.first");
    check_dtype(tail.place, DType::kInt32, "tail.place");
    RIPSTOP_CHECK(tail.place.shape.dims() == 2 && tail.place.rows() == qkv.rows(),
                  "tail.place has {} rows, expected {}", tail.place.rows(), qkv.rows());
  }
  check_matrix(out, qkv.rows(), heads.query * heads.size, qkv.dtype, "out");
  const Workspace workspace(context, workspace_bytes(context).attention_cached(heads));
  kernels(context).attention_cached(workspace.call, qkv, slot, position, cache, heads, tail, out);
}

void swiglu(Context& context, const Tensor& gate_up, const Tensor& out) {
  check_activation(out, "out");
  check_matrix(gate_up, out.rows(), 2 * out.cols(), out.dtype, "gate_up");
  kernels(context).swiglu({context.stream}, gate_up, out);
}

void swiglu_backward(Context& context, const Tensor& gate_up, const Tensor& dout) {
  check_activation(dout, "dout");
  check_matrix(gate_up, dout.rows(), 2 * dout.cols(), dout.dtype, "gate_up");
  kernels(context).swiglu_backward({context.stream}, gate_up, dout);
}

void embedding(Context& context, const Tensor& token, const Tensor& table, int64_t first_id,
               const Tensor& out) {
  check_activation(out, "out");
  check_index(token, out.rows(), "token");
  check_matrix(table, table.rows(), out.cols(), out.dtype, "table");
  kernels(context).embedding({context.stream}, token, table, first_id, out);
}

void embedding_backward(Context& context, const Tensor& token, const Tensor& token_order, const Tensor& dout,
                        int64_t first_id, const Tensor& dtable, Accumulate accumulate) {
  check_activation(dout, "dout");
  check_index(token, dout.rows(), "token");
  check_index(token_order, dout.rows(), "token_order");
  check_matrix(dtable, dtable.rows(), dout.cols(), DType::kFloat32, "dtable");
  kernels(context).embedding_backward({context.stream}, token, token_order, dout, first_id, dtable,
                                      accumulate);
}

void gather_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out) {
  check_index(index, out.rows(), "index");
  check_matrix(x, x.rows(), out.cols(), out.dtype, "x");
  kernels(context).gather_rows({context.stream}, x, index, out);
}

void scatter_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out) {
  check_index(index, x.rows(), "index");
  check_matrix(out, out.rows(), x.cols(), x.dtype, "out");
  kernels(context).scatter_rows({context.stream}, x, index, out);
}

void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& target,
                              const VocabularySlice& slice, const Tensor& statistics) {
  check_dtype(logits, DType::kFloat32, "logits");
  check_slice(slice, logits.cols());
  check_index(target, logits.rows(), "target");
  check_float(statistics, 3 * logits.rows(), "statistics");
  kernels(context).cross_entropy_statistics({context.stream}, logits, target, slice, statistics);
}

void cross_entropy(Context& context, const Tensor& logits, const Tensor& target, const Tensor& all,
                   const VocabularySlice& slice, const Tensor& loss, const Tensor& dlogits) {
  check_dtype(logits, DType::kFloat32, "logits");
  check_slice(slice, logits.cols());
  check_index(target, logits.rows(), "target");
  check_dtype(all, DType::kFloat32, "statistics");
  RIPSTOP_CHECK(all.shape.dims() == 3 && all.shape[1] >= logits.rows() && all.shape[2] == 3,
                "statistics of {} rows x {}, expected at least {} x 3", all.shape[1], all.shape[2],
                logits.rows());
  check_float(loss, logits.rows(), "loss");
  if (!dlogits.empty()) {
    check_activation(dlogits, "dlogits");
    check_rows(dlogits, logits.rows(), logits.cols(), "dlogits");
  }
  kernels(context).cross_entropy({context.stream}, logits, target, all, slice, loss, dlogits);
}

void argmax_rows(Context& context, const Tensor& logits, const VocabularySlice& slice, const Tensor& value,
                 const Tensor& id) {
  check_dtype(logits, DType::kFloat32, "logits");
  check_slice(slice, logits.cols());
  check_float(value, logits.rows(), "value");
  check_index(id, logits.rows(), "id");
  kernels(context).argmax_rows({context.stream}, logits, slice, value, id);
}

void add_sum(Context& context, const Tensor& x, const Tensor& total) {
  RIPSTOP_CHECK(x.dtype == DType::kFloat32 || x.dtype == DType::kFloat64,
                "x is {}, expected float32 or float64", to_string(x.dtype));
  check_count(total, 1, DType::kFloat64, "total");
  const Workspace workspace(context, workspace_bytes(context).add_sum(x.count()));
  kernels(context).add_sum(workspace.call, x, total);
}

void add_squared_norm(Context& context, const Tensor& x, const Tensor& total) {
  check_dtype(x, DType::kFloat32, "x");
  check_count(total, 1, DType::kFloat64, "total");
  const Workspace workspace(context, workspace_bytes(context).add_sum(x.count()));
  kernels(context).add_squared_norm(workspace.call, x, total);
}

void add_squared_norm(const Stream& stream, const Tensor& x, const Tensor& total, const Tensor& workspace) {
  check_dtype(x, DType::kFloat32, "x");
  check_count(total, 1, DType::kFloat64, "total");
  const int64_t needed = squared_norm_workspace_bytes(stream.device(), x.count());
  RIPSTOP_CHECK(workspace.bytes() >= needed, "workspace of {} bytes, {} needed", workspace.bytes(), needed);
  kernels(stream, stream.device().kind).add_squared_norm({stream, workspace.data}, x, total);
}

int64_t squared_norm_workspace_bytes(const Device& device, int64_t count) {
  return workspaces(device.planned).add_sum(count);
}

void fill_zero(Context& context, const Tensor& x) {
  // Here and below: x may be an empty shard.
  if (x.count() > 0) kernels(context).fill_zero({context.stream}, x);
}

void convert(Context& context, const Tensor& x, const Tensor& y) {
  check_activation(x, "x");
  check_activation(y, "y");
  check_count(y, x.count(), y.dtype, "y");
  if (x.count() > 0) kernels(context).convert({context.stream}, x, y);
}

void add(Context& context, const Tensor& x, const Tensor& y) {
  check_float(x, y.count(), "x");
  check_float(y, x.count(), "y");
  if (x.count() > 0) kernels(context).add({context.stream}, x, y);
}

void scale(Context& context, double factor, const Tensor& x) {
  check_activation(x, "x");
  if (x.count() > 0) kernels(context).scale({context.stream}, factor, x);
}

void dropout(Context& context, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  check_dropout(x, bits, y);
  if (x.count() > 0) kernels(context).dropout({context.stream}, x, bits, y);
}

void add_dropout(Context& context, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  check_dropout(x, bits, y);
  if (x.count() > 0) kernels(context).add_dropout({context.stream}, x, bits, y);
}

void reduce_pieces(const Stream& stream, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Accumulate accumulate) {
  RIPSTOP_CHECK(!pieces.empty(), "nothing to reduce into {} elements", out.count());
  for (const RankPiece& piece : pieces)
    RIPSTOP_CHECK(
        piece.dtype == out.dtype || (piece.dtype == DType::kBFloat16 && out.dtype == DType::kFloat32),
        "cannot reduce {} into {}", to_string(piece.dtype), to_string(out.dtype));
  if (out.count() == 0) return;
  const ProfilerRange range(stream, "sum of pieces");
  kernels(stream, out.device.kind).reduce_pieces({stream}, pieces, out, accumulate);
}

void gradient_scale(Context& context, const Tensor& global, double max_norm, const Tensor& scale) {
  check_count(global, 3, DType::kFloat64, "global");
  check_float(scale, 2, "scale");
  kernels(context).gradient_scale({context.stream}, global, max_norm, scale);
}

AdamWFactors::AdamWFactors(const AdamWStep& s)
    : keep(static_cast<float>(1 - s.learning_rate * s.weight_decay)),
      one_minus_beta1(static_cast<float>(1 - s.beta1)),
      beta2(static_cast<float>(s.beta2)),
      one_minus_beta2(static_cast<float>(1 - s.beta2)),
      step_size(static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, static_cast<double>(s.step))))),
      inverse_root(static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, static_cast<double>(s.step))))),
      epsilon(static_cast<float>(s.epsilon)) {}

void adamw(Context& context, const AdamWStep& step, const Tensor& scale, const Tensor& gradient,
           const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy) {
  check_float(scale, 2, "scale");
  for (const Tensor* t : {&gradient, &master}) check_float(*t, master.count(), "a shard");
  check_activation(first, "a moment");
  for (const Tensor* t : {&first, &second}) check_count(*t, master.count(), first.dtype, "a moment");
  const MomentBits& bits = step.bits;
  RIPSTOP_CHECK(bits.origin >= 0 && bits.begin >= 0 && bits.stride >= 1 && bits.columns >= 1,
                "place {} of rows of {} from logical element {} on, of rows of {}", bits.begin, bits.stride,
                bits.origin, bits.columns);
  if (!copy.empty()) {
    check_activation(copy, "copy");
    check_count(copy, master.count(), copy.dtype, "copy");
  }
  if (master.count() > 0)
    kernels(context).adamw({context.stream}, step, scale, gradient, master, first, second, copy);
}

}  // namespace ripstop
