// Prompts of a given length: what the model reads before it writes a summary.
#pragma once
#include <cstdint>

#include "data/prompt_template.h"
#include "data/token_dataset.h"

namespace ripstop {

/// The prompt of an example of a data set. Any thread. Throws Error(kInputData) for a damaged file.
EncodedPrompt stored_prompt(const TokenDataset& dataset, int64_t example);

/// Drops the end of the document, so that at most `longest` tokens are left. BOS (the first token) and the
/// separator always stay, as in training. Returns how many tokens went. Throws Error(kUsage) where BOS and
/// separator alone are longer than that.
int64_t cut_document(EncodedPrompt& prompt, int64_t longest);

}  // namespace ripstop
