#include "data/hdf5/hdf5.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

std::vector<Hdf5Array> make_file(const std::filesystem::path& path) {
  return create_hdf5(path,
                     {{"units/embedding", Hdf5Type::kFloat32, 2000},
                      {"tokens", Hdf5Type::kUint16, 7},
                      {"units/moments", Hdf5Type::kBFloat16, 9},
                      {"nothing", Hdf5Type::kInt64, 0}},
                     {{"format_version", int64_t{1}},
                      {"separator", std::string("\n\nTL;DR:")},
                      {"rate", int64_t{5}},
                      {"empty", std::string()}});
}

TEST(Hdf5Test, SkeletonTellsOffsetsThatReadersFind) {
  ScratchDirectory scratch;
  const auto path = scratch / "a.h5";
  const auto arrays = make_file(path);
  ASSERT_EQ(arrays.size(), 4u);
  // An array of 4 KiB or more begins at a multiple of 4 KiB.
  EXPECT_EQ(arrays[0].offset_bytes % 4096, 0);
  Hdf5File file(path);
  EXPECT_EQ(file.array("units/embedding").offset_bytes, arrays[0].offset_bytes);
  EXPECT_EQ(file.array("tokens", Hdf5Type::kUint16).offset_bytes, arrays[1].offset_bytes);
  EXPECT_EQ(file.array("tokens").count, 7);
  EXPECT_EQ(file.array("units/moments", Hdf5Type::kBFloat16).offset_bytes, arrays[2].offset_bytes);
  EXPECT_EQ(file.array("units/moments").bytes(), 18);
  EXPECT_EQ(file.array("nothing").count, 0);
  EXPECT_EQ(file.arrays().size(), 4u);
  EXPECT_EQ(file.integer("format_version"), 1);
  EXPECT_EQ(file.text("separator"), "\n\nTL;DR:");
  EXPECT_EQ(file.text("empty"), "");
  EXPECT_TRUE(file.has_attribute("rate"));
  EXPECT_FALSE(file.has_attribute("absent"));
}

TEST(Hdf5Test, BytesWrittenByPwriteLieInTheArraysAndTheLengthIsFinal) {
  ScratchDirectory scratch;
  const auto path = scratch / "a.h5";
  const auto arrays = make_file(path);
  const auto length = std::filesystem::file_size(path);
  const int descriptor = open(path.c_str(), O_RDWR);
  for (const auto& array : arrays) {
    const std::string bytes(static_cast<size_t>(array.bytes()), 'x');
    ASSERT_EQ(pwrite(descriptor, bytes.data(), bytes.size(), array.offset_bytes), array.bytes());
  }
  close(descriptor);
  EXPECT_EQ(std::filesystem::file_size(path), length);
  Hdf5File reopened(path);  // it can be read, so no array overlaps the metadata
  EXPECT_EQ(reopened.arrays().size(), 4u);
  EXPECT_EQ(reopened.text("separator"), "\n\nTL;DR:");
}

// By default libhdf5 may store time stamps, which would change the hashes in prepare.json.
TEST(Hdf5Test, SameCallsSameBytes) {
  ScratchDirectory scratch;
  make_file(scratch / "a.h5");
  make_file(scratch / "b.h5");
  EXPECT_EQ(read_bytes(scratch / "a.h5"), read_bytes(scratch / "b.h5"));
}

TEST(Hdf5Test, StringsOfAnyLengthComeBack) {
  ScratchDirectory scratch;
  const auto path = scratch / "a.h5";
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i)
    texts.push_back(std::string(static_cast<size_t>(i * 37 % 5000), 'a' + i % 26) + "é");
  texts[5] = "";
  {
    Hdf5Writer writer(path);
    size_t i = 0;
    writer.add_strings("text/document", 300, [&] { return std::string_view(texts[i++]); });
    writer.add_strings("text/none", 0, [] { return std::string_view(); });
    writer.close();
  }
  Hdf5File file(path);
  EXPECT_EQ(file.strings_count("text/document"), 300);
  EXPECT_EQ(file.strings_count("text/none"), 0);
  EXPECT_EQ(file.strings("text/document", 0, 300), texts);
  EXPECT_EQ(file.strings("text/document", 299, 1).at(0), texts[299]);
  EXPECT_TRUE(file.strings("text/none", 0, 0).empty());
}

