#include "data/dataset/token_dataset.h"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include "data/prepare/prepare.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

template <class Action>
void expect_refused(const std::string& word, Action&& action) {
  expect_error(action, ExitCode::kInputData, word);
}

void read_all_tokens(const TokenDataset& dataset) {
  std::vector<int32_t> ids(static_cast<size_t>(dataset.tokens()));
  dataset.read_tokens(0, dataset.tokens(), ids.data());
}

class TokenDatasetTest : public testing::Test {
 protected:
  TokenDatasetTest() : path_(scratch_ / "train.h5") {
    write_marked_dataset(path_, random_lengths(300, 200, 1));
  }
  void expect_open_refused(const std::string& word) {
    expect_refused(word, [&] { TokenDataset dataset(path_); });
  }
  /// Overwrites one element of an int64 array.
  void poke(const std::string& array, int64_t index, int64_t value) {
    const Hdf5Array at = Hdf5File(path_).array(array);
    OutputFile out(path_, OutputFile::Mode::kExisting);
    out.write_at(at.offset_bytes + index * 8, &value, 8);
  }
  /// A function that expects the file `good` to be refused with `word` if one element of an array is `value`.
  auto refusals_of(const std::string& good) {
    return [=, this](const std::string& array, int64_t index, int64_t value, const std::string& word) {
      write_bytes(path_, good);
      poke(array, index, value);
      expect_open_refused(word);
    };
  }
  ScratchDirectory scratch_;
  std::filesystem::path path_;
};

TEST_F(TokenDatasetTest, GivesBackWhatWasWritten) {
  const auto lengths = random_lengths(300, 200, 1);
  const TokenDataset dataset(path_);
  ASSERT_EQ(dataset.examples(), 300);
  for (int64_t i = 0; i < 300; ++i) {
    const auto& l = lengths[static_cast<size_t>(i)];
    const int64_t begin = dataset.example_begin(i);
    ASSERT_EQ(dataset.example_end(i) - begin, l.tokens());
    EXPECT_EQ(dataset.separator_begin(i) - begin, l.document);
    EXPECT_EQ(dataset.target_begin(i) - begin, l.document + 3);
    std::vector<int32_t> ids(static_cast<size_t>(l.tokens()));
    dataset.read_tokens(begin, dataset.example_end(i), ids.data());
    for (int64_t p = 0; p < l.tokens(); ++p) EXPECT_EQ(ids[static_cast<size_t>(p)], marked_token(i, p));
  }
  read_all_tokens(dataset);
  int directory_entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
    ++directory_entries;
  EXPECT_EQ(directory_entries, 1) << "the spool is still there";
}

TEST_F(TokenDatasetTest, SmallVocabulariesTakeTwoBytesAToken) {
  for (const int64_t vocabulary : {65536, 65537}) {
    TokenDatasetHeader header = marked_header(ExampleKind::kSummary);
    header.vocabulary_size = vocabulary;
    const auto path = scratch_ / fmt::format("{}.h5", vocabulary);
    TokenDatasetWriter writer(path, header);
    TokenExample example{{1, 65535, 300, 2}, {{3, 4, 1, 2}}};
    for (int i = 0; i < 10000; ++i) writer.add(example);  // crosses blocks
    writer.finish();
    EXPECT_EQ(Hdf5File(path).array("tokens").type,
              vocabulary == 65536 ? Hdf5Type::kUint16 : Hdf5Type::kInt32);
    const TokenDataset dataset(path);
    std::vector<int32_t> ids(40000);
    dataset.read_tokens(0, 40000, ids.data());
    for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], example.tokens[i % 4]);
  }
}

TEST_F(TokenDatasetTest, NoExamplesIsAFileToo) {
  TokenDatasetHeader header = marked_header(ExampleKind::kSummary);
  header.with_text = true;
  EXPECT_EQ(TokenDatasetWriter(scratch_ / "none.h5", header).finish().size(), 32u);
  const TokenDataset dataset(scratch_ / "none.h5");
  EXPECT_EQ(dataset.examples(), 0);
  EXPECT_EQ(dataset.tokens(), 0);
}

