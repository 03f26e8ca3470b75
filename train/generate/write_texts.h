#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/prompt_template.h"
#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "train/generate/inference_model.h"

namespace ripstop {

/// Reads the prompt of `example`: the tokens before its last target span. A prompt of a conversation that is
/// longer than `longest` tokens loses its oldest turns (keep_prompt). Any thread may call. Throws the errors
/// of TokenDataset::read_tokens.
EncodedPrompt stored_prompt(const TokenDataset& dataset, int64_t example, int64_t longest);

/// Removes tokens from the end of the document, [begin_tokens, separator_begin), until the prompt has at most
/// `longest` tokens. If the rest of the prompt is too long for that, keeps only the end of a conversation; of
/// other prompts, or if `longest` is 0, throws Error(kUsage). Returns the number of removed tokens.
int64_t cut_document(EncodedPrompt& prompt, int64_t longest);

/// Throws the error of cut_document() if the first prompt of the data set, without its document, is longer
/// than `longest` tokens. In pairs, this length hardly differs. Conversations can be cut to one token.
void require_room(const TokenDataset& dataset, int64_t longest);

/// The number of prompts among the first `examples` that are longer than `longest` tokens. Reads no token.
int64_t count_cut_documents(const TokenDataset& dataset, int64_t examples, int64_t longest);

struct DocumentPrompt {
  EncodedPrompt encoded;
  int64_t number = 0;  ///< number in the file or split: part of the key of random numbers
};

/// Returns nullopt if there are no more prompts.
using NextDocumentPrompt = FunctionRef<std::optional<DocumentPrompt>()>;

/// The text after a prompt.
struct WrittenText {
  std::string text;        ///< the text without white space at its ends
  int64_t cut_tokens = 0;  ///< tokens of dropped turns, and tokens that cut_document() removed
  bool at_limit = false;   ///< no end token was generated (Continuation::ended)
};

/// Called for each prompt, in order.
using TakeText = FunctionRef<void(WrittenText written)>;

/// Generates the text after each prompt, up to the tokenizer's EOS or an id of settings.eos_token_id. `model`
/// must be made for `settings` and `tokenizer` (InferenceOptions::of). Generates only ids of the tokenizer
/// and end tokens, even if the model has more ids. Cuts documents to leave room for max_new_tokens in the
/// context. All ranks of a tensor group must make this call with equal prompts.
void write_texts(InferenceModel& model, const Tokenizer& tokenizer, const GenerationSettings& settings,
                 NextDocumentPrompt next_prompt, TakeText take);

/// write_texts() for the prompts prompt_of(0) to prompt_of(count - 1), dealt to the replicas in turn. Returns
/// all texts, in order, on every rank. Collective.
std::vector<WrittenText> write_dealt_texts(InferenceModel& model, const Tokenizer& tokenizer,
                                           const GenerationSettings& settings, int64_t count,
                                           FunctionRef<DocumentPrompt(int64_t i)> prompt_of);

/// Gathers texts on every rank in order: replica r of R made the texts r, r + R, r + 2R, ... `own` are this
/// rank's texts; the first of the `tensor` ranks of a replica sends them (ranks of `world` are in mesh order,
/// tensor fastest). The first replicas may have one more. Throws Error(kCommunication or kBug). Collective.
std::vector<std::string> gather_dealt(Communicator& world, int64_t tensor,
                                      const std::vector<std::string>& own);

/// Puts texts into the order of gather_dealt without communication: `dealt` has the texts of each replica.
/// Throws Error(kBug) if a replica has too many or too few texts.
std::vector<std::string> merge_dealt(std::vector<std::vector<std::string>> dealt);

}  // namespace ripstop
