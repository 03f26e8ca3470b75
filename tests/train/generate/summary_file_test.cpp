#include "train/generate/document_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "data/process/process_identity.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class SummaryFileTest : public testing::Test {
 protected:
  // The error "MESSAGE | HINT" without the directory; "" if `name` is accepted.
  std::string refusal(const std::string& name, bool replace = false) {
    std::string text =
        what_and_hint_of([&] { check_summary_file(scratch_ / name, replace); }, ExitCode::kUsage);
    const std::string directory = scratch_.path().string() + "/";
    for (size_t at; (at = text.find(directory)) != std::string::npos;) text.erase(at, directory.size());
    return text;
  }

  // The sorted names in the directory.
  std::string names() const {
    std::set<std::string> all;
    for (const fs::directory_entry& entry : fs::directory_iterator(scratch_.path()))
      all.insert(entry.path().filename().string());
    return fmt::format("{}", fmt::join(all, " "));
  }

  ScratchDirectory scratch_;
};

// People type hints into a shell.
TEST_F(SummaryFileTest, PathsWithSpacesAreQuotedInHints) {
  EXPECT_HAS(refusal("no dir/out.jsonl"), "| mkdir -p 'no dir'");
  fs::create_directory(scratch_ / "a dir");
  EXPECT_HAS(refusal("a dir"), "| --output 'a dir/summaries.jsonl'");
  EXPECT_HAS(refusal("plain/out.jsonl"), "| mkdir -p plain");
}

TEST_F(SummaryFileTest, AppearsWhenAllIsWritten) {
  {
    SummaryFile file(scratch_ / "out.jsonl", false);
    file.append("one");
    file.append("two");
    EXPECT_FALSE(fs::exists(scratch_ / "out.jsonl"));
    file.finish();
  }
  EXPECT_EQ(read_bytes(scratch_ / "out.jsonl"), "one\ntwo\n");
  {
    SummaryFile file(scratch_ / "half.jsonl", false);
    file.append("one");
  }
  EXPECT_EQ(names(), "out.jsonl");
}

TEST_F(SummaryFileTest, AFileThatAppearsMeanwhileIsKept) {
  for (const char* kept_as : {"out.jsonl.2", "out.jsonl.3"}) {
    SummaryFile file(scratch_ / "out.jsonl", false);
    file.append("one");
    write_bytes(scratch_ / "out.jsonl", "of another");
    const std::string what = what_of([&] { file.finish(); }, ExitCode::kUsage);
    EXPECT_HAS(what, "was made by another process meanwhile: the summaries are in ");
    EXPECT_HAS(what, kept_as);
    EXPECT_EQ(read_bytes(scratch_ / "out.jsonl"), "of another");
    EXPECT_EQ(read_bytes(scratch_ / kept_as), "one\n");
  }
  EXPECT_EQ(names(), "out.jsonl out.jsonl.2 out.jsonl.3");
  SummaryFile file(scratch_ / "out.jsonl", true);
  file.append("two");
  file.finish();
  EXPECT_EQ(read_bytes(scratch_ / "out.jsonl"), "two\n");
}

TEST_F(SummaryFileTest, AnEmptyFileIsReplaced) {
  write_bytes(scratch_ / "out.jsonl", "");
  fs::create_symlink(scratch_ / "nowhere", scratch_ / "link.jsonl");
  for (const char* name : {"out.jsonl", "link.jsonl"}) {
    SummaryFile file(scratch_ / name, false);
    file.append("one");
    file.finish();
    EXPECT_EQ(read_bytes(scratch_ / name), "one\n");
  }
}

// The summaries took hours, so they stay if renaming fails.
TEST_F(SummaryFileTest, WhatCannotBeRenamedStaysWhereItIs) {
  std::string what;
  {
    SummaryFile file(scratch_ / "out.jsonl", true);
    file.append("one");
    fs::create_directory(scratch_ / "out.jsonl");
    what = what_of([&] { file.finish(); }, ExitCode::kStorage);
  }
  const fs::path stays = scratch_ / fmt::format("out.jsonl.partial-{}", getpid()) / "out.jsonl";
  EXPECT_HAS(what, stays.string());
  SummaryFile(scratch_ / "out.jsonl", true);
  EXPECT_EQ(read_bytes(stays), "one\n");
}

