#pragma once

namespace ripstop {

/// Tokens whose prediction counts in the loss: the summary and EOS (kSummary), or all tokens (kAll).
enum class LossOn { kSummary, kAll };

}  // namespace ripstop
