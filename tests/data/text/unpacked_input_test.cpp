// A gzip file gives exactly the bytes that were packed, or an error.
#include "data/text/unpacked_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "data/text/tar_input.h"
#include "model/core/error.h"
#include "tests/data/compressed_files.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

std::string unpacked(const std::filesystem::path& path) {
  UnpackedInput input(path);
  std::string bytes;
  for (std::string_view block = input.next_block(); !block.empty(); block = input.next_block())
    bytes += block;
  EXPECT_EQ(input.next_block(), "") << "the end stays the end";
  return bytes;
}

/// The names and contents of an archive.
std::string listed(const std::filesystem::path& path) {
  std::string text;
  for (TarInput tar(path); tar.next();) text += tar.name() + "=" + tar.content() + ";";
  return text;
}

class UnpackedInputTest : public testing::Test {
 protected:
  /// The bytes of a gzip member.
  std::string gzip(const std::string& text) {
    write_gzip(scratch_ / "member.gz", text);
    return read_bytes(scratch_ / "member.gz");
  }
  std::filesystem::path file(const std::string& bytes, const std::string& name = "a.jsonl.gz") {
    write_bytes(scratch_ / name, bytes);
    return scratch_ / name;
  }
  /// The result of `read` for the file; nullopt if it throws Error(kInputData) with the file's name.
  template <class Read>
  std::optional<std::string> result(const std::filesystem::path& path, Read&& read) {
    std::optional<std::string> text;
    message_ = what_of([&] { text = read(path); }, ExitCode::kInputData);
    EXPECT_TRUE(text || message_.find(path.string() + ": ") != message_.npos) << message_;
    return text;
  }
  std::optional<std::string> result(const std::filesystem::path& path) { return result(path, unpacked); }

  ScratchDirectory scratch_;
  std::string message_;
};

const std::string kFirst = "{\"document\": \"The harbour opened.\"}\n";
const std::string kSecond = "{\"document\": \"The market closed on Tuesday.\"}\n";

TEST_F(UnpackedInputTest, GivesWhatWasPacked) {
  std::string large;
  for (int i = 0; large.size() < 3'000'000; ++i) large += std::to_string(i * 7919) + " some text\n";
  EXPECT_EQ(unpacked(file(gzip(large))), large);
  EXPECT_EQ(unpacked(file(large, "plain.jsonl")), large);
  EXPECT_EQ(unpacked(file("", "empty.jsonl")), "");
  EXPECT_EQ(unpacked(file("\x1f", "one.jsonl")), "\x1f");
  EXPECT_EQ(unpacked(file(gzip(kFirst), "no_end_in_gz")), kFirst);
}

