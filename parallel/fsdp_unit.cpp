#include "parallel/fsdp_unit.h"

#include <algorithm>
#include <utility>

#include "model/core/rounding.h"

namespace ripstop {

SlotPool::SlotPool(GroupMemory& memory, MemoryCategory category, int64_t slots, DType dtype, int64_t elements)
    : taken_(static_cast<size_t>(slots), false) {
  for (int64_t s = 0; s < slots; ++s) slots_.push_back(memory.take(category, dtype, {elements}));
}

Tensor SlotPool::take(int64_t elements) {
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (taken_[s]) continue;
    taken_[s] = true;
    // Slots have the size of the largest unit.
    return slots_[s].row_range(0, elements);
  }
  fail(ExitCode::kBug, "all {} slots are taken", slots_.size());
}

void SlotPool::give_back(const Tensor& slot) {
  for (size_t s = 0; s < slots_.size(); ++s)
    if (taken_[s] && slots_[s].data == slot.data) {
      taken_[s] = false;
      return;
    }
  fail(ExitCode::kBug, "a slot given back that was not taken");
}

MemoryUse FsdpUnit::memory_use(const UnitLayout& layout, DType compute, bool training, bool keeps_whole) {
  const int64_t n = layout.shard_elements(), size = element_bytes(compute);
  training = training && !layout.unit().frozen;
  const bool copies = compute != DType::kFloat32;
  MemoryUse use;
  use[MemoryCategory::kWeights] = (training || !copies ? 4 * n : 0) + (copies ? size * n : 0) +
                                  (keeps_whole ? size * layout.elements() : 0);
  use[MemoryCategory::kGradients] = training ? 4 * n : 0;
  return use;
}

FsdpUnit::FsdpUnit(const UnitSpec& unit, std::vector<Parameter*> parameters, int64_t tensor_count,
                   int64_t tensor_index, const UnitResources& resources)
    : resources_(resources),
      tensor_count_(tensor_count),
      layout_(unit, tensor_count, tensor_index, resources.gather.size()),
      parameters_(std::move(parameters)) {
  RIPSTOP_CHECK(parameters_.size() == unit.tensors.size(), "{} parameters for {} tensors of {}",
                parameters_.size(), unit.tensors.size(), unit.name);
  const Shape shard{layout_.shard_elements()};
  GroupMemory& memory = resources.memory;
  const bool copies = resources.compute != DType::kFloat32;
  shard_begin_ = layout_.shard_elements() * resources.gather.rank();
  if (is_trained() || !copies) master_ = memory.take(MemoryCategory::kWeights, DType::kFloat32, shard);
  if (copies) copy_ = memory.take(MemoryCategory::kWeights, resources.compute, shard);
  if (is_trained()) gradient_ = memory.take(MemoryCategory::kGradients, DType::kFloat32, shard);
  if (!whole_is_shard() && resources.weight_slots == nullptr)
    own_whole_ = memory.take(MemoryCategory::kWeights, resources.compute, {layout_.elements()});
}

int64_t FsdpUnit::replicated_in_shard() const {
  return std::clamp<int64_t>(layout_.replicated_elements() - shard_begin_, 0, layout_.shard_elements());
}

void FsdpUnit::unshard() {
  if (state_ != State::kSharded) return;
  state_ = State::kGathering;
  if (whole_is_shard()) {
    whole_ = own_shard();
  } else if (resources_.weight_slots != nullptr) {
    whole_ = resources_.weight_slots->take(layout_.elements());
    gathering_ = resources_.gather.all_gather(resources_.stream, own_shard(), whole_);
  } else {
    whole_ = own_whole_;
    // The unit keeps its gathered weights between steps (ZeRO-2) and gathers only if they are out of date.
    if (stale_) gathering_ = resources_.gather.all_gather(resources_.stream, own_shard(), whole_);
    stale_ = false;
  }
}

void FsdpUnit::wait() {
  RIPSTOP_CHECK(state_ != State::kSharded, "{} is used before it is unsharded", layout_.unit().name);
  if (state_ == State::kUnsharded) return;
  gathering_.wait();
  for (size_t t = 0; t < parameters_.size(); ++t) parameters_[t]->value = part(whole_, t);
  state_ = State::kUnsharded;
}

void FsdpUnit::reshard() {
  RIPSTOP_CHECK(state_ == State::kUnsharded, "{} is resharded while it is not whole", layout_.unit().name);
  // A layer that uses its weights too late must meet an empty tensor, not the weights of another unit.
  for (Parameter* p : parameters_) p->value = Tensor{};
  if (!whole_is_shard() && resources_.weight_slots != nullptr) resources_.weight_slots->give_back(whole_);
  whole_ = Tensor{};
  state_ = State::kSharded;
}