TEST_F(TokenDatasetTest, AnAbandonedWriterLeavesNoSpool) {
  { TokenDatasetWriter writer(scratch_ / "half.h5", marked_header(ExampleKind::kSummary)); }
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch_.path())) ++entries;
  EXPECT_EQ(entries, 1);
}

TEST_F(TokenDatasetTest, BrokenIndexesAreNamed) {
  const std::string good = read_bytes(path_);
  write_bytes(scratch_ / "good.h5", good);
  const auto with = refusals_of(good);
  with("example_offset", 0, 5, "begins at token 5");
  with("example_offset", 10, 0, "example 9 spans");
  with("example_offset", 10, INT64_MAX, "example 9 spans");
  with("example_offset", 10, INT64_MIN, "example 9 spans");
  with("example_offset", 300, 12, "index says 12 tokens");
  for (const char* array : {"target_begin", "target_end", "cut_begin", "cut_end"}) {
    with(array, 3, 0, "example 3");
    with(array, 3, INT64_MAX, "example 3");
    with(array, 4, -1, "example 4");
    with(array, 4, INT64_MIN, "example 4");
  }
  // A separator behind the first target: the loader would cut targets with the document.
  const TokenDataset whole(scratch_ / "good.h5");
  with("cut_end", 5, whole.target_begin(5) + 1, "example 5");
  with("cut_begin", 5, whole.separator_begin(5) + 1, "example 5");
  with("target_end", 5, whole.example_end(5) - 1, "example 5");
  with("target_offset", 0, 1, "target offsets");
  with("target_offset", 7, 8, "example 6 has the spans 6 to 8");
  with("target_offset", 7, 6, "example 6 has the spans 6 to 6");
  with("target_offset", 7, INT64_MIN, "example 6");
  with("target_offset", 300, 299, "299 for 300 examples");
  with("token_block_hash", 0, 1, "content hash");
}

TEST_F(TokenDatasetTest, BrokenConversationsAreNamed) {
  std::filesystem::remove(path_);
  {
    TokenDatasetWriter writer(path_, marked_header(ExampleKind::kConversation));
    for (int64_t i = 0; i < 4; ++i)
      writer.add(marked_conversation(i, {{false, 4}, {true, 3}, {false, 2}, {true, 5, i != 2}}));
    writer.finish();
  }
  const std::string good = read_bytes(path_);
  {
    const TokenDataset dataset(path_);
    const TokenExample last = marked_conversation(3, {{false, 4}, {true, 3}, {false, 2}, {true, 5}});
    EXPECT_TRUE(std::ranges::equal(dataset.spans(3), last.spans));
    EXPECT_EQ(dataset.head(3), 2);
    EXPECT_EQ(dataset.turns(dataset.example_begin(1), dataset.example_end(2)), 8);
    EXPECT_EQ(dataset.turns(0, dataset.tokens()), 16);
  }
  const auto with = refusals_of(good);
  with("target_offset", 1, 0, "example 0 has the spans 0 to 0");
  with("target_offset", 2, 9, "example 1 has the spans 2 to 9");
  with("target_offset", 2, 1, "example 1 has the spans 2 to 1");
  with("target_offset", 4, INT64_MAX, "target offsets");
  with("target_end", 0, 20, "example 0");   // behind the next span's text
  with("target_begin", 1, 8, "example 0");  // inside the span before
  with("cut_begin", 0, 1, "example 0");     // in the head
  with("turn_begin", 3, 0, "turn 3");
  with("turn_begin", 0, -1, "turn 0");
  with("turn_begin", 15, INT64_MAX, "turn 15");
}

TEST_F(TokenDatasetTest, APipeBesideItIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((scratch_ / "prepare.json").c_str(), 0600), 0);
  expect_open_refused("prepare.json: is not a plain file");
}

