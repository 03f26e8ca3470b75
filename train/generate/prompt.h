// Prompts: the tokens that the model reads before it writes a summary.
#pragma once
#include <cstdint>

#include "data/dataset/prompt_template.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// The prompt of an example of a data set. Any thread may call. Throws Error(kInputData) if the file is
/// damaged.
EncodedPrompt stored_prompt(const TokenDataset& dataset, int64_t example);

/// Removes tokens from the end of the document until at most `longest` tokens are left. BOS (the first token)
/// and the separator always stay, as in training. Returns how many tokens were removed. Throws Error(kUsage)
/// if BOS and separator alone are longer than `longest`.
int64_t cut_document(EncodedPrompt& prompt, int64_t longest);

/// How many of the first `examples` prompts of a data set cut_document would cut to `longest`. Reads no
/// token.
int64_t count_cut_documents(const TokenDataset& dataset, int64_t examples, int64_t longest);

}  // namespace ripstop