TEST_F(UnpackedInputTest, AllMembersAreOneText) {
  std::string text, packed;
  for (int i = 0; i < 300; ++i) {
    // Members of many sizes, so that they begin at all positions of a block.
    const std::string part = std::to_string(i) + std::string(static_cast<size_t>(i * 37 % 2000), 'x') + "\n";
    text += part;
    packed += gzip(part);
  }
  EXPECT_EQ(unpacked(file(packed)), text);
  // gzip accepts zeros at the end as the padding of a tape, with a warning.
  EXPECT_EQ(unpacked(file(packed + std::string(100'000, '\0'))), text);
}

TEST_F(UnpackedInputTest, NoFlippedBitChangesTheText) {
  const std::string good = gzip(kFirst) + gzip(kSecond);
  int64_t refused = 0, harmless = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const std::optional<std::string> found = result(file(bad));
    if (found) {
      EXPECT_EQ(*found, kFirst + kSecond) << "bit " << bit;
    }
    ++(found ? harmless : refused);
  }
  // Bits of each member that change nothing: in the header time, operating system, compression level and "is
  // text", and the padding bits behind the codes.
  EXPECT_LE(harmless, 2 * (8 * 6 + 1 + 7));
  EXPECT_GT(refused, harmless);
}

TEST_F(UnpackedInputTest, NoCutFileIsTaken) {
  const std::string first = gzip(kFirst), good = first + gzip(kSecond);
  for (size_t length = 0; length < good.size(); ++length) {
    const std::optional<std::string> found = result(file(good.substr(0, length)));
    // A cut between two members leaves a valid file.
    EXPECT_EQ(found, length == first.size() ? std::optional(kFirst) : std::nullopt) << length;
  }
}

TEST_F(UnpackedInputTest, ASmudgeInTheMiddleOfALargeFileIsFound) {
  std::string large;
  for (int i = 0; large.size() < 400'000; ++i) large += "the letters " + std::to_string(i) + "\n";
  const std::string good = gzip(large);
  for (size_t at = 100; at < good.size(); at += 997) {
    std::string bad = good;
    for (size_t i = 0; i < 5 && at + i < bad.size(); ++i) bad[at + i] = static_cast<char>(bad[at + i] ^ 0x20);
    EXPECT_EQ(result(file(bad)), std::nullopt) << at;
  }
  std::string no_trailer = good;
  no_trailer.replace(good.size() - 8, 8, 8, '\0');
  EXPECT_EQ(result(file(no_trailer)), std::nullopt);
  EXPECT_HAS(message_, "incorrect data check in member 1");
}

TEST_F(UnpackedInputTest, WhatFollowsTheLastMemberMustBeGzip) {
  const std::string good = gzip(kFirst);
  EXPECT_EQ(result(file(good + "garbage")), std::nullopt);
  EXPECT_HAS(message_, "what follows member 1 is no gzip");
  EXPECT_EQ(result(file(good + "\x1f")), std::nullopt);
  EXPECT_EQ(result(file(good + "\x1f\x8b")), std::nullopt);
  EXPECT_EQ(result(file(good + std::string(3, '\0') + good)), std::nullopt);
}

TEST_F(UnpackedInputTest, AFileThatIsNamedGzipMustBeOne) {
  EXPECT_EQ(result(file("plain text\n")), std::nullopt);
  EXPECT_HAS(message_, "named as gzip, but does not begin as gzip does");
  EXPECT_EQ(result(file("")), std::nullopt);
  EXPECT_HAS(message_, "named as gzip, but empty");
  EXPECT_EQ(result(scratch_ / "absent"), std::nullopt);
  EXPECT_EQ(result(scratch_.path()), std::nullopt);
}

TEST_F(UnpackedInputTest, AFileThatGrowsHasAnEnd) {
  const std::filesystem::path path = file(kFirst, "growing.jsonl");
  UnpackedInput input(path);
  write_bytes(path, kFirst + kSecond);
  EXPECT_EQ(input.next_block(), kFirst);
  EXPECT_EQ(input.next_block(), "");
  EXPECT_NE(unpacked("/proc/self/stat"), "") << "states a length of 0";
}

// A pipe may give its bytes one at a time.
TEST_F(UnpackedInputTest, APipeMayBeGzip) {
  const std::string path = (scratch_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const std::string& bytes : {gzip(kFirst) + gzip(kSecond), kFirst + kSecond}) {
    std::thread writer([&] {
      const int pipe = open(path.c_str(), O_WRONLY);
      for (const char byte : bytes) EXPECT_EQ(write(pipe, &byte, 1), 1);
      close(pipe);
    });
    EXPECT_EQ(unpacked(path), kFirst + kSecond);
    writer.join();
  }
}

class TarInputTest : public UnpackedInputTest {
 protected:
  /// The bytes of a .tar.gz.
  std::string tar(const std::vector<std::pair<std::string, std::string>>& files) {
    write_tar_gzip(scratch_ / "archive", files);
    return read_bytes(scratch_ / "archive");
  }
};

TEST_F(TarInputTest, NoFlippedBitChangesTheFiles) {
  const std::string good = tar({{"a", kFirst}, {"b", kSecond}});
  ASSERT_EQ(listed(file(good, "a.tar.gz")), "a=" + kFirst + ";b=" + kSecond + ";");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const std::optional<std::string> found = result(file(bad, "a.tar.gz"), listed);
    if (found) {
      EXPECT_EQ(*found, "a=" + kFirst + ";b=" + kSecond + ";") << "bit " << bit;
    }
  }
}

// By itself libarchive stops at tar's end mark, before a wrong trailer or a second archive.
TEST_F(TarInputTest, EverythingBehindTheFirstArchiveIsRead) {
  const std::string good = tar({{"a", kFirst}});
  EXPECT_EQ(listed(file(good + tar({{"b", kSecond}}), "a.tgz")), "a=" + kFirst + ";b=" + kSecond + ";");
  EXPECT_EQ(result(file(good + "garbage", "a.tgz"), listed), std::nullopt);
  std::string no_trailer = good;
  no_trailer.replace(good.size() - 8, 8, 8, '\0');
  EXPECT_EQ(result(file(no_trailer, "a.tgz"), listed), std::nullopt);
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_EQ(result(file(good.substr(0, length), "a.tgz"), listed), std::nullopt) << length;
}

TEST_F(TarInputTest, AnArchiveThatIsCutBetweenTwoFilesIsNoticed) {
  const std::string good = unpacked(file(tar({{"a", kFirst}, {"b", kSecond}}), "a.tar.gz"));
  EXPECT_EQ(listed(file(good, "a.tar")), "a=" + kFirst + ";b=" + kSecond + ";");
  // A header of 512 bytes, then the content padded to 512.
  EXPECT_EQ(result(file(good.substr(0, 1024), "a.tar"), listed), std::nullopt);
  EXPECT_HAS(message_, "tar's end mark is missing");
  EXPECT_EQ(result(file(good.substr(0, 1500), "a.tar"), listed), std::nullopt);
  EXPECT_EQ(listed(file(good.substr(0, 2048 + 512), "a.tar")), "a=" + kFirst + ";b=" + kSecond + ";");
}

}  // namespace
}  // namespace ripstop
