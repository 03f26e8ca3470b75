// Replays the inputs in tests/fuzz/corpus/tokenizer: what is promised of every tokenizer.json must hold.
#include <gtest/gtest.h>

#include "tests/fuzz/tokenizer_input.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

TEST(TokenizerFuzzCorpus, TokenizerJson) {
  int64_t accepted = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(RIPSTOP_SOURCE_DIR) /
                                                               "tests" / "fuzz" / "corpus" / "tokenizer")) {
    SCOPED_TRACE(entry.path().string());
    EXPECT_NO_THROW(++(try_tokenizer_json(read_text(entry.path())) ? accepted : refused));
  }
  EXPECT_GT(accepted, 10) << "else the corpus proves little";
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace ripstop
