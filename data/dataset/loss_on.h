#pragma once

namespace ripstop {

/// Tokens whose prediction counts in the loss. For pairs and running text: the summary or text, with EOS
/// (kSummary), or all tokens but the first (kAll). For conversations: all turns of the assistant (kAssistant,
/// kAll), or the last (kLast). kAuto: kSummary or kAssistant.
enum class LossOn { kAuto, kSummary, kAll, kAssistant, kLast };

}  // namespace ripstop
