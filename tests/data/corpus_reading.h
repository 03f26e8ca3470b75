// Helpers of the tests of corpora.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {

inline std::vector<CorpusExample> read_all(CorpusSource source, CorpusCounts* counts = nullptr) {
  std::vector<CorpusExample> examples;
  CorpusProgress progress;
  const CorpusCounts found =
      read_corpus(resolve_source(std::move(source)), progress,
                  [&](CorpusExample& example) { examples.push_back(std::move(example)); });
  if (counts != nullptr) *counts = found;
  return examples;
}

inline CorpusSource source_of(std::vector<std::filesystem::path> inputs,
                              SourceKind kind = SourceKind::kAuto) {
  CorpusSource source;
  source.kind = kind;
  source.inputs = std::move(inputs);
  return source;
}

/// Expects an Error with `code` whose message is one line with all `words`.
template <class Action>
void expect_error(ExitCode code, const std::vector<std::string>& words, Action&& action) {
  const std::string what = what_of(action, code);
  for (const std::string& word : words) EXPECT_HAS(what, word);
}

/// The hint of the error that resolve_source throws.
inline std::string hint_for(const CorpusSource& source) {
  return error_of([&] { resolve_source(source); }).hint();
}

}  // namespace ripstop
