// Turns a document into a prompt, and a pair into an example: the same for training, evaluation and
// generation.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// No space at the end: a lone space would become a token that running text never has.
inline constexpr std::string_view kDefaultTemplate = "{document}\n\nTL;DR:";

/// A template cut at its {document}.
struct TemplateParts {
  std::string before;
  std::string separator;  ///< the text after the document
};

/// Cuts `prompt_template`. Throws Error(kUsage) if it has no {document}, two, no text after it, or ends in a
/// space. Needs no tokenizer, so that a mistake is known before one is learnt.
TemplateParts parse_template(const std::string& prompt_template);

/// The template that `typed` means on a command line: \n is a line feed and \t a tab, as every example spells
/// them; a shell's single quotes leave them as two characters.
std::string typed_template(std::string typed);

/// BOS, template and document as ids. If the document is cut, [separator_begin, end) must stay.
struct EncodedPrompt {
  std::vector<int32_t> tokens;
  int64_t separator_begin = 0;
};

/// A template with exactly one `{document}` and text after it. Const members may be called from several
/// threads.
class PromptTemplate {
 public:
  /// `tokenizer` must outlive it. Throws the errors of parse_template.
  PromptTemplate(const Tokenizer& tokenizer, std::string prompt_template);

  const std::string& text() const { return template_; }
  /// The text after the document.
  const std::string& separator() const { return parts_.separator; }

  /// The prompt of a document. Its ids are BOS and those of the whole text encoded at once. A token that
  /// holds both the document's end and the separator's begin belongs to the separator.
  EncodedPrompt encode(std::string_view document) const;
  /// The prompt, then the summary as it goes on after the separator and a space, then EOS.
  TokenExample encode_pair(std::string_view document, std::string_view summary) const;
  /// Running text: BOS, text, EOS; every token counts.
  TokenExample encode_text(std::string_view text) const;

 private:
  int64_t find_separator(const std::vector<int32_t>& ids, std::string_view text, size_t separator_byte) const;

  const Tokenizer* tokenizer_;
  std::string template_;
  TemplateParts parts_;
  std::vector<int32_t> separator_ids_;  // the usual ids of the separator; empty if they are not certain
};

}  // namespace ripstop
