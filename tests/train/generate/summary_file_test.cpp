#include "train/generate/summary_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class SummaryFileTest : public testing::Test {
 protected:
  // "MESSAGE; HINT" without the directory; "" if `name` is taken.
  std::string refusal(const std::string& name, bool replace = false) {
    try {
      check_summary_file(scratch_ / name, replace);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      std::string text = std::string(error.what()) + "; " + error.hint();
      const std::string directory = scratch_.path().string() + "/";
      for (size_t at; (at = text.find(directory)) != std::string::npos;) text.erase(at, directory.size());
      return text;
    }
    return "";
  }

  ScratchDirectory scratch_;
};

TEST_F(SummaryFileTest, AppearsWhenAllIsWritten) {
  write_bytes(scratch_ / "out.jsonl.partial", "of a call that was killed");
  {
    SummaryFile file(scratch_ / "out.jsonl");
    file.append("one");
    file.append("two");
    EXPECT_FALSE(fs::exists(scratch_ / "out.jsonl"));
    file.finish();
  }
  EXPECT_EQ(read_bytes(scratch_ / "out.jsonl"), "one\ntwo\n");
  {
    SummaryFile file(scratch_ / "half.jsonl");
    file.append("one");
  }
  EXPECT_FALSE(fs::exists(scratch_ / "half.jsonl"));
  EXPECT_FALSE(fs::exists(scratch_ / "half.jsonl.partial"));
  EXPECT_FALSE(fs::exists(scratch_ / "out.jsonl.partial"));
}

TEST_F(SummaryFileTest, NamesThatDoNotDoAreRefused) {
  EXPECT_EQ(refusal("out.jsonl"), "");
  EXPECT_EQ(refusal("no/out.jsonl"), "--output no/out.jsonl: there is no directory no; mkdir -p no");
  EXPECT_EQ(refusal("out.jsonl.gz"),
            "--output out.jsonl.gz: summaries are written as plain text; leave --output out and add | gzip "
            ">out.jsonl.gz");
  fs::create_directory(scratch_ / "folder");
  EXPECT_EQ(refusal("folder"),
            "--output folder is a directory, expected a file; --output folder/summaries.jsonl");
  // As mktemp makes it.
  write_bytes(scratch_ / "out.jsonl", "");
  EXPECT_EQ(refusal("out.jsonl"), "");
  write_bytes(scratch_ / "out.jsonl", "{}\n");
  EXPECT_EQ(refusal("out.jsonl"),
            "--output out.jsonl exists already; give another name, or --force to replace it");
  EXPECT_EQ(refusal("out.jsonl", true), "");
  // It would be replaced by a file.
  try {
    check_summary_file("/dev/null", true);
    FAIL() << "a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.hint(), "leave --output out and add >/dev/null");
  }
}

TEST_F(SummaryFileTest, AFullDiskSaysItsReason) {
  // A limit on file sizes stands for a full disk: writes beyond it fail with EFBIG once its signal is
  // ignored.
  struct rlimit old {};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 10, old.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  std::string what;
  try {
    SummaryFile file(scratch_ / "out.jsonl");
    file.append(std::string(1 << 11, 'x'));
    file.finish();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
    what = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(what.find("out.jsonl.partial: cannot write"), std::string::npos) << what;
  EXPECT_NE(what.find("File too large"), std::string::npos) << what;
  EXPECT_FALSE(fs::exists(scratch_ / "out.jsonl"));
  EXPECT_FALSE(fs::exists(scratch_ / "out.jsonl.partial"));
}

}  // namespace
}  // namespace ripstop
