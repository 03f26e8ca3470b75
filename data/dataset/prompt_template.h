// PromptTemplate: makes prompts of documents and examples of pairs, for training, evaluation and generation
// alike.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// Has no space at the end: the space would become a token that running text never has there.
inline constexpr std::string_view kDefaultTemplate = "{document}\n\nTL;DR:";

/// A template cut at its {document}.
struct TemplateParts {
  std::string before, separator;  ///< the texts before and after {document}
};

/// Cuts `prompt_template`. Throws Error(kUsage) if it has no {document} or two, no text after it, or ends in
/// a space. Needs no tokenizer, so prepare can check a template before it trains a tokenizer.
TemplateParts parse_template(const std::string& prompt_template);

/// Replaces \n by a line feed and \t by a tab: a shell's single quotes leave them as two characters.
std::string typed_template(std::string typed);

/// The ids of BOS, template and document. Cutting the document must keep [separator_begin, end).
struct EncodedPrompt {
  std::vector<int32_t> tokens;
  int64_t separator_begin = 0;
};

/// A template and its tokenizer. Several threads may call const members.
class PromptTemplate {
 public:
  /// `tokenizer` must outlive it. Throws the errors of parse_template.
  PromptTemplate(const Tokenizer& tokenizer, std::string prompt_template);

  const std::string& text() const { return template_; }
  const std::string& separator() const { return parts_.separator; }

  /// The prompt of a document: BOS, and the ids of the whole text encoded at once. A token that spans the
  /// document's end and the separator's begin belongs to the separator.
  EncodedPrompt encode(std::string_view document) const;
  /// The prompt, the summary as continuation of the separator and a space, EOS.
  TokenExample encode_pair(std::string_view document, std::string_view summary) const;
  /// Running text: BOS, text, EOS. All tokens after BOS are targets.
  TokenExample encode_text(std::string_view text) const;

 private:
  int64_t find_separator(const std::vector<int32_t>& ids, std::string_view text, size_t separator_byte) const;

  const Tokenizer* tokenizer_;
  std::string template_;
  TemplateParts parts_;
  std::vector<int32_t> separator_ids_;  // the usual ids of the separator; empty if unknown
};

}  // namespace ripstop
