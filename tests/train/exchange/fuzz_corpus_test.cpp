// Replays the inputs in tests/fuzz/corpus: the result must be the same as in the fuzzer, read or refused.
#include <gtest/gtest.h>

#include "tests/fuzz/torch_inputs.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

class FuzzCorpus : public testing::Test {
 protected:
  /// Gives every file of tests/fuzz/corpus/KIND to `member`. Both results must occur, or the corpus proves
  /// little.
  template <class Inputs>
  static void replay(const std::string& kind,
                     PretrainedInputs::Outcome (Inputs::*member)(const std::string&) const) {
    const Inputs inputs;
    const std::filesystem::path corpus =
        std::filesystem::path(RIPSTOP_SOURCE_DIR) / "tests" / "fuzz" / "corpus" / kind;
    int64_t accepted = 0, refused = 0;
    for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
      SCOPED_TRACE(entry.path().string());
      EXPECT_NO_THROW({
        const PretrainedInputs::Outcome outcome = (inputs.*member)(read_text(entry.path()));
        ++(outcome.accepted ? accepted : refused);
      });
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(refused, 20);
  }
};

TEST_F(FuzzCorpus, HeadersOfSafetensors) {
  replay("header", &PretrainedInputs::header);
}
TEST_F(FuzzCorpus, Configs) {
  replay("config", &PretrainedInputs::config);
}
TEST_F(FuzzCorpus, AdapterConfigs) {
  replay("adapter", &PretrainedInputs::adapter);
}
TEST_F(FuzzCorpus, ArchivesOfTorch) {
  replay("archive", &TorchInputs::archive);
}
TEST_F(FuzzCorpus, PicklesOfStateDicts) {
  replay("pickle", &TorchInputs::pickle);
}
TEST_F(FuzzCorpus, Indexes) {
  replay("index", &PretrainedInputs::index);
}

}  // namespace
}  // namespace ripstop
