// Which tokens' predictions count.
#pragma once

namespace ripstop {

/// Whose prediction counts: the summary's tokens and EOS, or every token's.
enum class LossOn { kSummary, kAll };

}  // namespace ripstop
