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

/// The text after a prompt.
struct WrittenText {
  std::string text;        ///< without white space at its ends
  int64_t cut_tokens = 0;  ///< that the document lost because it did not fit
};

using TakeText = FunctionRef<void(WrittenText written)>;

/// Generates the text after each prompt, greedily, up to the end token or `max_new_tokens`, and gives the
/// texts to `take` in the order of the prompts. Cuts a document (cut_document) if it leaves too little room
/// in the model's context. All ranks of a tensor group call with equal prompts.
void write_texts(InferenceModel& model, const Tokenizer& tokenizer, int64_t max_new_tokens,
                 NextEncodedPrompt next_prompt, TakeText take);

}  // namespace ripstop
