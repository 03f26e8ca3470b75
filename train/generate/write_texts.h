// Prompts in, texts out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "model/core/function_ref.h"
#include "train/generate/inference_model.h"
#include "train/generate/prompt.h"

namespace ripstop {

/// The prompt of a document, and the document's number in its file or split.
struct DocumentPrompt {
  EncodedPrompt encoded;
  int64_t number = 0;  ///< random choices depend on it
};

using NextDocumentPrompt = FunctionRef<std::optional<DocumentPrompt>()>;

/// The text after a prompt.
struct WrittenText {
  std::string text;        ///< without white space at its ends
  int64_t cut_tokens = 0;  ///< that the document lost because it did not fit
};

using TakeText = FunctionRef<void(WrittenText written)>;

/// Generates the text after each prompt as `settings` say (see generate()), and gives the texts to `take` in
/// the order of the prompts. `model` was made for these settings (InferenceOptions::of). Only ids that the
/// tokenizer has are written, though a model may have more. Cuts a document (cut_document) if it leaves too
/// little room in the model's context. All ranks of a tensor group call with equal prompts.
void write_texts(InferenceModel& model, const Tokenizer& tokenizer, const GenerationSettings& settings,
                 NextDocumentPrompt next_prompt, TakeText take);

}  // namespace ripstop
