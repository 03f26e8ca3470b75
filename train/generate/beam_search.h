// Beam search over the continuations of one prompt.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/generate/generate.h"

namespace ripstop {

/// A beam search for the best continuation of one prompt. Each step continues every beam by one token: of all
/// continuations the 2 * num_beams most likely ones are looked at; those that end (end token or
/// max_new_tokens) and are among the first num_beams of them are kept as texts with the score sum of log
/// probabilities / length^length_penalty, of which the best num_beams stay; the best num_beams others are the
/// next beams. A length counts the new tokens with the end token. settings.early_stopping says when it ends.
/// Log probabilities and scores are float32; equal ones go by beam, then by id. The ids are those of
/// transformers' generate() for the same logits.
///
/// Keys and values: the beams of a search share a slot of the cache. All read the prompt; the new token
/// number j of beam b lies in place prompt + j * num_beams + b, which no other token uses, so a beam that
/// branches off another one copies a list of places, never keys and values.
///
/// Source: the vectorized beam search of transformers 5 (generation/utils.py).
class BeamSearch {
 public:
  using Next = LogitRow;

  /// `options` must outlive it.
  BeamSearch(const GenerateOptions& options, NumberedPrompt prompt);

  /// The rows to compute next in `slot`: the prompt, later the last token of each beam. There are at most
  /// num_beams. They refer to this object.
  void add_rows(int64_t slot, std::vector<SlotTokens>& rows) const;
  /// Takes the logits after these rows. Returns true at the end of the search.
  bool accept(std::span<const LogitRow> next);
  /// The best text, after the end.
  Continuation take();

 private:
  struct Beam {
    std::vector<int32_t> tokens;       // the prompt, too
    std::vector<int32_t> places = {};  // in the cache, of the new tokens
    float score = 0;                   // sum of log probabilities
  };
  struct Candidate {
    size_t beam = 0;
    int32_t id = 0;
    float score = 0;
  };
  struct EndedText {
    std::vector<int32_t> tokens;
    bool ended = false;  // by the end token
    float score = 0;
  };
  std::vector<Candidate> best_candidates(std::span<const LogitRow> next) const;
  bool ends(const Candidate& candidate) const;
  void keep(std::vector<int32_t> tokens, bool ended, float sum);
  void continue_with(const std::vector<Candidate>& candidates);
  bool can_improve() const;

  const GenerateOptions& options_;
  int64_t prompt_;      // tokens of the prompt
  int64_t length_ = 0;  // new tokens of every beam
  std::vector<Beam> beams_;
  std::vector<EndedText> ended_;  // best first
};

}  // namespace ripstop