TEST_F(SummaryFileTest, TwoAtOnceDoNotTouchEachOther) {
  SummaryFile file(scratch_ / "out.jsonl", true);
  file.append("one");
  const Error error = error_of([&] { SummaryFile(scratch_ / "out.jsonl", true); }, ExitCode::kUsage);
  EXPECT_HAS(error.what(), "makes it now");
  EXPECT_EQ(error.hint(), "wait until it ends, or name another output");
  file.append("two");
  file.finish();
  EXPECT_EQ(read_bytes(scratch_ / "out.jsonl"), "one\ntwo\n");
}

TEST_F(SummaryFileTest, WhatAKilledProcessLeftIsNamed) {
  ProcessIdentity process = this_process();
  process["started"] = "1";
  write_bytes(scratch_ / "out.jsonl.partial-1/OWNER", to_text(process));
  process["host"] = "node7";
  write_bytes(scratch_ / "out.jsonl.partial-2/OWNER", to_text(process));
  write_bytes(scratch_ / "out.jsonl.partial-2/out.jsonl", "half");
  std::string notes;
  SummaryFile file(scratch_ / "out.jsonl", false, [&](const std::string& note) { notes += note + "\n"; });
  file.finish();
  EXPECT_HAS(notes, "removed " + (scratch_ / "out.jsonl.partial-1").string());
  EXPECT_HAS(notes, "out.jsonl.partial-2 was left by process");
  EXPECT_EQ(names(), "out.jsonl out.jsonl.partial-2");
  EXPECT_EQ(read_bytes(scratch_ / "out.jsonl.partial-2/out.jsonl"), "half");
}

TEST_F(SummaryFileTest, NamesThatDoNotDoAreRefused) {
  EXPECT_EQ(refusal("out.jsonl"), "");
  EXPECT_EQ(refusal("no/out.jsonl"), "--output no/out.jsonl: there is no directory no | mkdir -p no");
  EXPECT_EQ(refusal("out.jsonl.gz"),
            "--output out.jsonl.gz: summaries are written as plain text | leave --output out and add | gzip "
            ">out.jsonl.gz");
  fs::create_directory(scratch_ / "folder");
  EXPECT_EQ(refusal("folder"),
            "--output folder is a directory, expected a file | --output folder/summaries.jsonl");
  // An empty file, as mktemp makes.
  write_bytes(scratch_ / "out.jsonl", "");
  EXPECT_EQ(refusal("out.jsonl"), "");
  write_bytes(scratch_ / "out.jsonl", "{}\n");
  EXPECT_EQ(refusal("out.jsonl"),
            "--output out.jsonl exists already | give another name, or --force to replace it");
  EXPECT_EQ(refusal("out.jsonl", true), "");
  // A directory must not be replaced by a file.
  EXPECT_EQ(error_of([] { check_summary_file("/dev/null", true); }).hint(),
            "leave --output out and add >/dev/null");
}

TEST_F(SummaryFileTest, AFullDiskSaysItsReason) {
  // A limit on file sizes simulates a full disk: with its signal ignored, writes beyond the limit fail with
  // EFBIG.
  struct rlimit old {};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 10, old.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  const auto write_all = [&] {
    SummaryFile file(scratch_ / "out.jsonl", false);
    file.append(std::string(1 << 11, 'x'));
    file.finish();
  };
  const std::string what = what_of(write_all, ExitCode::kStorage);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_HAS(what, "out.jsonl: cannot write");
  EXPECT_HAS(what, "File too large");
  EXPECT_EQ(names(), "");
}

}  // namespace
}  // namespace ripstop
