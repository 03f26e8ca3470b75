#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// No space at the end: it would become a token of its own, which ordinary text does not have there.
inline constexpr std::string_view kDefaultTemplate = "{document}\n\nTL;DR:";

struct TemplateParts {
  std::string before, separator;  ///< texts before and after {document}
};

/// Cuts `prompt_template` at {document}. Throws Error(kUsage) if {document} is missing or occurs twice, or if
/// the text after it is empty or ends in a space.
TemplateParts parse_template(const std::string& prompt_template);

/// Replaces "\n" and "\t" in `typed`, two characters each, by a line feed and a tab.
std::string typed_template(std::string typed);

/// A prompt: Tokenizer::begin, template and document. Code that cuts the document must keep the first
/// begin_tokens tokens, and all tokens from separator_begin on.
struct EncodedPrompt {
  std::vector<int32_t> tokens;
  int64_t separator_begin = 0;
  int64_t begin_tokens = 1;
};

/// Makes a prompt of a document, or an example of a pair. Several threads may call const members at once.
class PromptTemplate {
 public:
  /// `tokenizer` must outlive this object. Throws the errors of parse_template(), and Error(kUsage) if the
  /// prompt of an empty document has no token.
  PromptTemplate(const Tokenizer& tokenizer, std::string prompt_template);

  const std::string& text() const { return template_; }
  const std::string& separator() const { return parts_.separator; }

  /// Returns Tokenizer::begin and the ids of the whole prompt, encoded in one piece. A token that spans the
  /// end of the document and the start of the separator counts as separator.
  EncodedPrompt encode(std::string_view document) const;
  /// The prompt of `document`, then `summary` (Tokenizer::encode_continuation), then Tokenizer::eos.
  TokenExample encode_pair(std::string_view document, std::string_view summary) const;
  /// Tokenizer::begin, `text`, Tokenizer::eos. Every token is a target except the begin tokens; without begin
  /// tokens, every token except the first.
  TokenExample encode_text(std::string_view text) const;

 private:
  int64_t find_separator(const std::vector<int32_t>& tokens, std::string_view text,
                         size_t separator_byte) const;

  const Tokenizer* tokenizer_;
  std::string template_;
  TemplateParts parts_;
  std::vector<int32_t> separator_ids_;  // ids of the separator in most prompts; empty if unknown
};

}  // namespace ripstop
