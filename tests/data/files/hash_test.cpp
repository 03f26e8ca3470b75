#include "data/files/hash.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

// Vectors of the examples of FIPS 180-4.
TEST(HashTest, Sha256KnowsItsVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_hex(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_hex(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(HashTest, Crc32KnowsItsCheckValue) {
  EXPECT_EQ(crc32("123456789"), 0xcbf43926U);
  EXPECT_EQ(crc32(""), 0U);
  const std::string text = "The quick brown fox jumps over the lazy dog";
  EXPECT_EQ(crc32(text), 0x414fa339U);
  for (size_t part = 0; part <= text.size(); ++part)
    EXPECT_EQ(crc32(text.substr(part), crc32(text.substr(0, part))), 0x414fa339U) << part;
}

TEST(HashTest, PartsDoNotMatter) {
  StreamHash whole, parts;
  whole.update("one two three");
  parts.update("one ");
  parts.update("");
  parts.update("two three");
  EXPECT_EQ(whole.hex(), parts.hex());
  EXPECT_EQ(whole.hex().size(), 32u);
  EXPECT_EQ(StreamHash().hex(), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing
}

}  // namespace
}  // namespace ripstop
