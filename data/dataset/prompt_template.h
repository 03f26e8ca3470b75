// PromptTemplate: makes the prompt of a document and the example of a pair. Training, evaluation and
// generation use the same prompts.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The default template. It has no space at the end: the space would become a token that running text never
/// has there.
inline constexpr std::string_view kDefaultTemplate = "{document}\n\nTL;DR:";

/// The two parts of a template around {document}.
struct TemplateParts {
  std::string before, separator;  ///< the texts before and after {document}
};

/// Cuts `prompt_template` at {document}. Needs no tokenizer, so prepare can check a template before it trains
/// a tokenizer.
/// Throws Error(kUsage) if {document} is missing or occurs twice.
/// Throws Error(kUsage) if no text follows {document}, or if that text ends in a space.
TemplateParts parse_template(const std::string& prompt_template);

/// Returns `typed` with each "\n" of two characters replaced by a line feed and each "\t" by a tab: between a
/// shell's single quotes a user types them as two characters.
std::string typed_template(std::string typed);

/// The token ids of a prompt: BOS, template and document. Code that cuts the document must keep the tokens
/// from separator_begin on.
struct EncodedPrompt {
  std::vector<int32_t> tokens;
  int64_t separator_begin = 0;
};

/// A template with its tokenizer. Several threads may call const members at once.
class PromptTemplate {
 public:
  /// `tokenizer` must outlive this object. Throws the errors of parse_template().
  PromptTemplate(const Tokenizer& tokenizer, std::string prompt_template);

  const std::string& text() const { return template_; }
  const std::string& separator() const { return parts_.separator; }

  /// The prompt of `document`: BOS, and the ids of the whole text, encoded at once. A token that spans the
  /// end of the document and the start of the separator counts as separator.
  EncodedPrompt encode(std::string_view document) const;
  /// The example of a pair: the prompt of `document`, then a space and `summary`, encoded as the continuation
  /// of the separator, then EOS.
  TokenExample encode_pair(std::string_view document, std::string_view summary) const;
  /// The example of a running text: BOS, text, EOS. All tokens after BOS are targets.
  TokenExample encode_text(std::string_view text) const;

 private:
  int64_t find_separator(const std::vector<int32_t>& ids, std::string_view text, size_t separator_byte) const;

  const Tokenizer* tokenizer_;
  std::string template_;
  TemplateParts parts_;
  std::vector<int32_t> separator_ids_;  // ids of the separator in most prompts; empty if unknown
};

}  // namespace ripstop
