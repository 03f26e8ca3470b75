// Which graphs cuDNN has a plan for, and how much workspace that needs: what cuDNN 9.19 says for an H100, as
// a written-down rule that takes no time. tests/emulated_device/cudnn_plans_test.cpp compares it with cuDNN.
#pragma once
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

}  // namespace ripstop::emulated