TEST_F(TokenDatasetTest, ChangedTokensAreNoticedWhenTheyAreRead) {
  const Hdf5Array tokens = Hdf5File(path_).array("tokens");
  OutputFile(path_, OutputFile::Mode::kExisting).write_at(tokens.offset_bytes + 5 * 4 + 2, "\x01", 1);
  const TokenDataset dataset(path_);
  int32_t id = 0;
  expect_refused("block 0", [&] { dataset.read_tokens(0, 1, &id); });
  expect_refused("block 0", [&] { read_all_tokens(dataset); });
}

TEST_F(TokenDatasetTest, IdsBeyondTheVocabularyAreNoticedEvenInAnIntactFile) {
  // Ids beyond the vocabulary, as another program might write them: shrink the vocabulary of a written file.
  TokenDatasetHeader header = marked_header(ExampleKind::kSummary);
  header.vocabulary_size = 100000;
  {
    TokenDatasetWriter writer(scratch_ / "a.h5", header);
    writer.add({{1, 99999, 5, 2}, {{3, 4, 1, 2}}});
    writer.finish();
  }
  const hid_t file = H5Fopen((scratch_ / "a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(file, "vocabulary_size", H5P_DEFAULT);
  const int64_t smaller = 70000;
  H5Awrite(attribute, H5T_NATIVE_INT64, &smaller);
  H5Aclose(attribute);
  H5Fclose(file);
  expect_refused("content hash", [&] { TokenDataset dataset(scratch_ / "a.h5"); });
}

/// Makes a file as another program might: `make` fills it by calls of libhdf5.
template <class Make>
void foreign_file(const std::filesystem::path& path, Make&& make) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  make(file);
  H5Fclose(file);
}

hid_t make_array(hid_t file, const char* name, hid_t type, std::vector<hsize_t> shape,
                 hid_t creation = H5P_DEFAULT) {
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  H5Sclose(space);
  return dataset;
}

TEST_F(TokenDatasetTest, FilesOfOtherFormsAreRefused) {
  const auto refused = [&](const std::string& word, const std::function<void(hid_t)>& make) {
    foreign_file(path_, make);
    expect_open_refused(word);
  };
  refused("not a ripstop data set", [](hid_t) {});
  refused("not 1-D", [](hid_t f) { H5Dclose(make_array(f, "tokens", H5T_STD_U16LE, {4, 4})); });
  refused("type that is not allowed", [](hid_t f) { H5Dclose(make_array(f, "tokens", H5T_STD_U16BE, {4})); });
  refused("type that is not allowed",
          [](hid_t f) { H5Dclose(make_array(f, "tokens", H5T_STD_REF_OBJ, {4})); });
  refused("type that is not allowed", [](hid_t f) {
    const hid_t type = H5Tvlen_create(H5T_NATIVE_INT);
    H5Dclose(make_array(f, "tokens", type, {4}));
    H5Tclose(type);
  });
  refused("filter", [](hid_t f) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 16;
    H5Pset_chunk(creation, 1, &chunk);
    H5Pset_fletcher32(creation);
    H5Dclose(make_array(f, "tokens", H5T_STD_U16LE, {64}, creation));
    H5Pclose(creation);
  });
  refused("not contiguous", [](hid_t f) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 16;
    H5Pset_chunk(creation, 1, &chunk);
    H5Dclose(make_array(f, "tokens", H5T_STD_U16LE, {64}, creation));
    H5Pclose(creation);
  });
  refused("another file", [](hid_t f) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(creation, "/etc/passwd", 0, 128);
    H5Dclose(make_array(f, "tokens", H5T_STD_U16LE, {64}, creation));
    H5Pclose(creation);
  });
  refused("external link", [](hid_t f) {
    H5Lcreate_external("/etc/passwd", "/tokens", f, "tokens", H5P_DEFAULT, H5P_DEFAULT);
  });
  refused("external link",
          [](hid_t f) { H5Lcreate_soft("/nowhere", f, "tokens", H5P_DEFAULT, H5P_DEFAULT); });
  refused("not contiguous", [](hid_t f) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t extent = 64;
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    H5Pset_virtual(creation, space, "/etc/passwd", "/x", space);
    H5Dclose(make_array(f, "tokens", H5T_STD_U16LE, {64}, creation));
    H5Sclose(space);
    H5Pclose(creation);
  });
  refused("more than 100000 links", [](hid_t f) {
    for (std::string group; group.size() < 12; group += "/0") {
      H5Gclose(H5Gcreate2(f, (group + "/0").c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      for (char name = '1'; name < '8'; ++name)
        H5Lcreate_hard(f, (group + "/0").c_str(), f, (group + "/" + name).c_str(), H5P_DEFAULT, H5P_DEFAULT);
    }
  });
  refused("never written", [](hid_t f) { H5Dclose(make_array(f, "tokens", H5T_STD_U16LE, {64})); });
}

TEST_F(TokenDatasetTest, AnotherFormatVersionIsNamed) {
  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(file, "format_version", H5P_DEFAULT);
  const int64_t version = 2;
  H5Awrite(attribute, H5T_NATIVE_INT64, &version);
  H5Aclose(attribute);
  H5Fclose(file);
  expect_open_refused("format 2, this program reads 3");
}

TEST_F(TokenDatasetTest, MissingArraysAndTypesAreNamed) {
  const std::string good = read_bytes(path_);
  for (const char* array : {"tokens", "example_offset", "target_offset", "target_begin", "target_end",
                            "cut_begin", "cut_end", "turn_begin", "token_block_hash"}) {
    write_bytes(path_, good);
    const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, array, H5P_DEFAULT);
    H5Fclose(file);
    expect_open_refused(std::string("'") + array + "' is missing");
  }
  write_bytes(path_, good);
  const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Ldelete(file, "target_begin", H5P_DEFAULT);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
  H5Dclose(make_array(file, "target_begin", H5T_IEEE_F64LE, {300}, creation));
  H5Pclose(creation);
  H5Fclose(file);
  expect_open_refused("is float64, expected int64");
}

