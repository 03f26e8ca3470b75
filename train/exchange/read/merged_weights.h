// Weights with their adapters added: w + scale * b a.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/core/function_ref.h"
#include "model/lora.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// Gives all elements of an adapter's a or b, row-major, b's rows in ripstop's order.
using ReadAdapter = FunctionRef<std::vector<float>(const ParameterSpec& parameter)>;

/// Adds to each w of the elements [begin, end) of the flat buffer of `layout` the product of its adapter:
/// w + scale * (b a). The unit is one of parameter_table, on any mesh; `to` is where `begin` lies. Elements
/// without an adapter, and padding, stay as they are. The sum over the rank is in float64 in the order of the
/// rank, and the result is rounded once, to float32: it depends on neither mesh nor interval. `adapters` are
/// those of adapter_specs, or a part of them; `read` is called for a and b of those that the interval needs.
/// Memory: their elements, a in float64. Several threads may call if `read` may be called by them.
void add_adapters(const UnitLayout& layout, int64_t begin, int64_t end, float* to,
                  std::span<const AdapterSpec> adapters, double scale, ReadAdapter read);

}  // namespace ripstop
