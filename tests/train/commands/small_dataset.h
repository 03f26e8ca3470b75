// Writes a small data set of short summaries, for tests of whole runs.
#pragma once
#include <fmt/format.h>

#include <filesystem>

#include "data/dataset/prompt_template.h"
#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/small_tokenizer.h"

namespace ripstop {

/// Writes `examples` documents of many lengths, with texts. Their numbers begin at `first`.
inline void write_small_dataset(const std::filesystem::path& path, int64_t first, int64_t examples) {
  const Tokenizer tokenizer(small_model(), "small");
  const PromptTemplate prompt(tokenizer, std::string(kDefaultTemplate));
  TokenDatasetHeader header = header_of(tokenizer);
  header.prompt_template = prompt.text();
  header.separator = prompt.separator();
  header.with_text = true;
  TokenDatasetWriter writer(path, header);
  for (int64_t i = first; i < first + examples; ++i) {
    std::string document = "The council said";
    for (int64_t w = 0; w < i * 5 % 23; ++w) document += fmt::format(" that {} old market", i * w);
    const ExampleText text{fmt::format("id{}", i), document, fmt::format("The bridge {} opened.", i)};
    writer.add(prompt.encode_pair(text.document, text.summary), &text);
  }
  writer.finish();
}

}  // namespace ripstop
