// Graphs for which cuDNN has a plan, and how much workspace that needs: what cuDNN 9.19 says for an H100, as
// a written-down rule that takes no time. tests/emulated_device/cudnn_plans_test.cpp compares it with cuDNN.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/emulated_device/cudnn_record.h"

namespace ripstop::emulated {

struct RuleAnswer {
  std::string refusal;  ///< empty: there is a plan
  int64_t workspace_bytes = 0;
};

/// For graphs of causal attention as model/kernels/cuda/attention_graph.cpp builds them; refuses all others.
/// `ordered`: with sums in a fixed order, which cuDNN has from 9.25.0 on.
RuleAnswer plan_by_rule(const GraphRecord& graph, bool ordered, size_t version);

/// The settings that heuristics choose for the one engine: those of cuDNN 9.26 for backward on an H100.
struct EngineKnob {
  cudnnBackendKnobType_t type;
  int64_t value;
};
inline constexpr std::array<EngineKnob, 5> kEngineKnobs{{{CUDNN_KNOB_TYPE_TILE_M, 2},
                                                         {CUDNN_KNOB_TYPE_TILE_N, 1},
                                                         {CUDNN_KNOB_TYPE_KERNEL_CFG, 2},
                                                         {CUDNN_KNOB_TYPE_STREAM_K, 0},
                                                         {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}}};
/// Whether a configuration has some of the engine's settings and lacks others.
bool lacks_knobs(const DescriptorRecord& configuration);
/// Whether the configuration of a plan asks for sums in a fixed order (Sums::kOrdered).
bool orders_sums(const DescriptorRecord& plan);

}  // namespace ripstop::emulated
