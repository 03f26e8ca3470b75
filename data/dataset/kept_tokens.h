// Cuts of examples that are longer than a sequence.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/loss_on.h"
#include "data/dataset/token_dataset.h"

namespace ripstop {

/// Token indices begin .. end - 1.
struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend auto operator<=>(const TokenRange&, const TokenRange&) = default;
};

/// Parts of an example that stay, ascending; some may be empty. Indices count from the example's first token.
struct KeptTokens {
  std::array<TokenRange, 3> parts;
  bool has_targets = true;  ///< false: the answer to be kept does not fit; no token is a target
  int64_t cut_text = 0;     ///< tokens that the document or a kept turn of the user lost
  int64_t cut_summary = 0;  ///< tokens that a pair lost outside its document

  int64_t count() const { return parts[0].size() + parts[1].size() + parts[2].size(); }
};

/// Missing tokens of a cut example.
struct CutPlace {
  int64_t at = 0;                 ///< number of kept tokens before the missing ones
  int64_t tokens = 0, turns = 0;  ///< `turns`: whole turns among `tokens`
};

/// Resolves data.loss_on for a file with `header`: never returns kAuto, nor kAll for conversations. A word
/// for other kinds counts as kAuto. Throws Error(kUsage) with the file's `name` if the result needs all
/// turns of the assistant, but only the last turns have right targets.
LossOn resolve_loss_on(const TokenDatasetHeader& header, LossOn loss_on,
                       const std::string& name = "the data set");

/// Throws Error(kUsage) if `loss_on` applies to none of `datasets`, which must not be empty.
void require_loss_on(std::span<const TokenDataset> datasets, LossOn loss_on);

/// A note that kAll means kAssistant, if `loss_on` is kAll and the file has conversations; else "".
std::string loss_on_note(const TokenDatasetHeader& header, LossOn loss_on);

/// Cuts `example` to at most `longest` >= 2 tokens; keeps all of a running text. `loss_on` must be resolved.
///
/// A conversation loses turns at its end, so that it ends with a turn of the assistant; for kLast, it loses
/// the oldest turns behind head(). If not even one answer fits with the turns before it, the user's text
/// before that answer loses its end; if that is not enough, two tokens stay, without targets. A pair loses
/// the end of its document; if that is not enough, all of its document and the end of the rest.
KeptTokens keep_tokens(const TokenDataset& dataset, int64_t example, int64_t longest, LossOn loss_on);

/// Shortens the prompt of the last span towards `longest` tokens: keeps head() and the prompt's end. Drops
/// only whole turns, so the prompt may stay longer than `longest`.
KeptTokens keep_prompt(const TokenDataset& dataset, int64_t example, int64_t longest);

/// The targets of `kept` tokens by a resolved `loss_on`, ascending, as indices among the kept tokens.
std::vector<TokenRange> kept_targets(const TokenDataset& dataset, int64_t example, const KeptTokens& kept,
                                     LossOn loss_on);

/// Reads the kept tokens of `example`. Throws the errors of TokenDataset::read_tokens.
std::vector<int32_t> read_kept(const TokenDataset& dataset, int64_t example, const KeptTokens& kept);

/// The gaps before, between and behind the parts, ascending.
std::vector<CutPlace> cut_places(const TokenDataset& dataset, int64_t example, const KeptTokens& kept);

/// The number of kept tokens before the example's token `place`; its index among them if it is kept.
int64_t kept_place(const KeptTokens& kept, int64_t place);

}  // namespace ripstop
