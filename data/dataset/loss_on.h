// LossOn: the choice of the target tokens. SequenceReader applies it.
#pragma once

namespace ripstop {

/// The targets: the summary's tokens and EOS, or every token.
enum class LossOn { kSummary, kAll };

}  // namespace ripstop
