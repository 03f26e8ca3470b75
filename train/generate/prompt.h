// Prompts: what the model reads before it writes a summary.
#pragma once
#include <cstdint>
#include <vector>

#include "data/token_dataset.h"

namespace ripstop {

/// The ids of BOS, document and separator, as they are trained on.
struct Prompt {
  std::vector<int32_t> tokens;
  int64_t separator_begin =
      0;  ///< place in `tokens` of the separator's first token; what precedes may be cut
};

/// The prompt of an example of a data set. Any thread. Throws Error(kInputData) for a damaged file.
Prompt stored_prompt(const TokenDataset& dataset, int64_t example);

/// Drops the end of the document, so that at most `longest` tokens are left. BOS (the first token) and the
/// separator always stay, as in training. Returns how many tokens went. Throws Error(kUsage) where BOS and
/// separator alone are longer than that.
int64_t cut_document(Prompt& prompt, int64_t longest);

}  // namespace ripstop
