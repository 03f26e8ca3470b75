// LossOn: which tokens are targets.
#pragma once

namespace ripstop {

/// The targets: the summary's tokens and EOS, or every token.
enum class LossOn { kSummary, kAll };

}  // namespace ripstop
