// LossOn: the choice of the tokens that are targets.
#pragma once

namespace ripstop {

/// The tokens that are targets: the summary and EOS (kSummary), or every token (kAll).
enum class LossOn { kSummary, kAll };

}  // namespace ripstop
