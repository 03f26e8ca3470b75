#pragma once

namespace ripstop {

/// The targets: the summary and EOS (kSummary), or every token (kAll). SequenceReader marks them.
enum class LossOn { kSummary, kAll };

}  // namespace ripstop
