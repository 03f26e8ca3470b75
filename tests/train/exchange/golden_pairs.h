// Pairs of documents and summaries for training, the same as in tests/golden/make_finetuning.py and
// make_lora.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "tests/train/step/mesh_training.h"

namespace ripstop::golden_pairs {

using mesh_training::Sequence;

inline constexpr int32_t kBegin = 1, kEnd = 2;

/// A document and its summary as ids.
struct IdPair {
  std::vector<int32_t> document, summary;
};

/// A checksum of all ids. The Python program has the same, if it has read the same pairs.
inline uint32_t checksum(const std::vector<IdPair>& pairs) {
  uint32_t value = 0;
  for (const IdPair& pair : pairs) {
    for (const int32_t id : pair.document) value = value * 31 + static_cast<uint32_t>(id);
    value = value * 31 + kBegin;
    for (const int32_t id : pair.summary) value = value * 31 + static_cast<uint32_t>(id);
    value = value * 31 + kEnd;
  }
  return value;
}

/// Appends an example: a row for each id except the last. The targets are the summary and EOS.
inline void append(Sequence& sequence, const IdPair& pair) {
  std::vector<int32_t> ids = {kBegin};
  ids.insert(ids.end(), pair.document.begin(), pair.document.end());
  ids.insert(ids.end(), pair.summary.begin(), pair.summary.end());
  ids.push_back(kEnd);
  sequence.document.push_back(static_cast<int32_t>(sequence.token.size()));
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    sequence.token.push_back(ids[i]);
    sequence.target.push_back(i >= pair.document.size() ? ids[i + 1] : -1);
    sequence.position.push_back(static_cast<int32_t>(i));
  }
}

/// Fills sequences in order. The free end of a sequence is a document without targets.
inline std::vector<Sequence> packed(const std::vector<IdPair>& pairs, int64_t positions) {
  std::vector<Sequence> sequences(1);
  const auto close = [&] {
    Sequence& last = sequences.back();
    for (int32_t i = 0; std::ssize(last.token) < positions; ++i) {
      if (i == 0) last.document.push_back(static_cast<int32_t>(last.token.size()));
      last.token.push_back(0);
      last.target.push_back(-1);
      last.position.push_back(i);
    }
  };
  for (const IdPair& pair : pairs) {
    const int64_t rows = std::ssize(pair.document) + std::ssize(pair.summary) + 1;
    if (std::ssize(sequences.back().token) + rows > positions) {
      close();
      sequences.emplace_back();
    }
    append(sequences.back(), pair);
  }
  close();
  return sequences;
}

/// The invented pairs of finetuning.json.
inline std::vector<IdPair> synthetic_pairs(const nlohmann::json& finetuning) {
  std::vector<IdPair> pairs;
  for (const nlohmann::json& pair : finetuning["synthetic"]["pairs"]) pairs.push_back({pair[0], pair[1]});
  return pairs;
}

/// The first `count` articles of a file, each with the first `document_tokens` ids of its document.
inline std::vector<IdPair> article_pairs(const std::filesystem::path& model,
                                         const std::filesystem::path& articles, const nlohmann::json& one) {
  const Tokenizer tokenizer(model);
  std::vector<IdPair> pairs;
  std::ifstream lines(articles);
  for (std::string line; std::ssize(pairs) < one["count"].get<int64_t>() && std::getline(lines, line);) {
    const nlohmann::json article = nlohmann::json::parse(line);
    IdPair pair{tokenizer.encode(article["document"].get<std::string>()),
                tokenizer.encode(article["summary"].get<std::string>())};
    pair.document.resize(std::min(pair.document.size(), one["document_tokens"].get<size_t>()));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace ripstop::golden_pairs
