#include "model/embedding.h"

namespace ripstop {

void Embedding::forward(Context& context, const Tensor& token, const Tensor& out) const {
  const ProfilerRange range(context.stream, "embedding forward");
  const int64_t first_id = context.tensor.index() * table.value.rows();
  context.tensor.scatter_sum(context, out, [&](const Tensor& partial, int64_t first) {
    embedding(context, token.row_range(first, partial.rows()), table.value, first_id, partial);
  });
}

void Embedding::backward(Context& context, const Batch& batch, const Tensor& dresidual) const {
  if (table.gradient.empty()) return;  // the table is frozen
  const ProfilerRange range(context.stream, "embedding backward");
  Frame scratch(context.arena);
  // Rows of other ranks may also have tokens of this rank's slice.
  const Tensor dout = gather_sequence(context, dresidual);
  const int64_t first_id = context.tensor.index() * table.gradient.rows();
  embedding_backward(context, batch.token, batch.token_order, dout, first_id, table.gradient,
                     table.accumulate);
}

}  // namespace ripstop
