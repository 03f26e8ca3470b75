#include "parallel/sharded_transformer.h"

namespace ripstop {

// One micro-batch, forward and backward. A unit is whole only while its layer computes: `enter` waits for its
// weights and starts to gather the next unit, `leave` frees the weights unless one of the next two visits
// uses the unit, and `reduce_gradients` starts to sum the gradient over the fsdp axis. Gathers and sums run
// while layers compute. A layer's backward recomputes what its forward did not keep.
void ShardedTransformer::forward_backward(Arena& arena, const Batch& batch, bool last, const Tensor& total) {
  Context context = this->context(arena, &batch.place);
  const Visits visits = training_visits();
  const size_t layers = model_.blocks.size(), top = layers + 1;
  Frame pass(arena);
  const int64_t rows = batch.rows();
  Residual residual = allocate_residual(context, context.tensor.local_rows(rows), config_.hidden_size,
                                        options_.compute, options_.recompute);
  std::vector<Frame> frames;
  std::vector<Block::Saved> saved;

  enter(visits, 0);
  model_.embedding.forward(context, batch.token, residual.branch);  // begins the residual stream
  leave(visits, 0);

  for (size_t layer = 0; layer < layers; ++layer) {
    enter(visits, layer + 1);
    frames.emplace_back(arena);  // holds what this layer keeps for its backward
    saved.push_back(model_.blocks[layer].allocate(context, rows, options_.compute, options_.recompute));
    model_.blocks[layer].forward(context, batch, model_.angle(), residual, saved[layer]);
    leave(visits, layer + 1);
  }

  // The head runs forward and backward at once, so its logits need not stay. The branch is the last input
  // that it reads, so the memory of the branch then takes the gradient of the residual stream.
  const Tensor dresidual = residual.branch;
  enter(visits, top);
  {
    Frame frame(arena);
    const HeadLoss::Saved head = model_.head.allocate(context, rows, options_.compute);
    begin_gradients(context, visits[top]);
    model_.head.forward_backward(context, batch, model_.output(), residual, head, total, dresidual);
  }
  leave(visits, top);
  reduce_gradients(visits[top], last && visits[top] != visits.back());  // a tied table is reduced again below

  for (size_t layer = layers; layer-- > 0;) {
    const size_t visit = 2 * top - (layer + 1);
    enter(visits, visit);
    begin_gradients(context, visits[visit]);
    model_.blocks[layer].backward(context, batch, model_.angle(), saved[layer], dresidual, below(layer));
    frames.pop_back();  // frees this layer's activations for the backward below
    leave(visits, visit);
    reduce_gradients(visits[visit], last);
  }

  begin_gradients(context, visits.back());  // no weights are gathered: this gradient does not depend on them
  model_.embedding.backward(context, batch, dresidual);
  reduce_gradients(visits.back(), last);
  finish_reductions();
}

// The unit "vocabulary", which has a tied table, is visited first and last.
ShardedTransformer::Visits ShardedTransformer::forward_visits() const {
  Visits visits;
  const size_t units = is_frozen() ? first_trained_ : table_.size();
  for (size_t unit = 0; unit < units; ++unit) visits.units.push_back(unit);
  if (config_.tie_word_embeddings) visits.units.push_back(0);
  visits.with_weights = visits.units.size();
  return visits;
}

ShardedTransformer::Visits ShardedTransformer::training_visits() const {
  Visits visits = forward_visits();
  for (size_t unit = model_.blocks.size() + 1; unit-- > 0;) visits.units.push_back(unit);
  visits.with_weights = visits.units.size() - 1;
  return visits;
}

// The unit with the adapters of `unit`, if `unit` is a layer (number 1, 2, ... of parameter_table).
std::optional<size_t> ShardedTransformer::adapters_of(size_t unit) const {
  if (!is_frozen() || unit == 0 || unit > model_.blocks.size()) return std::nullopt;
  return first_trained_ + unit - 1;
}

// The unit whose gradients a visit of `unit` writes, if any.
std::optional<size_t> ShardedTransformer::trained_of(size_t unit) const {
  return is_frozen() ? adapters_of(unit) : unit;
}

template <class Body>
void ShardedTransformer::each_unit(size_t unit, Body body) {
  body(units_[unit]);
  if (const auto adapters = adapters_of(unit)) body(units_[*adapters]);
}

// Returns a name for profilers, such as "layers.3 backward".
std::string ShardedTransformer::visit_name(const Visits& visits, size_t visit) const {
  const size_t head = model_.blocks.size() + 1;
  const char* pass = visit < head || visits.units.size() == visits.with_weights ? " forward"
                     : visit > head                                             ? " backward"
                                                                                : " forward and backward";
  return table_[visits[visit]].name + pass;
}

void ShardedTransformer::enter(const Visits& visits, size_t visit) {
  visit_range_.emplace(stream_, visit_name(visits, visit));
  poll();
  const auto unshard = [](FsdpUnit& unit) { unit.unshard(); };
  each_unit(visits[visit], unshard);
  // Start the next gather before this wait, so that it runs while this layer computes.
  if (visit + 1 < visits.with_weights) each_unit(visits[visit + 1], unshard);
  each_unit(visits[visit], [](FsdpUnit& unit) { unit.wait(); });
}

// Frees the weights of a unit, unless one of the next two visits uses the unit, such as the last block: only
// the head comes between its forward and its backward.
void ShardedTransformer::leave(const Visits& visits, size_t visit) {
  visit_range_.reset();
  poll();
  for (size_t soon = visit + 1; soon <= visit + 2 && soon < visits.with_weights; ++soon)
    if (visits[soon] == visits[visit]) return;
  each_unit(visits[visit], [](FsdpUnit& unit) { unit.reshard(); });
}

void ShardedTransformer::begin_gradients(Context& context, size_t unit) {
  if (const auto trained = trained_of(unit)) units_[*trained].begin_gradients(context);
}

void ShardedTransformer::reduce_gradients(size_t visited, bool last) {
  const auto trained = trained_of(visited);
  if (!trained) return;
  const size_t unit = *trained;
  const ProfilerRange range(stream_, table_[unit].name + " reduce");
  finish_reduction();
  units_[unit].start_reduce();
  // The reduction ends later, because it runs while the next layer's backward computes.
  reduction_ = {.open = true, .unit = unit, .sum_is_due = last};
  const bool waits = mesh_.sizes().fsdp > 1 && mesh_.sizes().replicate > 1;
  if (!waits && units_[unit].sum_may_follow()) start_sum();
}

// NCCL begins collectives in the order of the host's calls. A sum that waits for its reduction would hold
// back later gathers, so start_sum() comes here, after the gathers of the next visit.
void ShardedTransformer::finish_reduction() {
  if (!reduction_.open) return;
  // Before finish_reduce(), so that the sum waits only for the reduction, not for the whole stream.
  if (units_[reduction_.unit].sum_may_follow()) start_sum();
  units_[reduction_.unit].finish_reduce();
  start_sum();
  reduction_.open = false;
}

// Starts the sum over the replicas. There is one sum a step, because links between replicas are the slowest.
// The sum runs while lower layers compute. On the host a sum holds a slot of scratch, so the oldest sum may
// have to finish first. The norm of a shard is computed after its sum.
void ShardedTransformer::start_sum() {
  if (!reduction_.sum_is_due) return;
  reduction_.sum_is_due = false;
  while (sum_slots_ != nullptr && std::ssize(summing_) >= kUnitSlots) finish_oldest_sum();
  FsdpUnit& unit = units_[reduction_.unit];
  unit.start_sum();
  if (unit.completes_on() != nullptr) start_norm(reduction_.unit);
  summing_.push_back(reduction_.unit);
}

void ShardedTransformer::finish_oldest_sum() {
  FsdpUnit& unit = units_[summing_.front()];
  const bool on_host = unit.completes_on() == nullptr;
  unit.finish_sum();
  if (on_host) start_norm(summing_.front());
  summing_.pop_front();
}

void ShardedTransformer::finish_reductions() {
  finish_reduction();
  while (!summing_.empty()) finish_oldest_sum();
}

// Starts the norm of all elements but the replicated ones, which finish_gradients() adds.
void ShardedTransformer::start_norm(size_t unit) {
  // Replicas hold equal gradients, so only the first one counts.
  if (mesh_.replicate().rank() != 0) return;
  const Tensor& gradient = units_[unit].gradient();
  const int64_t alike = units_[unit].replicated_in_shard();
  if (alike < gradient.count())
    norm_->start(unit - first_trained_, gradient.row_range(alike, gradient.count() - alike),
                 *units_[unit].completes_on());
}

// Back ends on the host need calls to make progress.
void ShardedTransformer::poll() {
  if (reduction_.open) units_[reduction_.unit].poll();
  for (const size_t unit : summing_) units_[unit].poll();
}

void ShardedTransformer::finish_gradients(Arena& arena, const Tensor& total) {
  Context context = this->context(arena);
  Frame frame(arena);
  sum_replicated(context);
  if (mesh_.replicate().rank() != 0) return;
  const std::span<FsdpUnit> units = trained_units();
  for (size_t u = 0; u < units.size() && context.tensor.index() == 0; ++u)
    if (const int64_t alike = units[u].replicated_in_shard(); alike > 0)
      norm_->take_replicated(context, u, units[u].gradient().row_range(0, alike));
  norm_->finish(context, total);
}

// Sums the gradients of replicated parameters over the tensor axis, because each rank has seen only its own
// rows or columns. One all-reduce for all units takes less time than one for each unit.
void ShardedTransformer::sum_replicated(Context& context) {
  int64_t count = 0;
  for (const FsdpUnit& unit : trained_units()) count += unit.replicated_in_shard();
  if (context.tensor.count() == 1 || count == 0) return;
  const Tensor packed = context.arena.allocate(DType::kFloat32, {count}, MemoryCategory::kCommunication);
  const auto each = [&](auto&& copy) {
    int64_t at = 0;
    for (const FsdpUnit& unit : trained_units()) {
      const int64_t n = unit.replicated_in_shard();
      copy(packed.row_range(at, n), unit.gradient().row_range(0, n));
      at += n;
    }
  };
  each([&](const Tensor& to, const Tensor& from) { convert(context, from, to); });
  const int64_t bytes = mesh_.tensor().all_reduce_scratch_bytes(count, DType::kFloat32);
  const Tensor scratch =
      context.arena.allocate(DType::kInt32, {(bytes + 3) / 4}, MemoryCategory::kCommunication);
  mesh_.tensor().all_reduce(stream_, packed, Reduce::kSum, scratch);
  each([&](const Tensor& from, const Tensor& to) { convert(context, from, to); });
}

// Runs forward without a later backward, so all blocks use the same Saved.
void ShardedTransformer::forward_only(Context& context, const Tensor& token, BlockBody block, HeadBody head) {
  const Visits visits = forward_visits();
  Frame pass(context.arena);
  const int64_t rows = token.count();
  Residual residual = allocate_residual(context, context.tensor.local_rows(rows), config_.hidden_size,
                                        options_.compute, Recompute::kNone);
  const Block::Saved saved = model_.blocks.front().allocate(context, rows, options_.compute);

  enter(visits, 0);
  model_.embedding.forward(context, token, residual.branch);
  leave(visits, 0);
  for (size_t layer = 0; layer < model_.blocks.size(); ++layer) {
    enter(visits, layer + 1);
    block(layer, residual, saved);
    leave(visits, layer + 1);
  }
  enter(visits, visits.units.size() - 1);
  head(residual, model_.head.allocate(context, rows, options_.compute));
  leave(visits, visits.units.size() - 1);
}

void ShardedTransformer::forward_batch(Context& context, const Batch& batch, HeadBody head) {
  const auto block = [&](size_t layer, Residual& residual, const Block::Saved& saved) {
    model_.blocks[layer].forward(context, batch, model_.angle(), residual, saved);
  };
  forward_only(context, batch.token, block, head);
}

void ShardedTransformer::evaluate(Arena& arena, const Batch& batch, const Tensor& total) {
  Context context = this->context(arena);
  forward_batch(context, batch, [&](Residual& residual, const HeadLoss::Saved& saved) {
    model_.head.forward(context, batch, model_.output(), residual, saved, total);
  });
}

void ShardedTransformer::logits(Arena& arena, const Batch& batch, const Tensor& logits) {
  Context context = this->context(arena);
  forward_batch(context, batch, [&](Residual& residual, const HeadLoss::Saved& saved) {
    model_.head.logits(context, model_.output(), residual, saved, Tensor{}, logits);
  });
}

int64_t ShardedTransformer::prepare_attention(int64_t documents, int64_t longest, bool backward) const {
  const AttentionSizes sizes{.rows = options_.sequence_count * options_.sequence_length,
                             .documents = documents,
                             .longest = longest,
                             .heads = model_.blocks.front().attention.heads(),
                             .dtype = options_.compute};
  return ripstop::prepare_attention(stream_, sizes, Direction::kForward) +
         (backward ? ripstop::prepare_attention(stream_, sizes, Direction::kBackward) : 0);
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
