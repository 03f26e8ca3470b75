#pragma once

namespace ripstop {

/// The targets: the summary and EOS (kSummary), or every token (kAll).
enum class LossOn { kSummary, kAll };

}  // namespace ripstop