// The length and hash in prepare.json are compared before libhdf5 opens the file, because libhdf5 may crash
// on a damaged one.
TEST(PreparedFilesTest, AnyFlippedByteIsNoticed) {
  ScratchDirectory scratch;
  PrepareOptions options;
  options.source.kind = SourceKind::kSynthetic;
  options.source.examples = 100;
  options.vocab_size = 400;
  options.output = scratch / "out";
  prepare(options);
  const auto path = scratch / "out/test.h5";
  const std::string good = read_bytes(path);
  // Every 97th byte covers all parts of the file.
  for (size_t at = 0; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write_bytes(path, bad);
    SCOPED_TRACE(fmt::format("byte {} of {}", at, good.size()));
    expect_error(
        [&] {
          const TokenDataset dataset(path);
          read_all_tokens(dataset);
        },
        ExitCode::kInputData);
  }
  for (const size_t length : {size_t{0}, size_t{10}, good.size() / 2, good.size() - 1}) {
    write_bytes(path, good.substr(0, length));
    expect_refused("bytes", [&] { TokenDataset dataset(path); });
  }
  write_bytes(path, good + "x");
  expect_refused("prepare.json says", [&] { TokenDataset dataset(path); });
  write_bytes(path, good);
  TokenDataset intact(path);
  EXPECT_EQ(intact.text(0, 1).at(0).id, "synthetic-99");
  // An intact file under the wrong name.
  std::filesystem::copy_file(scratch / "out/validation.h5", path,
                             std::filesystem::copy_options::overwrite_existing);
  expect_refused("test.h5", [&] { TokenDataset dataset(path); });
  write_bytes(scratch / "out/prepare.json", "{");
  expect_refused("not JSON", [&] { TokenDataset dataset(path); });
}

}  // namespace
}  // namespace ripstop
