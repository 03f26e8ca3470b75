#include "model/lora.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace ripstop {
namespace {

constexpr std::string_view kLetterPlaces[] = {".lora_A.weight", ".lora_B.weight"};
constexpr std::string_view kWeight = ".weight";

// The target's matrix in the UnitSpec of a layer: tensors[vectors() + matrix].parts[part].
struct Place {
  size_t matrix, part;
};
constexpr Place place_of(LoraTarget target) {
  constexpr Place kPlaces[] = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {2, 0}, {2, 1}, {3, 0}};
  return kPlaces[static_cast<size_t>(target)];
}

AdapterSpec adapter_of(const ParameterSpec& matrix, LoraTarget target, int64_t layer, int64_t rank) {
  const bool by_rows = matrix.cut == Cut::kRows;
  const double bound = 1 / std::sqrt(static_cast<double>(matrix.columns));
  return {.target = target,
          .layer = layer,
          .matrix = matrix,
          .a = {.name = adapter_name(matrix.name, 'A'),
                .rows = rank,
                .columns = matrix.columns,
                .cut = by_rows ? Cut::kNone : Cut::kColumns,
                .grain = by_rows ? 1 : matrix.grain,
                .initial = {Initial::Kind::kUniform, bound}},
          .b = {.name = adapter_name(matrix.name, 'B'),
                .rows = matrix.rows,
                .columns = rank,
                .cut = by_rows ? Cut::kRows : Cut::kNone,
                .grain = by_rows ? matrix.grain : 1,
                .initial = {Initial::Kind::kZeros}}};
}

// Returns the adapters of a layer, whose unit in parameter_table is `unit`.
std::vector<AdapterSpec> adapters_of(const UnitSpec& unit, int64_t layer, const LoraConfig& lora) {
  std::vector<AdapterSpec> adapters;
  for (size_t t = 0; t < kLoraTargets.size(); ++t) {
    const auto target = static_cast<LoraTarget>(t);
    if (!lora.has(target)) continue;
    const Place place = place_of(target);
    const PhysicalTensor& tensor = unit.tensors[unit.vectors() + place.matrix];
    adapters.push_back(adapter_of(tensor.parts[place.part], target, layer, lora.rank));
  }
  return adapters;
}

std::vector<UnitSpec> layers_of(const ModelConfig& model) {
  std::vector<UnitSpec> units = parameter_table(model);
  std::erase_if(units, [](const UnitSpec& unit) { return !unit.name.starts_with("layers."); });
  return units;
}

UnitSpec unit_of(const UnitSpec& layer, const std::vector<AdapterSpec>& adapters) {
  UnitSpec unit{.name = layer.name + ".lora", .tensors = {}};
  // Makes, for each matrix of the layer, a tensor with the `a` of its adapters and a tensor with their `b`.
  // Tensors that the tensor axis does not cut come first.
  for (const bool replicated : {true, false})
    for (size_t matrix = 0; matrix < layer.tensors.size() - layer.vectors(); ++matrix) {
      PhysicalTensor parts;
      for (const AdapterSpec& adapter : adapters) {
        if (place_of(adapter.target).matrix != matrix) continue;
        parts.parts.push_back((adapter.a.cut == Cut::kNone) == replicated ? adapter.a : adapter.b);
      }
      if (!parts.parts.empty()) unit.tensors.push_back(std::move(parts));
    }
  return unit;
}

}  // namespace

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

std::vector<std::string_view> LoraConfig::target_names() const {
  std::vector<std::string_view> names;
  for (size_t t = 0; t < kLoraTargets.size(); ++t)
    if (targets[t]) names.push_back(kLoraTargets[t]);
  return names;
}

std::string adapters_text(const LoraConfig& lora) {
  return fmt::format("rank {}, alpha {}{}, dropout {}, of {}", lora.rank, lora.alpha,
                     lora.rslora ? " (rslora)" : "", lora.dropout, fmt::join(lora.target_names(), ", "));
}

