#include "tests/emulated_device/cudnn_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/core/rounding.h"

namespace ripstop::emulated {
namespace {

using Kind = OperationRecord::Kind;

// The facts that the rule looks at.
struct Attention {
  int64_t documents = 0, query_heads = 0, key_value_heads = 0, length = 0, size = 0;
  bool backward = false, ragged = false;
  bool by_place = false;       ///< the sum of dQ has a place for every position
  bool from_scores = false;    ///< dQ is a product itself, no sum of several
  bool groups_inside = false;  ///< dK and dV of every query head lie in the workspace
};

// Queries, then transposed keys: the first product.
const OperationRecord* first_product(const GraphRecord& graph) {
  const auto found = std::find_if(graph.operations.begin(), graph.operations.end(),
                                  [](const OperationRecord& o) { return o.kind == Kind::kMatmul; });
  return found == graph.operations.end() ? nullptr : &*found;
}

Attention describe(const GraphRecord& graph, const OperationRecord& first) {
  Attention a{.documents = first.x->extents[0],
              .query_heads = first.x->extents[1],
              .key_value_heads = first.b->extents[1],
              .length = first.x->extents[2],
              .size = first.x->extents[3],
              .ragged = first.x->ragged_offset != nullptr};
  for (const OperationRecord& o : graph.operations) {
    if (o.kind == Kind::kReshape) a.backward = true;
    if (o.kind == Kind::kReduction && o.y->extents[1] < o.x->extents[1] && o.x->is_virtual)
      a.groups_inside = true;
  }
  if (!a.backward) return a;
  // The last product is that of dQ.
  for (const OperationRecord& o : graph.operations) {
    if (o.kind != Kind::kMatmul) continue;
    a.from_scores = o.y->type == CUDNN_DATA_BFLOAT16;
    a.by_place = !a.from_scores && o.y->ragged_offset == nullptr;
  }
  return a;
}

// Measured with cuDNN 9.19 for H100, for 1 to 512 documents: blocks of 128 bytes a document for each ragged
// tensor.
int64_t forward_bytes(const Attention& a) {
  constexpr int64_t kFewest = 64;
  return a.ragged ? round_up(256 * (std::max(a.documents, kFewest) + 1), 1024) - 256 : 256;
}
int64_t backward_bytes(const Attention& a) {
  const int64_t even = a.documents / 2 * 2;
  const int64_t heads = 2 * a.documents * a.query_heads * a.length;
  const int64_t scores = a.from_scores ? heads * a.length : 0;
  const int64_t groups = a.groups_inside ? 2 * heads * a.size : 0;
  const int64_t own = !a.ragged                     ? 256
                      : a.groups_inside             ? 256 * even + 768
                      : a.by_place || a.from_scores ? 384 * even + 1024
                                                    : 448 * even + 1152;
  return scores + groups + own;
}

// The settings that the caller chose for a configuration; empty: those of the engine.
std::map<cudnnBackendKnobType_t, int64_t> chosen_knobs(const DescriptorRecord& configuration) {
  std::map<cudnnBackendKnobType_t, int64_t> result;
  const auto knobs = configuration.attributes.find(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
  if (knobs == configuration.attributes.end()) return result;
  for (const DescriptorHandle& knob : knobs->second.descriptors)
    result[knob->value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] =
        knob->value<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  return result;
}

}  // namespace

RuleAnswer plan_by_rule(const GraphRecord& graph, bool ordered, size_t version) {
  constexpr size_t kFirstOrdered = 92500;
  const OperationRecord* first = first_product(graph);
  if (first == nullptr) return {"no engine: not a graph of attention"};
  const Attention a = describe(graph, *first);
  const bool wide = a.size > 256;
  if (a.size % 8 != 0 || (wide && a.backward))
    return {fmt::format("no engine: heads of {} elements", a.size)};
  if (a.query_heads % a.key_value_heads != 0)
    return {fmt::format("no engine: {} heads in groups of {}", a.query_heads, a.key_value_heads)};
  if (ordered && version < kFirstOrdered) return {"no engine with this knob"};
  return {"", a.backward ? backward_bytes(a) : wide ? 0 : forward_bytes(a)};
}

bool lacks_knobs(const DescriptorRecord& configuration) {
  const auto chosen = chosen_knobs(configuration);
  return !chosen.empty() && std::any_of(kEngineKnobs.begin(), kEngineKnobs.end(),
                                        [&](const EngineKnob& k) { return chosen.count(k.type) == 0; });
}

bool orders_sums(const DescriptorRecord& plan) {
  constexpr int64_t kOneAfterAnother = 4;
  const auto chosen = chosen_knobs(*plan.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
  const auto stages = chosen.find(CUDNN_KNOB_TYPE_STAGES);
  return stages != chosen.end() && stages->second == kOneAfterAnother;
}

}  // namespace ripstop::emulated
