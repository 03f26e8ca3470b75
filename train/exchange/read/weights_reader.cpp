#include "train/exchange/read/weights_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/process/block_threads.h"
#include "model/core/rounding.h"
#include "train/exchange/hugging_face/pretrained_weights.h"
#include "train/exchange/read/merged_weights.h"

namespace ripstop {

WeightsReader::WeightsReader(Io& io, const StoredModel& model) : model_(model) {
  if (model.checkpoint() != nullptr) checkpoint_.emplace(io, *model.checkpoint());
  if (model.base() == nullptr) return;
  base_ = std::make_unique<WeightsReader>(io, *model.base());
  adapters_ = adapter_specs(model.config(), model.state().adapted->lora);
}

void WeightsReader::read(int64_t fsdp_index, const UnitStates& unit) {
  const UnitLayout& layout = *unit.layout;
  const int64_t begin = fsdp_index * layout.shard_elements(), end = begin + layout.shard_elements();
  const bool of_adapters = is_adapter(layout.unit().tensors.front().parts.front().name);
  if (base_ && !of_adapters) {
    base_->read(fsdp_index, unit);
    add_adapters_to(layout, begin, end, unit.master);
  } else if (checkpoint_) {
    try {
      checkpoint_->read(fsdp_index, {{.layout = &layout, .master = unit.master}});
    } catch (const Error& error) {
      throw with_hint_for_damage(error, model_.directory());
    }
  } else {
    read_pretrained(*model_.pretrained(), layout, begin, end, unit.master);
  }
}

void WeightsReader::add_adapters_to(const UnitLayout& layout, int64_t begin, int64_t end, float* to) {
  if (!base_) return;
  add_adapters(layout, begin, end, to, adapters_, model_.state().adapted->lora.scale(),
               [&](const ParameterSpec& parameter) { return read_parameter(parameter); });
}

std::vector<float> WeightsReader::read_parameter(const ParameterSpec& parameter) {
  const UnitSpec unit{.name = parameter.name, .tensors = {{{parameter}}}};
  const UnitLayout layout(unit, 1, 0, 1);
  std::vector<float> padded(static_cast<size_t>(layout.elements())), values;
  try {
    checkpoint_->read(0, {{.layout = &layout, .master = padded.data()}});
  } catch (const Error& error) {
    throw with_hint_for_damage(error, model_.directory());
  }
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
    // Shards of a finer layout: the readers know no other intervals. Those at both ends reach further.
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

}  // namespace ripstop
