#include "parallel/sharded_transformer.h"

#include <algorithm>
#include <utility>

namespace ripstop {

// One step: the forward and the backward of each micro-batch in each of this rank's stages, in the order of
// the pipeline's clock; `links` moves what is between the stages. Without a pipeline, there is one stage of
// all layers, and each backward follows its forward.
bool ShardedTransformer::run(Arena& arena, const StepBatches& batches, const Tensor& total) {
  Frame step(arena);
  Context context = this->context(arena);
  Pass pass = begin_pass(context, batches, /*training=*/true);
  for (FsdpUnit& unit : units_) unit.begin_step();  // the first gradient overwrites the last step's
  int64_t count = batches.count;
  pass.links.run(program_, [&](const PipelineAction& action) {
    const ProfilerRange range(stream_, fmt::format("micro-batch {}", action.micro_batch));
    InFlight& micro = in_flight(pass, batches, action);
    if (action.direction == Direction::kForward) return forward(arena, micro, pass.links, /*drops=*/true);
    const int64_t done = action.micro_batch + 1;
    const bool last = done == batches.count;
    backward(arena, micro, pass.links, last, total);
    // The backward in the rank's first stage is the last one of a micro-batch.
    if (action.chunk == 0 && !last && count == batches.count && batches.gives_up(done))
      count = shorten(done, count);
  });
  const bool is_whole = count == batches.count;
  finish_reductions(is_whole);
  pass.links.finish();
  mesh_.set_micro_batch();
  return is_whole;
}

// A unit is whole only while its layer computes: `enter` waits for its weights and starts to gather the unit
// of the next visit, `leave` frees the weights unless one of the next two visits uses the unit, and
// `reduce_gradients` starts to sum the gradient over the fsdp axis. Gathers and sums run beside layers.
void ShardedTransformer::forward(Arena& arena, InFlight& micro, PipelineLinks& links, bool drops) {
  Context context = this->context(arena, drops ? &micro.batch.place : nullptr);
  micro.boundary = micro.stage->is_first ? links.take() : links.arrived(Direction::kForward);
  Residual& residual = micro.residual;
  residual.branch = links[micro.boundary];
  residual.sum = {};
  through_layers(context, *micro.stage, micro.batch.token, residual.branch, [&](size_t layer) {
    model_.blocks[layer].forward(context, micro.batch, model_.angle(), residual,
                                 micro.saved[layer - micro.stage->begin()]);
  });
  if (micro.stage->is_last) return;
  // The next stage begins with the whole stream, rounded once, as a norm would round it.
  const Tensor &sum = residual.sum, &branch = residual.branch;
  reduce_pieces(stream_, {{sum.data, sum.dtype}, {branch.data, branch.dtype}}, branch, Accumulate::kNo);
  links.put(Direction::kForward, micro.boundary);
}

void ShardedTransformer::through_layers(Context& context, const Stage& stage, const Tensor& token,
                                        const Tensor& branch, FunctionRef<void(size_t layer)> block) {
  if (stage.is_first) {
    enter(0);
    model_.embedding.forward(context, token, branch);  // begins the residual stream
    leave();
  }
  for (size_t layer = stage.begin(); layer < stage.end(); ++layer) {
    enter(layer + 1);
    block(layer);
    leave();
  }
}

// A layer's backward recomputes what its forward did not keep. The head runs forward and backward at once,
// so its logits need not stay. The branch is the last input that it reads, so the memory of the branch then
// takes the gradient of the residual stream.
void ShardedTransformer::backward(Arena& arena, InFlight& micro, PipelineLinks& links, bool last,
                                  const Tensor& total) {
  Context context = this->context(arena, &micro.batch.place);
  const Stage& stage = *std::exchange(micro.stage, nullptr);
  if (!stage.is_last) micro.boundary = links.arrived(Direction::kBackward);
  const Tensor dresidual = links[micro.boundary];
  if (stage.is_last) {
    enter(head_unit());
    {
      Frame frame(arena);
      const HeadLoss::Saved head = model_.head.allocate(context, micro.batch.rows(), options_.compute);
      begin_gradients(context, head_unit());
      model_.head.forward_backward(context, micro.batch, model_.output(), micro.residual, head, total,
                                   dresidual);
    }
    leave();
    // A tied table is reduced again below, if the embedding is here, too.
    reduce_gradients(head_unit(), last && !(stage.is_first && head_unit() == 0));
  }
  for (size_t layer = stage.end(); layer-- > stage.begin();) {
    enter(layer + 1);
    begin_gradients(context, layer + 1);
    model_.blocks[layer].backward(context, micro.batch, model_.angle(), micro.saved[layer - stage.begin()],
                                  dresidual, below(layer));
    leave();
    reduce_gradients(layer + 1, last);
  }
  if (!stage.is_first) return links.put(Direction::kBackward, micro.boundary);
  begin_gradients(context, 0);  // no weights are gathered: this gradient does not depend on them
  model_.embedding.backward(context, micro.batch, dresidual);
  reduce_gradients(0, last);
  links.give_back(micro.boundary);
}

// Forwards alone, one after another, so all blocks and micro-batches use the same Saved.
void ShardedTransformer::evaluate(Arena& arena, const StepBatches& batches, const Tensor& total) {
  Frame frame(arena);
  Context context = this->context(arena);
  Pass pass = begin_pass(context, batches, /*training=*/false);
  const HeadLoss::Saved head =
      has_head() ? model_.head.allocate(context, batches.rows, options_.compute) : HeadLoss::Saved{};
  pass.links.run(program_, [&](const PipelineAction& action) {
    InFlight& micro = in_flight(pass, batches, action);
    forward(arena, micro, pass.links, /*drops=*/false);
    if (!std::exchange(micro.stage, nullptr)->is_last) return;
    enter(head_unit());
    model_.head.forward(context, micro.batch, model_.output(), micro.residual, head, total);
    leave();
    pass.links.give_back(micro.boundary);
  });
  pass.links.finish();
  mesh_.set_micro_batch();
}

int64_t ShardedTransformer::most_batches() const {
  const PipelineSizes many = pipeline_sizes(mesh_.sizes(), options_, 2 * mesh_.sizes().pipeline);
  std::vector<PipelineAction> actions = pipeline_actions(many, mesh_.coordinates().pipeline);
  std::erase_if(actions, [](const PipelineAction& action) { return action.chunk > 0; });
  return most_in_flight(actions);
}

ShardedTransformer::Pass ShardedTransformer::begin_pass(Context& context, const StepBatches& batches,
                                                        bool training) {
  const int64_t rank = mesh_.coordinates().pipeline, rows = context.tensor.local_rows(batches.rows);
  begin_program(batches.count, training, /*visit=*/0);
  const Recompute recompute = training ? options_.recompute : Recompute::kNone;
  const Shape stream{rows, config_.hidden_size};
  Pass pass{.links = PipelineLinks(context, mesh_, stream, options_.compute)};
  pass.batches.resize(static_cast<size_t>(most_batches()));
  Residual residual;
  if (recompute == Recompute::kFull) residual.shared_sum = context.arena.allocate(options_.compute, stream);
  const auto allocate = [&] {
    return model_.blocks[stages_.front().begin()].allocate(context, batches.rows, options_.compute,
                                                           recompute);
  };
  const int64_t slots = training ? most_in_flight(pipeline_actions(program_sizes_, rank)) : 1;
  const int64_t layers = std::ranges::max_element(stages_, {}, &Stage::layers)->layers;
  for (int64_t slot = 0; slot < slots; ++slot) {
    InFlight& micro = pass.in_flight.emplace_back(InFlight{.residual = residual});
    while (std::ssize(micro.saved) < layers)
      micro.saved.push_back(training || micro.saved.empty() ? allocate() : micro.saved.front());
  }
  return pass;
}

// Cuts a step of `micro_batches` to shortest_step() micro-batches, if these are fewer. Returns the new number
// of micro-batches. Without a pipeline, units that are gathered ahead stay for the next step, which begins
// with the same units.
int64_t ShardedTransformer::shorten(int64_t done, int64_t micro_batches) {
  const int64_t fewer = shortest_step(mesh_.sizes().pipeline, done);
  if (fewer >= micro_batches) return micro_batches;
  begin_program(fewer, /*training=*/true, visit_);
  return fewer;
}

// Returns the entry of `pass.in_flight` for an action. A forward takes a free entry and puts its batch there,
// which the first stage of the rank loads.
ShardedTransformer::InFlight& ShardedTransformer::in_flight(Pass& pass, const StepBatches& batches,
                                                            const PipelineAction& action) {
  const Stage& stage = stages_[static_cast<size_t>(action.chunk)];
  const bool begins = action.direction == Direction::kForward;
  mesh_.set_micro_batch(stage.number, action.micro_batch);
  const auto slot = std::ranges::find_if(pass.in_flight, [&](const InFlight& each) {
    return begins ? each.stage == nullptr : each.stage == &stage && each.micro_batch == action.micro_batch;
  });
  RIPSTOP_CHECK(slot != pass.in_flight.end(), "no slot for micro-batch {}", action.micro_batch);
  if (!begins) return *slot;
  Batch& batch = pass.batches[static_cast<size_t>(action.micro_batch) % pass.batches.size()];
  if (action.chunk == 0) batch = batches.load(action.micro_batch);
  slot->stage = &stage;
  slot->micro_batch = action.micro_batch;
  slot->batch = batch;
  return *slot;
}

// Switches to the program for this number of micro-batches, whose first `visit` visits have ended. The next
// pass keeps the program if its sizes are the same.
void ShardedTransformer::begin_program(int64_t micro_batches, bool training, size_t visit) {
  PipelineSizes sizes = pipeline_sizes(mesh_.sizes(), options_, micro_batches);
  sizes.backward = training;
  if (program_.empty() || sizes != program_sizes_)
    program_ = pipeline_program(sizes, mesh_.coordinates().pipeline);
  program_sizes_ = sizes;
  visit_ = visit;
  list_visits();
}

// The unit "vocabulary", which has a tied table, is visited by the embedding and by the head.
void ShardedTransformer::list_visits() {
  using Kind = PipelineOperation::Kind;
  visits_.clear();
  const bool trains = program_sizes_.backward;
  const Kind turn = trains ? Kind::kBackward : Kind::kForward;
  for (const PipelineOperation& each : program_) {
    const Stage& stage = stages_[static_cast<size_t>(each.action.chunk)];
    if (each.kind == Kind::kForward && stage.is_first) visits_.push_back({0, " forward"});
    for (size_t layer = stage.begin(); each.kind == Kind::kForward && layer < stage.end(); ++layer)
      visits_.push_back({layer + 1, " forward"});
    if (each.kind == turn && stage.is_last)
      visits_.push_back({head_unit(), trains ? " forward and backward" : " forward"});
    for (size_t layer = stage.end(); each.kind == Kind::kBackward && layer-- > stage.begin();)
      visits_.push_back({layer + 1, " backward"});
  }
}

// The unit with the adapters of `unit`, if there are adapters and `unit` is a layer (1, 2, ... in the table).
std::optional<size_t> ShardedTransformer::adapters_of(size_t unit) const {
  if (!is_frozen() || unit == 0 || unit > model_.blocks.size()) return std::nullopt;
  return model_.blocks.size() + (config_.tie_word_embeddings ? 1 : 2) + unit - 1;
}

template <class Body>
void ShardedTransformer::each_unit(size_t unit, Body body) {
  body(unit_at(unit));
  if (const auto adapters = adapters_of(unit)) body(unit_at(*adapters));
}

void ShardedTransformer::enter(size_t unit) {
  RIPSTOP_CHECK(visit_ < visits_.size() && visits_[visit_].unit == unit, "visit {} is not of {}", visit_,
                whole_table_[unit].name);
  visit_range_.emplace(stream_, whole_table_[unit].name + visits_[visit_].pass);
  poll();
  const auto unshard = [](FsdpUnit& each) { each.unshard(); };
  each_unit(unit, unshard);
  // Start the next gather before this wait, so that it runs while this layer computes.
  if (visit_ + 1 < visits_.size()) each_unit(visits_[visit_ + 1].unit, unshard);
  each_unit(unit, [](FsdpUnit& each) { each.wait(); });
}

// Frees the weights of a unit, unless one of the next two visits uses the unit: for the last block,
// only the head comes between forward and backward.
void ShardedTransformer::leave() {
  visit_range_.reset();
  poll();
  const size_t unit = visits_[visit_++].unit;
  for (size_t soon = visit_; soon < std::min(visit_ + 2, visits_.size()); ++soon)
    if (visits_[soon].unit == unit) return;
  each_unit(unit, [](FsdpUnit& each) { each.reshard(); });
}

void ShardedTransformer::begin_gradients(Context& context, size_t visited) {
  const auto trained = trained_of(visited);
  if (!trained) return;
  const size_t unit = numbers_[*trained];
  // Two gradients of one unit may follow each other: of a tied table, or of the only layer of a stage.
  if (reduction_.open && reduction_.unit == unit) finish_reduction();
  units_[unit].begin_gradients(context);
}

void ShardedTransformer::reduce_gradients(size_t visited, bool last) {
  const auto trained = trained_of(visited);
  if (!trained) return;
  const size_t unit = numbers_[*trained];
  const ProfilerRange range(stream_, whole_table_[*trained].name + " reduce");
  finish_reduction();
  units_[unit].start_reduce();
  // The reduction ends later, because it runs while the next layer's backward computes.
  reduction_ = {.open = true, .unit = unit, .sum_is_due = last && !sums_after_links()};
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

// Starts a unit's only sum over the replicas in a step: links between replicas are the slowest. The sum runs
// while lower layers compute. A sum that needs scratch holds a slot of it, so the oldest sum may have to
// finish first. The norm of a shard is computed after its sum.
void ShardedTransformer::start_sum() {
  if (!reduction_.sum_is_due) return;
  reduction_.sum_is_due = false;
  while (sum_slots_ != nullptr && std::ssize(summing_) >= kUnitSlots) finish_oldest_sum();
  FsdpUnit& unit = units_[reduction_.unit];
  unit.start_sum();
  if (unit.completes_on() != nullptr && !is_shared(reduction_.unit)) start_norm(reduction_.unit);
  summing_.push_back(reduction_.unit);
}

void ShardedTransformer::finish_oldest_sum() {
  FsdpUnit& unit = units_[summing_.front()];
  const bool on_host = unit.completes_on() == nullptr;
  unit.finish_sum();
  if (on_host && !is_shared(summing_.front())) start_norm(summing_.front());
  summing_.pop_front();
}

void ShardedTransformer::finish_reductions(bool is_whole) {
  finish_reduction();
  for (size_t unit = units_.size(); is_whole && sums_after_links() && unit-- > first_trained_;) {
    reduction_ = {.open = false, .unit = unit, .sum_is_due = true};
    start_sum();
  }
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

// Whether two stages hold the unit: the first and the last one of a pipeline train a tied table.
bool ShardedTransformer::is_shared(size_t unit) const {
  return mesh_.sizes().pipeline > 1 && config_.tie_word_embeddings && !is_frozen() && places_[unit] == 0;
}

// Adds the two gradients of a tied table, so that both holders have the same sum. Comes after
// sum_replicated(), which may add in another order on another stage. The norm counts only the first holder.
void ShardedTransformer::sum_shared(Context& context) {
  if (mesh_.sizes().pipeline == 1 || !config_.tie_word_embeddings || is_frozen()) return;
  Communicator& axis = mesh_.pipeline();
  Frame frame(context.arena);
  std::vector<Exchange> exchanges;
  if (has_embedding() || has_head()) {
    const Tensor& own = units_.front().gradient();
    const int64_t other = has_embedding() ? axis.size() - 1 : 0;
    exchanges.push_back(
        {.send = own,
         .to = other,
         .receive = context.arena.allocate(own.dtype, own.shape, MemoryCategory::kCommunication),
         .from = other});
  }
  axis.start_exchanges(stream_, exchanges).wait();
  for (const Exchange& each : exchanges) add(context, each.receive, each.send);
  if (has_embedding()) start_norm(0);
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
  sum_shared(context);
  if (mesh_.replicate().rank() != 0 || trained_units().empty()) return;
  const std::span<FsdpUnit> units = trained_units();
  for (size_t u = 0; u < units.size() && context.tensor.index() == 0; ++u)
    if (const int64_t alike = units[u].replicated_in_shard();
        alike > 0 && (has_embedding() || !is_shared(first_trained_ + u)))
      norm_->take_replicated(context, u, units[u].gradient().row_range(0, alike));
  norm_->finish(context, total);
}

// Sums the gradients of replicated parameters over the tensor axis, because each rank has seen only its own
// rows or columns. One all-reduce for all units is faster than one for each.
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
  mesh_.tensor().all_reduce(stream_, packed, scratch);
  each([&](const Tensor& from, const Tensor& to) { convert(context, from, to); });
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

}  // namespace ripstop
