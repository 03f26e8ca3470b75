#include "model/transformer.h"

#include <cmath>
#include <utility>

namespace ripstop {
namespace {

// Angles are computed in float64, because float32 would lose digits at large positions.
std::vector<float> angles(const ModelConfig& config, int64_t positions) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.head_size() / 2; ++i) frequencies.push_back(inverse_frequency(config, i));
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions * config.head_size()));
  for (int64_t p = 0; p < positions; ++p)
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(p) * frequency;
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  return table;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const LoraConfig& lora, int64_t tensor_count,
                         int64_t tensor_index, int64_t positions, const Stream& stream, MemoryLedger& ledger)
    : blocks(static_cast<size_t>(config.num_hidden_layers), Block(config, tensor_count)),
      head(config, tensor_count, tensor_index),
      config_(config) {
  set_adapters(lora, tensor_count);
  const int64_t d = config.head_size();
  angle_memory_ = Buffer(stream.device(), ledger, MemoryCategory::kActivations, 4 * positions * d);
  angle_ = tensor_in(angle_memory_, 0, DType::kFloat32, {positions, d / 2, 2});
  if (stream.device().kind == DeviceKind::kMeta) return;
  const std::vector<float> table = angles(config, positions);
  copy_bytes(stream, angle_.data, table.data(), angle_.bytes());
  stream.synchronize();  // any stream may read the angles from here on
}

void Transformer::set_adapters(const LoraConfig& lora, int64_t tensor_count) {
  if (!lora.any()) return;
  const std::vector<UnitSpec> table = parameter_table(config_);
  std::vector<std::vector<AdapterSpec>> by_layer(blocks.size());
  for (AdapterSpec& adapter : adapter_specs(config_, lora))
    by_layer[static_cast<size_t>(adapter.layer)].push_back(std::move(adapter));
  // table[0] is the unit of the embedding or vocabulary.
  for (size_t layer = 0; layer < blocks.size(); ++layer)
    blocks[layer].set_adapters(table[layer + 1], by_layer[layer], lora, tensor_count);
}

std::vector<Parameter*> Transformer::parameters(size_t unit) {
  const size_t adapters = blocks.size() + (config_.tie_word_embeddings ? 1 : 2);
  if (unit >= adapters) return blocks.at(unit - adapters).adapter_parameters();
  if (unit == 0)
    return config_.tie_word_embeddings ? std::vector<Parameter*>{&head.norm, &embedding.table}
                                       : std::vector<Parameter*>{&embedding.table};
  if (unit <= blocks.size()) return blocks[unit - 1].parameters();
  RIPSTOP_CHECK(unit == blocks.size() + 1 && !config_.tie_word_embeddings, "unit {} of {} blocks", unit,
                blocks.size());
  return {&head.norm, &head.output};
}

}  // namespace ripstop
