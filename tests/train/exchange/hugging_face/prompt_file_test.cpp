#include "train/exchange/hugging_face/generation_file.h"

#include <gtest/gtest.h>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

TEST(PromptFile, IsReadBackEqual) {
  const ScratchDirectory scratch;
  EXPECT_FALSE(read_prompt_json(scratch.path()));
  const ExportedPrompt prompt{.prompt_template = "Read \"this\":\n{document}\n\nTL;DR:", .context = 96};
  write_bytes(scratch / kPromptFile, prompt_json(prompt));
  EXPECT_EQ(read_prompt_json(scratch.path()), prompt);
}

TEST(PromptFile, DamageIsRefused) {
  const ScratchDirectory scratch;
  for (const char* text :
       {"{", R"({"template": "{document} TL;DR:"})", R"({"template": "none", "context": 96})",
        R"({"template": "{document} TL;DR:", "context": 0})", R"({"template": 5, "context": 96})"}) {
    write_bytes(scratch / kPromptFile, text);
    SCOPED_TRACE(text);
    expect_error([&] { (void)read_prompt_json(scratch.path()); }, ExitCode::kInputData,
                 "ripstop_prompt.json");
  }
}

}  // namespace
}  // namespace ripstop