void FsdpUnit::set_shard(int64_t first, std::span<const float> values) {
  constexpr size_t kPiece = 1 << 16;
  RIPSTOP_CHECK(first >= 0 && first + std::ssize(values) <= layout_.shard_elements(),
                "{} values from {} on for {} elements of {}", values.size(), first, layout_.shard_elements(),
                layout_.unit().name);
  const Stream& stream = resources_.stream;
  if (!master_.empty())
    copy_bytes(stream, master_.as<float>() + first, values.data(), std::ssize(values) * 4);
  std::vector<BFloat16> rounded;  // piece by piece, so that a large unit needs no second copy on the host
  for (size_t at = 0; !copy_.empty() && at < values.size(); at += rounded.size()) {
    rounded.clear();
    for (const float value : values.subspan(at, std::min(kPiece, values.size() - at)))
      rounded.emplace_back(value);
    copy_bytes(stream, copy_.as<BFloat16>() + first + at, rounded.data(), 2 * std::ssize(rounded));
    stream.synchronize();  // the next piece overwrites `rounded`
  }
  stream.synchronize();
  stale_ = true;
}

void FsdpUnit::copy_whole_to(FsdpUnit& other) const {
  const Tensor& to = other.own_shard();
  // `to` may be shorter than whole_: with one shard there may be less padding.
  RIPSTOP_CHECK(state_ == State::kUnsharded && other.whole_is_shard() && to.dtype == whole_.dtype &&
                    to.count() <= whole_.count(),
                "{}: {} elements to {}", layout_.unit().name, whole_.count(), to.count());
  copy_bytes(resources_.stream, to.data, whole_.data, to.bytes());
  other.weights_changed();
}

Tensor FsdpUnit::part(const Tensor& flat, size_t tensor) const {
  const PhysicalTensor& t = layout_.unit().tensors[tensor];
  const int64_t rows = t.slice_rows(tensor_count_), columns = t.slice_columns(tensor_count_);
  const Tensor piece = flat.row_range(layout_.tensor_offsets()[tensor], rows * columns);
  return is_vector(tensor) ? piece : piece.viewed({rows, columns});
}

void FsdpUnit::begin_gradients(Context& context) {
  RIPSTOP_CHECK(is_trained(), "gradients of {}, which is not trained", layout_.unit().name);
  // The reduction adds a slot to the shard, so backward overwrites the slot. With one rank on the fsdp axis,
  // backward writes to the shard itself, and overwrites it only on the first visit of a step.
  whole_gradient_ = whole_is_shard() ? gradient_ : resources_.gradient_slots->take(layout_.elements());
  const bool overwrite = !whole_is_shard() || fresh_;
  if (overwrite) zero_unwritten(context, whole_gradient_);
  for (size_t t = 0; t < parameters_.size(); ++t) {
    parameters_[t]->gradient = part(whole_gradient_, t);
    parameters_[t]->accumulate = overwrite && !is_vector(t) ? Accumulate::kNo : Accumulate::kYes;
  }
}

// Clears what backward does not overwrite: vectors, to which it adds, and gaps between tensors.
void FsdpUnit::zero_unwritten(Context& context, const Tensor& flat) const {
  int64_t done = 0;
  const auto clear_to = [&](int64_t end) { fill_zero(context, flat.row_range(done, end - done)); };
  for (size_t t = 0; t < parameters_.size(); ++t) {
    if (is_vector(t)) continue;
    clear_to(layout_.tensor_offsets()[t]);
    done = layout_.tensor_offsets()[t] + part(flat, t).count();
  }
  clear_to(layout_.elements());
}

void FsdpUnit::start_reduce() {
  for (Parameter* p : parameters_) p->gradient = Tensor{};
  if (!whole_is_shard())
    reducing_ = resources_.reduce.reduce_scatter(
        resources_.stream, whole_gradient_, gradient_, resources_.travel,
        fresh_ ? Accumulate::kNo : Accumulate::kYes, resources_.reduce_scratch);
  fresh_ = false;
}

void FsdpUnit::finish_reduce() {
  reducing_.wait();
  if (!whole_is_shard()) resources_.gradient_slots->give_back(whole_gradient_);
  whole_gradient_ = Tensor{};
}

// The stream whose work writes the reduced gradient into the shard; null if the host must write it.
const Stream* FsdpUnit::reduces_on() const {
  if (whole_is_shard() || reducing_.done()) return &resources_.stream;
  return resources_.reduce.own_stream();
}

FsdpUnit::SumNeeds FsdpUnit::sum_needs(int64_t elements, DType travel, const Communicator& replicate) {
  if (elements < replicate.size()) travel = DType::kFloat32;
  return {travel, replicate.all_reduce_scratch_bytes(elements, DType::kFloat32, travel)};
}

void FsdpUnit::start_sum() {
  Communicator& replicate = resources_.replicate;
  if (replicate.size() == 1) return;
  RIPSTOP_CHECK(sum_may_follow(), "{} is summed over replicas before it is reduced", layout_.unit().name);
  const SumNeeds needs = sum_needs(gradient_.count(), resources_.travel, replicate);
  if (resources_.sum_slots != nullptr)
    sum_scratch_ = resources_.sum_slots->take(divide_up(needs.scratch_bytes, 4));
  summing_ =
      replicate.start_all_reduce(resources_.stream, gradient_, needs.travel, sum_scratch_, reduces_on());
}

void FsdpUnit::finish_sum() {
  summing_.wait();
  if (!sum_scratch_.empty()) resources_.sum_slots->give_back(sum_scratch_);
  sum_scratch_ = Tensor{};
}

void FsdpUnit::poll() {
  for (Pending* pending : {&gathering_, &reducing_, &summing_}) pending->poll();
}

}  // namespace ripstop
