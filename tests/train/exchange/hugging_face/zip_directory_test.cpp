#include "train/exchange/hugging_face/zip_directory.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/train/exchange/torch_writer.h"

namespace ripstop {
namespace {

class ZipDirectory : public testing::Test {
 protected:
  InputFile write(const std::string& bytes) const {
    write_bytes(scratch_ / "a.zip", bytes);
    return InputFile(scratch_ / "a.zip");
  }
  void expect_refused(const std::string& bytes, const std::string& what) const {
    const InputFile file = write(bytes);
    for (const std::string& part : {file.path().string() + ": ", what})
      expect_error([&] { read_zip_directory(file); }, ExitCode::kInputData, part);
  }
  void expect_refused(const std::vector<MemberToWrite>& members, const std::string& what) const {
    expect_refused(zip_bytes(members), what);
  }

  ScratchDirectory scratch_;
};

TEST_F(ZipDirectory, SaysWhereMembersLie) {
  const std::vector<MemberToWrite> given = {
      {"m/b", "second"}, {"m/a", ""}, {"m/c", std::string(3 << 20, 'x')}};
  for (const bool zip64 : {false, true}) {
    const std::string bytes = zip_bytes(given, zip64);
    for (const std::string& written : {bytes, bytes.substr(0, bytes.size() - 2) + "\7" + '\0' + "comment"}) {
      const InputFile file = write(written);
      const std::vector<ZipMember> members = read_zip_directory(file);
      ASSERT_EQ(members.size(), given.size());
      for (size_t i = 0; i < given.size(); ++i) {
        EXPECT_EQ(members[i].name, given[i].name);
        EXPECT_EQ(
            written.substr(static_cast<size_t>(members[i].begin), static_cast<size_t>(members[i].bytes)),
            given[i].bytes);
        check_member(file, members[i]);
      }
    }
  }
}

TEST_F(ZipDirectory, ChecksumsAreCompared) {
  const InputFile file = write(zip_bytes({{.name = "m/a", .bytes = std::string(3 << 20, 'x'), .crc = 5}}));
  expect_error([&] { check_member(file, read_zip_directory(file)[0]); }, ExitCode::kInputData,
               "m/a is damaged: its CRC-32 is ");
}

TEST_F(ZipDirectory, MembersThatAreNotPlainAreRefused) {
  expect_refused({{.name = "m/a", .bytes = "x", .method = 8}}, "m/a is compressed");
  for (const uint16_t flag : {1, 1 << 6, 1 << 13})
    expect_refused({{.name = "m/a", .bytes = "x", .flags = flag}}, "m/a is encrypted");
  for (const char* name : {"/m/a", "../a", "m/../../a", "m/..", "m\\..\\a"})
    expect_refused({{.name = name, .bytes = "x"}}, std::string("leaves the archive: ") + name);
  for (const std::string& name : {std::string(), std::string(513, 'a'), std::string("\xff")})
    expect_refused({{.name = name, .bytes = "x"}}, "bytes, or is not UTF-8");
  expect_refused({{.name = "m/a", .bytes = "x"}, {.name = "m/a", .bytes = "y"}}, "has m/a twice");
  expect_refused({{.name = "m/a", .bytes = "x"}, {.name = "m/b", .bytes = "y", .begin = 0}}, "shares bytes");
  // The header of the second is inside the bytes of the first.
  const std::string inner = zip_bytes({{.name = "m/b", .bytes = "y"}});
  expect_refused({{.name = "m/a", .bytes = inner}, {.name = "m/b", .bytes = "y", .begin = 38}},
                 "shares bytes");
  expect_refused({{.name = "m/a", .bytes = "x", .begin = 1}}, "the header of m/a");
  expect_refused({{.name = "m/a", .bytes = "x", .begin = 1 << 20}}, "m/a lies outside the file");
}

TEST_F(ZipDirectory, DamageIsRefused) {
  for (const bool zip64 : {false, true}) {
    const std::string good = zip_bytes({{"m/a", "first"}, {"m/b", "second"}}, zip64);
    read_zip_directory(write(good));
    for (size_t bytes = 0; bytes < good.size(); bytes += 3) {
      const InputFile file = write(good.substr(0, bytes));
      EXPECT_EQ(error_of([&] { read_zip_directory(file); }).code(), ExitCode::kInputData) << bytes;
    }
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (at % 2 == 0 ? 1 : 0x80));
      const InputFile file = write(bad);
      SCOPED_TRACE(at);
      error_of([&] { read_zip_directory(file); }, ExitCode::kInputData);
    }
  }
  const std::string good = zip_bytes({{"m/a", "first"}});
  const size_t end = good.size() - 22;
  expect_refused(std::string(good).replace(end + 4, 1, "\1"), "one part of a ZIP archive");
  expect_refused(std::string(good).replace(end + 10, 1, "\2"), "has 1 entries and says 2");
  expect_refused(std::string(good).replace(end + 12, 4, "\xff\xff\xff\x7f"), "too many to be read");
  expect_refused(std::string(good).replace(end + 16, 4, "\xff\xff\xff\x7f"), "is not where it says");
  const std::string wide = zip_bytes({{"m/a", "first"}}, true);
  expect_refused(std::string(wide).replace(wide.size() - 22 - 12, 1, "\1"), "zip64 directory is damaged");
}

}  // namespace
}  // namespace ripstop
