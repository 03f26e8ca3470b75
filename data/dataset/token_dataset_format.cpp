#include "data/dataset/token_dataset_format.h"

#include "data/files/hash.h"

namespace ripstop {

std::string_view to_string(ExampleKind kind) {
  return kind == ExampleKind::kSummary ? "summary" : "text";
}

std::string content_hash(const TokenDatasetHeader& header, const std::array<std::string, 4>& parts,
                         const std::string& text_hash) {
  StreamHash hash;
  // The lengths of template and separator keep a text that holds line ends from looking like the next part.
  hash.update(fmt::format("ripstop tokens {}\n{}\n{}\n{}\n{}:{}\n{}:{}\n", kTokenDatasetVersion,
                          to_string(header.kind), header.vocabulary_size, header.tokenizer_sha256,
                          header.prompt_template.size(), header.prompt_template, header.separator.size(),
                          header.separator));
  for (const std::string& part : parts) hash.update(part + "\n");
  hash.update(text_hash);
  return hash.hex();
}

}  // namespace ripstop
