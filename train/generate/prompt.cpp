#include "train/generate/prompt.h"

#include <algorithm>

#include "model/core/error.h"

namespace ripstop {

EncodedPrompt stored_prompt(const TokenDataset& dataset, int64_t example) {
  const int64_t begin = dataset.example_begin(example);
  const int64_t end = dataset.target_begin(example);
  EncodedPrompt prompt{std::vector<int32_t>(static_cast<size_t>(end - begin)),
                       dataset.separator_begin(example) - begin};
  dataset.read_tokens(begin, end, prompt.tokens.data());
  return prompt;
}

int64_t cut_document(EncodedPrompt& prompt, int64_t longest) {
  const int64_t surplus = std::max<int64_t>(std::ssize(prompt.tokens) - longest, 0);
  const int64_t document = prompt.separator_begin - 1;  // without BOS
  if (surplus > document)
    throw Error(ExitCode::kUsage,
                fmt::format("the prompt has room for {} tokens, but has {} without its document", longest,
                            std::ssize(prompt.tokens) - document),
                "generate fewer tokens (--max-new-tokens)");
  const auto end = prompt.tokens.begin() + prompt.separator_begin;
  // The document loses its end. BOS and separator stay, because the model needs both to begin a summary.
  prompt.tokens.erase(end - surplus, end);
  prompt.separator_begin -= surplus;
  return surplus;
}

int64_t count_cut_documents(const TokenDataset& dataset, int64_t examples, int64_t longest) {
  int64_t cut = 0;
  for (int64_t i = 0; i < examples; ++i)
    if (dataset.target_begin(i) - dataset.example_begin(i) > longest) ++cut;
  return cut;
}

}  // namespace ripstop
