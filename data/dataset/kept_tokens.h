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

/// Places begin to end - 1.
struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend auto operator<=>(const TokenRange&, const TokenRange&) = default;
};

/// Parts of an example that stay, ascending, as places that count from its first token. Parts may be empty.
struct KeptTokens {
  std::array<TokenRange, 3> parts;
  bool has_targets = true;  ///< false: no answer of the conversation fits, its tokens are no targets
  int64_t cut_text = 0;     ///< tokens that the document or a kept turn of the user lost
  int64_t cut_summary = 0;  ///< tokens that a pair lost behind its document

  int64_t count() const { return parts[0].size() + parts[1].size() + parts[2].size(); }
};

/// Missing tokens of a cut example.
struct CutPlace {
  int64_t at = 0;                 ///< number of kept tokens before it
  int64_t tokens = 0, turns = 0;  ///< `turns`: whole turns among `tokens`
};

/// Whether `loss_on` applies to files of `kind`.
bool is_word_for(ExampleKind kind, LossOn loss_on);

/// The meaning of data.loss_on for examples of a file with `header`; never kAuto, and of conversations
/// never kAll. A word that applies to other kinds means kAuto. Throws Error(kUsage), which calls the file
/// `name`, if only last turns of its conversations have right targets.
LossOn resolve_loss_on(const TokenDatasetHeader& header, LossOn loss_on,
                       const std::string& name = "the data set");

/// Throws Error(kUsage) if `loss_on` applies to none of `datasets`, which must not be empty.
void require_loss_on(std::span<const TokenDataset> datasets, LossOn loss_on);

/// A note that kAll counts no more than kAssistant in conversations; else "".
std::string loss_on_note(const TokenDatasetHeader& header, LossOn loss_on);

/// Cuts `example` to at most `longest` >= 2 tokens; keeps all of a running text. `loss_on` is resolved.
///
/// A conversation loses turns from its end until a turn of the assistant ends it, for kLast the oldest turns
/// behind head(). If not even one answer fits with the turns before it, the user's text before it loses its
/// end; if that does not suffice, two tokens stay, without targets. A pair loses the end of its document. If
/// that does not suffice, it loses the whole document and the end of its summary.
KeptTokens keep_tokens(const TokenDataset& dataset, int64_t example, int64_t longest, LossOn loss_on);

/// Cuts the prompt of the last span to at most `longest` tokens: keeps head() and the prompt's end. Drops
/// whole turns alone, so the prompt may stay longer than `longest`.
KeptTokens keep_prompt(const TokenDataset& dataset, int64_t example, int64_t longest);

/// The targets of `kept` tokens by a resolved `loss_on`, ascending, as places among the kept tokens.
std::vector<TokenRange> kept_targets(const TokenDataset& dataset, int64_t example, const KeptTokens& kept,
                                     LossOn loss_on);

/// Reads the kept tokens of `example`. Throws the errors of TokenDataset::read_tokens.
std::vector<int32_t> read_kept(const TokenDataset& dataset, int64_t example, const KeptTokens& kept);

/// Where tokens are missing between and behind the parts, ascending.
std::vector<CutPlace> cut_places(const TokenDataset& dataset, int64_t example, const KeptTokens& kept);

/// The place among the kept tokens of `place`, or of the first kept token behind it.
int64_t kept_place(const KeptTokens& kept, int64_t place);

}  // namespace ripstop
