// Small data sets in which each token encodes its example and its position.
#pragma once
#include <cstdint>
#include <filesystem>
#include <random>
#include <vector>

#include "data/dataset/token_dataset_writer.h"

namespace ripstop {

/// Token `place` of example `number`. Unique in the file for numbers below 2,000 and places below 4,096.
inline int32_t marked_token(int64_t number, int64_t place) {
  return static_cast<int32_t>(number * 4096 + place);
}
inline int64_t marked_example(int32_t token) {
  return token / 4096;
}
inline int64_t marked_place(int32_t token) {
  return token % 4096;
}

inline TokenDatasetHeader marked_header(ExampleKind kind) {
  TokenDatasetHeader header;
  header.kind = kind;
  header.vocabulary_size = 2000 * 4096;
  header.tokenizer_sha256 = std::string(64, 'a');
  header.prompt_template = "{document}\n\nTL;DR:";
  header.separator = "\n\nTL;DR:";
  return header;
}

/// The lengths of an example: `document` tokens (BOS included), a separator of three, and `summary` tokens
/// (EOS included).
struct MarkedLengths {
  int64_t document, summary;
  int64_t tokens() const { return document + 3 + summary; }
};

/// Kind kSummary: three parts. Kind kText: `document` tokens alone. Example i has the number `first` + i.
inline void write_marked_dataset(const std::filesystem::path& path, const std::vector<MarkedLengths>& lengths,
                                 ExampleKind kind = ExampleKind::kSummary, int64_t begin_tokens = 1,
                                 int64_t first = 0) {
  TokenDatasetHeader header = marked_header(kind);
  header.begin_tokens = begin_tokens;
  TokenDatasetWriter writer(path, header);
  for (size_t i = 0; i < lengths.size(); ++i) {
    TokenExample example;
    const bool summary = kind == ExampleKind::kSummary;
    const int64_t count = summary ? lengths[i].tokens() : lengths[i].document;
    for (int64_t p = 0; p < count; ++p)
      example.tokens.push_back(marked_token(first + static_cast<int64_t>(i), p));
    const auto document = static_cast<int32_t>(lengths[i].document), end = static_cast<int32_t>(count);
    const auto begin = static_cast<int32_t>(std::min(begin_tokens, lengths[i].document));
    example.spans = {summary ? TargetSpan{document + 3, end, begin, document} : TargetSpan{1, end, 1, 1}};
    writer.add(example);
  }
  writer.finish();
}

/// A turn of `text` tokens between one of a header and one of an end.
struct MarkedTurn {
  bool assistant = false;
  int32_t text = 0;
  bool counts = true;
};

/// Example `number`: two tokens of a head, then `turns`. The header of a turn is no target, its end is one.
inline TokenExample marked_conversation(int64_t number, const std::vector<MarkedTurn>& turns) {
  TokenExample example;
  int32_t at = 2, cut_begin = 0, cut_end = 0;
  for (const MarkedTurn& turn : turns) {
    example.turn_begin.push_back(at);
    const int32_t text = at + 1, end = text + turn.text + 1;
    if (!turn.assistant) {
      cut_begin = text, cut_end = end - 1;
    } else {
      const int32_t target = turn.counts ? text : end;
      if (cut_end == 0) cut_begin = cut_end = target;
      example.spans.push_back({target, end, cut_begin, cut_end});
      cut_end = 0;
    }
    at = end;
  }
  for (int64_t p = 0; p < at; ++p) example.tokens.push_back(marked_token(number, p));
  return example;
}

inline std::vector<MarkedLengths> random_lengths(int64_t count, int64_t longest_document, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<MarkedLengths> lengths;
  for (int64_t i = 0; i < count; ++i) {
    lengths.push_back({1 + static_cast<int64_t>(random() % static_cast<uint32_t>(longest_document)),
                       1 + static_cast<int64_t>(random() % 7)});
  }
  return lengths;
}

}  // namespace ripstop
