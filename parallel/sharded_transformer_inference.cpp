#include "parallel/sharded_transformer.h"

namespace ripstop {

// Runs the layers and the head. All blocks use the same Saved.
void ShardedTransformer::forward_only(Context& context, const Tensor& token, BlockBody block, HeadBody head) {
  RIPSTOP_CHECK(mesh_.sizes().pipeline == 1, "a pipeline scores no tokens");
  begin_program(1, /*training=*/false, /*visit=*/0);
  Frame pass(context.arena);
  const int64_t rows = token.count();
  Residual residual{.branch = context.arena.allocate(options_.compute,
                                                     {context.tensor.local_rows(rows), config_.hidden_size})};
  const Block::Saved saved = model_.blocks.front().allocate(context, rows, options_.compute);
  through_layers(context, stages_.front(), token, residual.branch,
                 [&](size_t layer) { block(layer, residual, saved); });
  enter(head_unit());
  head(residual, model_.head.allocate(context, rows, options_.compute));
  leave();
}

void ShardedTransformer::logits(Arena& arena, const Batch& batch, const Tensor& logits) {
  Context context = this->context(arena);
  forward_only(
      context, batch.token,
      [&](size_t layer, Residual& residual, const Block::Saved& saved) {
        model_.blocks[layer].forward(context, batch, model_.angle(), residual, saved);
      },
      [&](Residual& residual, const HeadLoss::Saved& saved) {
        model_.head.logits(context, model_.output(), residual, saved, Tensor{}, logits);
      });
}

void ShardedTransformer::prefill(Arena& arena, const Batch& batch, KeyValueCache& cache, const Tensor& slot,
                                 const Tensor& row, const NextTokenScores& scores) {
  Context context = this->context(arena);
  forward_only(
      context, batch.token,
      [&](size_t layer, Residual& residual, const Block::Saved& saved) {
        const CacheRows store{cache.layer(static_cast<int64_t>(layer)), slot, batch.position, batch.position};
        model_.blocks[layer].forward(context, batch, model_.angle(), residual, saved, &store);
      },
      [&](Residual& residual, const HeadLoss::Saved& saved) {
        model_.head.predict(context, model_.output(), residual, saved, row, scores);
      });
}

void ShardedTransformer::decode(Arena& arena, const Tensor& token, KeyValueCache& cache,
                                const CacheRows& rows, const NextTokenScores& scores) {
  Context context = this->context(arena);
  forward_only(
      context, token,
      [&](size_t layer, Residual& residual, const Block::Saved& saved) {
        CacheRows of_layer = rows;
        of_layer.cache = cache.layer(static_cast<int64_t>(layer));
        model_.blocks[layer].decode(context, of_layer, model_.angle(), residual, saved);
      },
      [&](Residual& residual, const HeadLoss::Saved& saved) {
        model_.head.predict(context, model_.output(), residual, saved, Tensor{}, scores);
      });
}

}  // namespace ripstop
