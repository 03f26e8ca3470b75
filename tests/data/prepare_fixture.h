// A small corpus to prepare.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/prepare/prepare.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_error.h"

namespace ripstop {

inline std::vector<int32_t> tokens_of(const TokenDataset& dataset, int64_t example) {
  std::vector<int32_t> ids(
      static_cast<size_t>(dataset.example_end(example) - dataset.example_begin(example)));
  dataset.read_tokens(dataset.example_begin(example), dataset.example_end(example), ids.data());
  return ids;
}

/// A small corpus, a tokenizer, and options for prepare with the output `out`.
class PrepareTest : public testing::Test {
 protected:
  PrepareTest() {
    write_bytes(scratch_ / "tokenizer.model", small_model());
    write_bytes(scratch_ / "c/train.jsonl",
                "{\"document\": \"The harbour opened on Monday.\", \"summary\": \"The harbour opened.\", "
                "\"id\": \"a\"}\n"
                "{\"document\": \"The market closed on Tuesday.\", \"summary\": \"The market closed.\", "
                "\"id\": \"b\"}\n");
    write_bytes(scratch_ / "c/validation.jsonl",
                "{\"document\": \"Old — bridge\\n\\nnear.\", \"summary\": \"A bridge.\", \"id\": \"v\"}\n");
    write_bytes(scratch_ / "c/test.jsonl",
                "{\"document\": \"new police\", \"summary\": \"police\", \"id\": \"t\"}\n");
    options_.source.inputs = {scratch_ / "c"};
    options_.tokenizer = scratch_ / "tokenizer.model";
    options_.output = scratch_ / "out";
  }
  /// Expects prepare to throw `code` with `word` in its one line, and to leave no files.
  void expect_refused(ExitCode code, const std::string& word) {
    std::vector<std::filesystem::path> before = listing();
    expect_error([&] { prepare(options_); }, code, word);
    EXPECT_EQ(listing(), before) << "left something behind";
  }
  /// The hint of the error that prepare throws.
  std::string refused_hint() const {
    return error_of([&] { prepare(options_); }).hint();
  }
  std::vector<std::filesystem::path> listing() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  ScratchDirectory scratch_;
  PrepareOptions options_;
};

}  // namespace ripstop