TEST(Hdf5Test, RefusalsCarryTheCallersCodeAndOneLine) {
  ScratchDirectory scratch;
  write_bytes(scratch / "text.h5", "this is not HDF5\n");
  write_bytes(scratch / "empty.h5", "");
  make_file(scratch / "good.h5");
  const std::string good = read_bytes(scratch / "good.h5");
  // The first misses only array bytes, the second parts of the metadata.
  write_bytes(scratch / "cut.h5", good.substr(0, good.size() - 10));
  write_bytes(scratch / "half.h5", good.substr(0, good.size() / 2));
  for (const char* name : {"text.h5", "empty.h5", "cut.h5", "half.h5", "absent.h5", ""}) {
    for (const ExitCode code : {ExitCode::kInputData, ExitCode::kStorage}) {
      SCOPED_TRACE(name);
      expect_error([&] { Hdf5File file(scratch / name, code); }, code);
    }
  }
  Hdf5File file(scratch / "good.h5");
  EXPECT_THROW(file.array("absent"), Error);
  EXPECT_THROW(file.array("tokens", Hdf5Type::kInt32), Error);
  EXPECT_THROW(file.integer("separator"), Error);
  EXPECT_THROW(file.text("format_version"), Error);
  EXPECT_THROW(file.strings_count("tokens"), Error);
}

TEST(Hdf5Test, CreatingWhereAFileIsOrWhereNoneCanBeIsAStorageError) {
  ScratchDirectory scratch;
  make_file(scratch / "a.h5");
  for (const auto& path : {scratch / "a.h5", scratch / "no/such/folder/a.h5"}) {
    expect_error([&] { make_file(path); }, ExitCode::kStorage);
  }
}

// A checkpoint has three states of each of many units.
TEST(Hdf5Test, ManyArraysInGroups) {
  ScratchDirectory scratch;
  std::vector<Hdf5Array> specs;
  for (int i = 0; i < 100; ++i) {
    for (const char* state : {"value", "exp_avg", "exp_avg_sq"}) {
      specs.push_back({fmt::format("blocks.{}/{}", i, state), Hdf5Type::kFloat32, 256 + i});
    }
  }
  const auto arrays = create_hdf5(scratch / "a.h5", specs, {});
  Hdf5File file(scratch / "a.h5");
  ASSERT_EQ(file.arrays().size(), specs.size());
  for (const auto& array : arrays) EXPECT_EQ(file.array(array.name).offset_bytes, array.offset_bytes);
}

// libhdf5 trusts the sizes in a heap of strings: it read past its memory, and looped for ever.
TEST(Hdf5Test, DamagedStringsAreRefused) {
  const ScratchDirectory scratch;
  const auto path = scratch / "a.h5";
  {
    Hdf5Writer writer(path);
    int i = 0;
    std::string text;
    writer.add_strings("text/document", 40,
                       [&] { return std::string_view(text = std::string(50, 'a' + i++ % 26)); });
    writer.close();
  }
  const std::string whole = read_bytes(path);
  const size_t heap = whole.find("GCOL");
  std::string element("\x32\0\0\0........", 12);  // length 50, then the address of the heap
  std::memcpy(element.data() + 4, &heap, 8);
  const size_t array = whole.find(element);
  ASSERT_NE(heap, std::string::npos);
  ASSERT_NE(array, std::string::npos);
  struct Case {
    size_t at;
    std::string bytes;
  };
  const std::string most(8, '\xff'), none(8, '\0');
  for (const Case& c : {Case{heap, "gcol"}, Case{heap + 8, most}, Case{heap + 8, none},
                        Case{heap + 24, most},                         // the size of the first object
                        Case{array, std::string(4, '\x7f')},           // the length of the first string
                        Case{array + 4, most}, Case{array + 4, none},  // the address of its heap
                        Case{array + 12, std::string(4, '\xff')}}) {   // its number in the heap
    std::string damaged = whole;
    damaged.replace(c.at, c.bytes.size(), c.bytes);
    write_bytes(path, damaged);
    EXPECT_THROW(Hdf5File(path).strings("text/document", 0, 40), Error) << c.at;
  }
  // An object of no bytes would be the next one for ever.
  std::string empty = whole;
  empty.replace(heap + 24, 8, none);
  write_bytes(path, empty);
  EXPECT_THROW(Hdf5File(path).strings("text/document", 0, 40), Error);
}

}  // namespace
}  // namespace ripstop