void validate(const LoraConfig& lora, const ModelConfig& model) {
  if (!lora.any()) return;
  if (!std::isfinite(lora.alpha) || lora.alpha <= 0)
    fail(ExitCode::kUsage, "lora.alpha is {}, it must be a number above 0", lora.alpha);
  if (!(lora.dropout >= 0 && lora.dropout < 1))
    fail(ExitCode::kUsage, "lora.dropout is {}, it must be at least 0 and below 1", lora.dropout);
  if (std::none_of(lora.targets.begin(), lora.targets.end(), [](bool has) { return has; }))
    fail(ExitCode::kUsage, "lora.targets is empty: there is nothing to train");
  ModelConfig one = model;
  one.num_hidden_layers = 1;
  for (const AdapterSpec& adapter : adapter_specs(one, lora)) {
    const int64_t most = std::min(adapter.matrix.rows, adapter.matrix.columns);
    if (lora.rank > most)
      throw Error(ExitCode::kUsage,
                  fmt::format("lora.rank is {}, {} is [{}, {}]", lora.rank,
                              kLoraTargets[static_cast<size_t>(adapter.target)], adapter.matrix.rows,
                              adapter.matrix.columns),
                  fmt::format("lora.rank={} is all that such a matrix has", most));
  }
}

int64_t adapter_parameter_count(const ModelConfig& model, const LoraConfig& lora) {
  int64_t count = 0;
  for (const AdapterSpec& adapter : adapter_specs(model, lora))
    count += adapter.a.count() + adapter.b.count();
  return count;
}

FlopsPerToken training_flops_per_token(const ModelConfig& model, const LoraConfig& lora,
                                       int64_t sequence_length) {
  const FlopsPerToken all = training_flops_per_token(model, sequence_length);
  if (!lora.any()) return all;
  const double adapters = 6 * static_cast<double>(adapter_parameter_count(model, lora));
  const double frozen = 2 * multiplied_parameters(model);
  return {all.causal - frozen + adapters, all.full_attention - frozen + adapters};
}

std::string adapter_name(const std::string& matrix, char letter) {
  return fmt::format("{}{}", std::string_view(matrix).substr(0, matrix.size() - kWeight.size()),
                     kLetterPlaces[letter == 'A' ? 0 : 1]);
}

bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(kLetterPlaces[0]) || parameter.ends_with(kLetterPlaces[1]);
}

std::vector<AdapterSpec> adapter_specs(const ModelConfig& model, const LoraConfig& lora) {
  std::vector<AdapterSpec> adapters;
  if (!lora.any()) return adapters;
  int64_t layer = 0;
  for (const UnitSpec& unit : layers_of(model)) {
    std::vector<AdapterSpec> of_layer = adapters_of(unit, layer++, lora);
    std::move(of_layer.begin(), of_layer.end(), std::back_inserter(adapters));
  }
  return adapters;
}

std::vector<UnitSpec> adapter_table(const ModelConfig& model, const LoraConfig& lora) {
  std::vector<UnitSpec> units;
  if (!lora.any()) return units;
  int64_t layer = 0;
  for (const UnitSpec& unit : layers_of(model))
    units.push_back(unit_of(unit, adapters_of(unit, layer++, lora)));
  return units;
}

std::vector<UnitSpec> trained_table(const ModelConfig& model, const LoraConfig& lora) {
  return lora.any() ? adapter_table(model, lora) : parameter_table(model);
}

std::vector<UnitSpec> unit_table(const ModelConfig& model, const LoraConfig& lora) {
  std::vector<UnitSpec> units = parameter_table(model);
  if (!lora.any()) return units;
  for (UnitSpec& unit : units) unit.frozen = true;
  std::vector<UnitSpec> adapters = adapter_table(model, lora);
  std::move(adapters.begin(), adapters.end(), std::back_inserter(units));
  return units;
}

}  // namespace ripstop
