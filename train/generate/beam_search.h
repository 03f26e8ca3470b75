#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/generate/generate.h"

namespace ripstop {

/// A beam search for the best continuation of one prompt. A step takes the num_beams * (1 + end tokens) most
/// likely continuations of all beams by one token, best first. A continuation among the first num_beams that
/// ends (by an end token or max_new_tokens) becomes a text with the score (sum of log probabilities) /
/// length^length_penalty; the best num_beams texts are kept. The best num_beams continuations that do not end
/// are the next beams. A length counts the new tokens and the end token. settings.early_stopping decides when
/// the search ends. Log probabilities and scores are float32; ties go to the lower beam, then to the larger
/// logit, then to the lower id. The result equals transformers' generate() for the same logits.
///
/// The beams share a slot of the key-value cache. All beams read the places of the prompt. New token j of
/// beam b has its own place, prompt + j * num_beams + b, so a beam that continues another beam copies a list
/// of places, no keys and values.
///
/// Source: the vectorized beam search of transformers 5 (generation/utils.py).
class BeamSearch {
 public:
  using Next = LogitRow;

  BeamSearch(const GenerateOptions& options, NumberedPrompt prompt);

  /// Adds to `rows` the tokens for the model's next call in `slot`: first the prompt, later the last token of
  /// each beam. The rows borrow from this object.
  void add_rows(int64_t slot, std::vector<SlotTokens>& rows) const;
  /// Takes the model's logits for the rows of add_rows(). Returns true when the search has ended.
  bool accept(std::span<const LogitRow> next);
  /// The best text. Requires that accept() has returned true.
  Continuation take();

 private:
  struct Beam {
    std::vector<int32_t> tokens;       // prompt and new tokens
    std::vector<int32_t> places = {};  // places of the new tokens in the cache
    float score = 0;                   // sum of log probabilities
  };
  struct Candidate {
    size_t beam = 0;
    int32_t id = 0;
    float score = 0;
  };
  struct EndedText {
    std::vector<int32_t> tokens;
    bool ended = false;  // an end token has ended the text
    float score = 0;
  };
  std::vector<Candidate> best_candidates(std::span<const LogitRow> next) const;
  bool ends(const Candidate& candidate) const;
  void keep(std::vector<int32_t> tokens, bool ended, float sum);
  void continue_with(const std::vector<Candidate>& candidates);
  bool can_improve() const;

  const GenerateOptions& options_;
  int64_t prompt_;      // number of tokens of the prompt
  int64_t length_ = 0;  // number of new tokens, equal in all beams
  std::vector<Beam> beams_;
  std::vector<EndedText> ended_;  // best first
};

}  // namespace ripstop
