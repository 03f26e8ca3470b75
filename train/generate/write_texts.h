// Prompts in, texts out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "model/core/function_ref.h"
#include "train/generate/inference_model.h"
#include "train/generate/prompt.h"

namespace ripstop {

using NextEncodedPrompt = FunctionRef<std::optional<EncodedPrompt>()>;
using TakeText = FunctionRef<void(std::string text)>;

/// Generates the text after each prompt, greedily, up to the end token or `max_new_tokens`, and gives the
/// texts to `take` in the order of the prompts. Cuts a document (cut_document) if it leaves too little room
/// in the model's context. The texts have no white space at their ends. All ranks of a tensor group call with
/// equal prompts.
void write_texts(InferenceModel& model, const Tokenizer& tokenizer, int64_t max_new_tokens,
                 NextEncodedPrompt next_prompt, TakeText take);

}  // namespace ripstop
