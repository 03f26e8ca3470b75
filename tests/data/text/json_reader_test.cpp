#include "data/text/json_reader.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"

namespace ripstop {
namespace {

// The message with which `action` is refused; "" if it is accepted.
template <class Action>
std::string refused_by(const Action& action) {
  const std::string what = what_of(action, ExitCode::kInputData);
  EXPECT_TRUE(what.empty() || what.starts_with("x.json: ")) << what;
  return what;
}

const JsonReader kReader("x.json", ExitCode::kInputData);

TEST(JsonReader, GivesWhatIsAsked) {
  const auto json =
      kReader.parse(R"({"size": 7, "eps": 1e-5, "name": "a", "on": true, "list": [1], "none": null})");
  EXPECT_EQ(kReader.integer(json, "size", 1, 7), 7);
  EXPECT_EQ(kReader.number(json, "eps"), 1e-5);
  EXPECT_EQ(kReader.text(json, "name", 1), "a");
  EXPECT_TRUE(kReader.flag(json, "on"));
  EXPECT_EQ(kReader.list(json, "list", 0, 1).size(), 1u);
  EXPECT_EQ(kReader.find(json, "none"), nullptr);
  EXPECT_EQ(kReader.find(json, "absent"), nullptr);
  EXPECT_NE(kReader.find(json, "size"), nullptr);
}

TEST(JsonReader, RefusesWhatIsNot) {
  const auto json = kReader.parse(R"({"size": 9223372036854775808, "name": "abc", "list": [1, 2]})");
  EXPECT_HAS(refused_by([&] { kReader.integer(json, "size", 0, INT64_MAX); }),
             "'size' must be a whole number");
  EXPECT_HAS(refused_by([&] { kReader.integer(json, "name", 0, 9); }),
             "'name' must be a whole number from 0 to 9");
  EXPECT_HAS(refused_by([&] { kReader.number(json, "name"); }), "'name' must be a number");
  EXPECT_HAS(refused_by([&] { kReader.text(json, "name", 2); }), "'name' has 3 bytes, at most 2");
  EXPECT_HAS(refused_by([&] { kReader.text(json, "list", 2); }), "'list' must be a text");
  EXPECT_HAS(refused_by([&] { kReader.flag(json, "name"); }), "'name' must be true or false");
  EXPECT_HAS(refused_by([&] { kReader.list(json, "list", 0, 1); }), "'list' has 2 members, 0 to 1");
  EXPECT_HAS(refused_by([&] { kReader.list(json, "name", 0, 1); }), "'name' must be a list");
  EXPECT_HAS(refused_by([&] { kReader.member(json, "absent"); }), "has no 'absent'");
  EXPECT_HAS(refused_by([&] { kReader.member(json["list"], "a"); }), "an object with 'a' was expected");
}

TEST(JsonReader, ChecksDeepValuesThatItLeavesOut) {
  const auto json = kReader.parse(R"({"text": "a", "list": [1, {"b": 2}], "c": {"d": 3}, "e": 4})", 1);
  EXPECT_EQ(json.dump(), R"({"text":"a","list":[],"c":{},"e":4})");
  EXPECT_HAS(refused_by([] { kReader.parse(R"({"a": [{"b": 1, "b": 2}]})", 1); }), "has 'b' twice");
  EXPECT_EQ(refused_by([] { kReader.parse(R"({"a": [{"b": 1}, {"b": 2}], "b": {"b": 3}})", 1); }), "");
  // An ordered object compares each new key with all before, so few keys may be in large objects.
  const auto object_of = [](int count) {
    std::string keys = "{\"first\": 0";
    for (int i = 1; i < count; ++i) keys += fmt::format(", \"{}\": 0", i);
    return keys + "}";
  };
  EXPECT_EQ(refused_by([&] { kReader.parse(object_of(20'256)); }), "");
  EXPECT_HAS(refused_by([&] { kReader.parse(object_of(20'257)); }),
             "has more than 20000 keys in large objects");
  const std::string half = object_of(11'000), small = object_of(200);
  EXPECT_HAS(refused_by([&] { kReader.parse("{\"a\": " + half + ", \"b\": " + half + "}"); }),
             "has more than 20000 keys in large objects");
  std::string many = "{\"list\": [" + small;
  for (int i = 1; i < 200; ++i) many += "," + small;
  EXPECT_EQ(refused_by([&] { kReader.parse(many + "]}"); }), "") << "40,000 keys in small objects";
}

TEST(JsonReader, ASealFindsAnyChangedByte) {
  const std::string text = sealed_text({{"number", 4}, {"text", "a\nb"}});
  EXPECT_EQ(kReader.parse(text).at("number"), 4);
  EXPECT_EQ(refused_by([&] { kReader.require_seal(text); }), "");
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_HAS(refused_by([&] { kReader.require_seal(changed); }), "hash of its bytes") << i;
  }
  EXPECT_HAS(refused_by([] { kReader.require_seal("{}"); }), "has 2 bytes: it is cut short");
}

TEST(JsonReader, RefusesTextThatIsNoDocument) {
  EXPECT_HAS(refused_by([] { kReader.parse("[]"); }), "is not a JSON object");
  EXPECT_HAS(refused_by([] { kReader.parse("{\"a\": 1, \"a\": 2}"); }), "has 'a' twice");
  EXPECT_HAS(refused_by([] { kReader.parse("{\"a\": {\"b\": 1, \"b\": 2}}"); }), "has 'b' twice");
  EXPECT_HAS(refused_by([] { kReader.parse(std::string(100, '[')); }), "nests deeper than 32 levels");
  // The words that Python's json module writes are named.
  for (const char* text : {"{\"a\": NaN}", "{\"a\": [0, Infinity]}", "{\"a\": -Infinity}"})
    expect_error([&] { kReader.parse(text); }, ExitCode::kInputData, "", "NaN and Infinity are Python's");
  EXPECT_HAS(refused_by([] { kReader.parse("version https://git-lfs.github.com/spec/v1\noid"); }), "Git LFS");
  // A message is one short line for any document.
  EXPECT_LT(refused_by([] { kReader.parse("{\"a\": " + std::string(100000, 'x')); }).size(), 300u);
  const std::string twice = "\"" + std::string(100000, 'k') + "\": 1";
  EXPECT_LT(refused_by([&] { kReader.parse("{" + twice + "," + twice + "}"); }).size(), 300u);
  EXPECT_HAS(refused_by([] { kReader.parse(R"({"a\n\u0000\u001b[2J": 1, "a\n\u0000\u001b[2J": 2})"); }),
             "has 'a   [2J' twice");
  EXPECT_EQ(in_one_line("a\xc2\x9b"
                        "2J\x7f\xc3\xa9\xc2\xa0"),
            "a  2J \xc3\xa9\xc2\xa0")
      << "U+009B is a control, too";
}

}  // namespace
}  // namespace ripstop
