#include "train/exchange/hugging_face/safetensors.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/train/exchange/pretrained_directory.h"

namespace ripstop {
namespace {

class Safetensors : public testing::Test {
 protected:
  std::vector<StoredTensor> read(const std::string& bytes) const {
    write_bytes(scratch_ / "x.safetensors", bytes);
    return read_safetensors_header(InputFile(scratch_ / "x.safetensors"));
  }
  // The error of reading `bytes`.
  std::string refused(const std::string& bytes) const {
    const std::string refusal = what_and_hint_of([&] { read(bytes); }, ExitCode::kInputData);
    EXPECT_HAS(refusal, "x.safetensors") << bytes.substr(0, 200);
    return refusal;
  }

  ScratchDirectory scratch_;
};

TEST_F(Safetensors, TensorsHaveTheirPlaces) {
  const std::string bytes =
      safetensors_bytes({{"b", {2, 3}, "BF16"}, {"none", {0, 4}}, {"a", {5}}, {"one", {}, "F64"}});
  const std::vector<StoredTensor> tensors = read(bytes);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[0].dtype, "BF16");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors[0].shape_text(), "[2, 3]");
  EXPECT_EQ(tensors[0].bytes, 12);
  EXPECT_EQ(tensors[1].bytes, 0);
  EXPECT_EQ(tensors[2].begin, tensors[0].begin + 12);
  EXPECT_EQ(tensors[3].shape_text(), "[]");
  EXPECT_EQ(tensors[3].begin + 8, std::ssize(bytes));
}

// Writers pad the header with spaces, and list tensors in any order.
TEST_F(Safetensors, PaddingAndOrderDoNotMatter) {
  const std::vector<StoredTensor> tensors =
      read(safetensors_bytes(R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                             R"("y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}      )",
                             8));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "y");
  EXPECT_TRUE(read(safetensors_bytes("{}", 0)).empty());
}

TEST_F(Safetensors, BadHeadersAreRefused) {
  const auto entry = [](const std::string& text) { return "{\"w\":" + text + "}"; };
  struct Case {
    std::string header;
    int64_t data_bytes;
    std::string what;
  };
  const std::vector<Case> cases = {
      {"", 8, "is not JSON"},
      {"[]", 0, "is not a JSON object"},
      {"{\"w\":", 0, "is not JSON"},
      {entry("5"), 0, "an object with 'dtype' was expected"},
      {entry("null"), 0, "an object with 'dtype' was expected"},
      {entry(R"({"shape":[1],"data_offsets":[0,4]})"), 4, "has no 'dtype'"},
      {entry(R"({"dtype":"F32","data_offsets":[0,4]})"), 4, "has no 'shape'"},
      {entry(R"({"dtype":"F32","shape":[1]})"), 4, "has no 'data_offsets'"},
      {entry(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})"), 4, "'dtype' must be a text"},
      {entry(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})"), 4, "unknown dtype 'F31'"},
      {entry(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})"), 4, "'shape' must be a list"},
      {entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), 4, "impossible shape"},
      {entry(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), 4, "impossible shape"},
      {entry(R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})"), 4, "impossible shape"},
      {entry(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})"), 4, "impossible shape"},
      {entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"), 4,
       "impossible shape"},
      {entry(R"({"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]})"), 0,
       "impossible shape"},
      {entry(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"), 4, "9 members"},
      {entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), 4, "'data_offsets' has 1 members"},
      {entry(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})"), 4, "impossible offsets"},
      {entry(R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551615,4]})"), 4,
       "impossible offsets"},
      {entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), 4,
       "must have 4 bytes, its offsets give it -4"},
      {entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), 4,
       "must have 8 bytes, its offsets give it 4"},
      {entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), 8, "has 4 bytes before w"},
      {entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), 3, "is cut short"},
      {entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), 5, "has 1 bytes after its last tensor"},
      {R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "w shares bytes"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "has 'w' twice"},
      {R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "name has 0 bytes"},
      {"{\"" + std::string(1000, 'n') + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "name has 1000 bytes"},
      {"{\"\xff\":{}}", 0, "is not JSON"},
      {std::string(2000, '['), 0, "nests deeper"},
      {entry(R"({"dtype":NaN,"shape":[1],"data_offsets":[0,4]})"), 4, "is not JSON"},
  };
  for (const Case& c : cases) EXPECT_HAS(refused(safetensors_bytes(c.header, c.data_bytes)), c.what);
}

TEST_F(Safetensors, OtherFilesAreNamed) {
  EXPECT_HAS(refused(""), "has 0 bytes");
  EXPECT_HAS(refused("1234567"), "has 7 bytes");
  EXPECT_HAS(refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), "git lfs pull");
  EXPECT_HAS(refused("PK\x03\x04 and so on, as torch.save writes"), "ZIP archive");
  EXPECT_HAS(refused("<!DOCTYPE html><html></html>"), "web page");
  EXPECT_HAS(refused(std::string(100, '\xff')), "at most 33554432 are read");
  EXPECT_HAS(refused(std::string("\x64\0\0\0\0\0\0\0{}", 10)), "its header alone 100");
}

// A wrong byte in a header must not lead a reader out of the file.
TEST_F(Safetensors, EveryFlippedOrMissingByteIsRefusedOrStaysInTheFile) {
  const std::string good = safetensors_bytes({{"a", {2, 3}, "BF16"}, {"b", {5}}});
  int64_t accepted = 0;
  const auto attack = [&](const std::string& bytes) {
    try {
      for (const StoredTensor& tensor : read(bytes)) {
        EXPECT_GE(tensor.begin, 8);
        EXPECT_GE(tensor.bytes, 0);
        EXPECT_LE(tensor.begin + tensor.bytes, std::ssize(bytes));
      }
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInputData) << error.what();
    }
  };
  for (size_t i = 0; i < good.size() - 32; ++i)
    for (const char flip : {'\x01', '\x02', '\x10', '\x80'}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      attack(bytes);
    }
  EXPECT_GT(accepted, 0) << "other letters in a name or in the metadata are as good";
  accepted = 0;
  for (size_t length = 0; length < good.size(); ++length) attack(good.substr(0, length));
  EXPECT_EQ(accepted, 0);
}

}  // namespace
}  // namespace ripstop
