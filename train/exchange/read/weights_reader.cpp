#include "train/exchange/read/weights_reader.h"

#include <algorithm>
#include <array>

#include "data/process/block_threads.h"
#include "model/core/error.h"
#include "model/core/rounding.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

// Adds scale * (B A) to the elements of `box`; `to` points to the first element.
void add_product(const Box& box, int64_t rank, std::span<const float> a, std::span<const float> b,
                 double scale, float* to) {
  const int64_t columns = box.parameter->columns;
  std::vector<double> sums(static_cast<size_t>(box.columns));
  for (int64_t row = 0; row < box.rows; ++row) {
    // Products of two floats are exact in float64. The inner loop reads a row of `a`, which is contiguous;
    // each sum adds its products in the order of the LoRA rank.
    std::ranges::fill(sums, 0.0);
    for (int64_t r = 0; r < rank; ++r) {
      const double factor = b[static_cast<size_t>((box.row + row) * rank + r)];
      const float* const from = a.data() + r * columns + box.column;
      for (int64_t column = 0; column < box.columns; ++column)
        sums[static_cast<size_t>(column)] += factor * static_cast<double>(from[column]);
    }
    float* const w = to + row * box.stride;
    for (int64_t column = 0; column < box.columns; ++column)
      w[column] = static_cast<float>(w[column] + scale * sums[static_cast<size_t>(column)]);
  }
}

}  // namespace

void add_adapters(const UnitLayout& layout, int64_t begin, int64_t end, float* to,
                  std::span<const AdapterSpec> adapters, double scale, ReadAdapter read) {
  const std::vector<Box> boxes = layout.boxes(begin, end);
  for (const AdapterSpec& adapter : adapters) {
    const auto is_its_own = [&](const Box& box) {
      return !box.empty() && box.parameter->name == adapter.matrix.name;
    };
    if (std::ranges::none_of(boxes, is_its_own)) continue;
    const std::vector<float> a = read(adapter.a), b = read(adapter.b);
    RIPSTOP_CHECK(std::ssize(a) == adapter.a.count() && std::ssize(b) == adapter.b.count(),
                  "{}: {} and {} elements were read", adapter.matrix.name, a.size(), b.size());
    for (const Box& box : boxes)
      if (is_its_own(box)) add_product(box, adapter.a.rows, a, b, scale, to + (box.offset - begin));
  }
}

WeightsReader::WeightsReader(Io& io, const StoredModel& model) : model_(model) {
  if (model.checkpoint() != nullptr) checkpoint_.emplace(io, *model.checkpoint());
  if (model.growth().how != ResizeVocabulary::kNone)
    grown_.emplace(model.growth(), model.config().vocab_size,
                   [this](int64_t fsdp_index, const UnitStates& unit) { read(fsdp_index, unit); });
  if (model.base() == nullptr) return;
  base_ = std::make_unique<WeightsReader>(io, *model.base());
  adapters_ = adapter_specs(model.config(), model.state().adapted->lora);
}

void WeightsReader::read(int64_t fsdp_index, const UnitStates& unit) {
  const UnitLayout& layout = *unit.layout;
  const int64_t begin = fsdp_index * layout.shard_elements(), end = begin + layout.shard_elements();
  const bool of_adapters = is_adapter(layout.unit().tensors.front().parts.front().name);
  if (grown_ && grown_->has(layout.unit())) {
    grown_->read(layout, begin, end, unit.master);
  } else if (base_ && !of_adapters) {
    base_->read(fsdp_index, unit);
    add_adapters(layout, begin, end, unit.master, adapters_, model_.state().adapted->lora.scale(),
                 [&](const ParameterSpec& parameter) { return read_parameter(parameter); });
  } else if (checkpoint_) {
    read_checkpoint(fsdp_index, unit);
  } else {
    // read_stored() in stored_elements.cpp cuts the stored tensors to the shard.
    read_pretrained(*model_.pretrained(), layout, begin, end, unit.master);
  }
}

void WeightsReader::read_checkpoint(int64_t fsdp_index, const UnitStates& unit) {
  try {
    checkpoint_->read(fsdp_index, {{.layout = unit.layout, .master = unit.master}});
  } catch (const Error& error) {
    throw with_hint_for_damage(error, model_.directory());
  }
}

std::vector<float> WeightsReader::read_parameter(const ParameterSpec& parameter) {
  const UnitSpec unit{.name = parameter.name, .tensors = {{{parameter}}}};
  const UnitLayout layout(unit, 1, 0, 1);
  std::vector<float> padded(static_cast<size_t>(layout.elements())), values;
  read_checkpoint(0, {.layout = &layout, .master = padded.data()});
  const Box& whole = layout.slices().front();
  values.reserve(static_cast<size_t>(parameter.count()));
  for (int64_t row = 0; row < whole.rows; ++row) {
    const auto begin = padded.begin() + whole.offset + row * whole.stride;
    values.insert(values.end(), begin, begin + whole.columns);
  }
  return values;
}

void read_in_pieces(Io& io, const StoredModel& model, std::span<const UnitLayout* const> layouts,
                    int64_t fsdp_index,
                    FunctionRef<void(size_t unit, int64_t first, std::span<const float> values)> take,
                    int64_t piece_elements) {
  WeightsReader reader(io, model);
  std::array<std::vector<float>, kBlockThreads> memory;
  for (size_t u = 0; u < layouts.size(); ++u) {
    const int64_t elements = layouts[u]->shard_elements(), begin = fsdp_index * elements;
    // WeightsReader reads only whole shards, so a finer layout makes shards of the size of a piece. The first
    // and the last piece may reach beyond shard `fsdp_index`.
    const UnitLayout finer = layouts[u]->finer(divide_up(elements, piece_elements));
    const int64_t size = finer.shard_elements(), end = divide_up(begin + elements, size);
    for (int64_t first = begin / size; first < end; first += kBlockThreads) {
      const int64_t count = std::min(kBlockThreads, end - first);
      share_blocks(
          count, kBlockThreads,
          [&](int64_t, int64_t number) {
            std::vector<float>& piece = memory[static_cast<size_t>(number)];
            piece.resize(static_cast<size_t>(size));
            reader.read(first + number, {.layout = &finer, .master = piece.data()});
          },
          [](int64_t) {});
      for (int64_t number = 0; number < count; ++number) {
        const int64_t at = (first + number) * size, from = std::max(at, begin),
                      to = std::min(at + size, begin + elements);
        take(u, from - begin,
             std::span<const float>(memory[static_cast<size_t>(number)])
                 .subspan(static_cast<size_t>(from - at), static_cast<size_t>(to - from)));
      }
    }
  }
}

void read_weights(Io& io, const StoredModel& model, int64_t fsdp_index, std::span<const UnitStates> units) {
  std::vector<const UnitLayout*> layouts;
  for (const UnitStates& unit : units) layouts.push_back(unit.layout);
  read_in_pieces(io, model, layouts, fsdp_index,
                 [&](size_t unit, int64_t first, std::span<const float> values) {
                   std::ranges::copy(values, units[unit].master + first);
                 });
}

}  // namespace ripstop
