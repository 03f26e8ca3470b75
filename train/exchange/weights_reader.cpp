#include "train/exchange/weights_reader.h"

#include <utility>

#include "train/exchange/merged_weights.h"
#include "train/exchange/pretrained_weights.h"

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

}  // namespace ripstop
