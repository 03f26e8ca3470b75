// Bad tokenizer.json files: each ends with 65 and one line that says what is wrong.
#include <gtest/gtest.h>

#include <functional>

#include "data/tokenizer/regex.h"
#include "data/tokenizer/regex_syntax.h"
#include "model/core/error.h"
#include "tests/data/tokenizer/small_tokenizer_json.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

/// The message; "accepted" if nothing is thrown.
std::string refusal(const std::function<void()>& action) {
  const Error error = error_of(action, ExitCode::kInputData);
  const std::string what = error.what();
  EXPECT_LT(what.size(), 1000U);
  for (const char c : what + error.hint()) EXPECT_GE(static_cast<unsigned char>(c), 0x20U) << what;
  return error.code() == ExitCode::kOk ? "accepted" : what;
}

std::string refusal_of(const std::string& json) {
  return refusal([&] { JsonTokenizer(json, "bad.json"); });
}

/// A sound document with a component of each kind.
OrderedJson sound() {
  OrderedJson json = small_tokenizer_json({"a", "b", "ab", "<unk>"}, {"a b"});
  json["added_tokens"] = {added_token_json(4, "<s>", "special")};
  json["normalizer"] = json_of(R"({"type": "Replace", "pattern": {"String": "x"}, "content": "y"})");
  json["pre_tokenizer"] =
      json_of(R"({"type": "Split", "pattern": {"Regex": "\\s"}, "behavior": "Isolated", "invert": false})");
  json["post_processor"] = json_of(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B"}},
    {"Sequence": {"id": "A"}}], "pair": [], "special_tokens": {"B": {"id": "B", "ids": [4], "tokens": ["<s>"]}}})");
  json["decoder"] = json_of(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})");
  return json;
}

struct Change {
  const char* path;   // of the member that is replaced or added
  const char* value;  // JSON; nullptr: the member is removed
  const char* what;   // in the message
};

constexpr Change kChanges[] = {
    // The document.
    {"/version", R"("2.0")", "version '2.0'"},
    {"/model", nullptr, "has no 'model'"},
    {"/model", "[]", "has no 'model'"},
    {"/vocab", "1", "accepted"},
    {"/truncation", R"({"max_length": -1})", "accepted"},
    {"/padding", "7", "accepted"},
    // The model.
    {"/model/type", R"("Unigram")", "type 'Unigram'"},
    {"/model/type", R"("WordPiece")", "type 'WordPiece'"},
    {"/model/type", R"("WordLevel")", "type 'WordLevel'"},
    {"/model/type", "3", "'type' must be a text"},
    {"/model/dropout", "0.1", "dropout"},
    {"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
    {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
    {"/model/fuse_unk", "1", "'fuse_unk' must be true or false"},
    {"/model/unk_token", "3", "'unk_token' must be a text"},
    {"/model/new_option", "true", "unknown member 'new_option'"},
    {"/model/vocab", nullptr, "has no 'vocab'"},
    {"/model/vocab", "{}", "vocabulary is empty"},
    {"/model/vocab", R"([["a", 0.5]])", "'vocab' is a list"},
    {"/model/vocab/a", "-1", "id of the piece 'a'"},
    {"/model/vocab/a", "0.5", "id of the piece 'a'"},
    {"/model/vocab/a", "1e9", "id of the piece 'a'"},
    {"/model/vocab/a", "1000000", "id of the piece 'a'"},
    {"/model/vocab/a", "[0]", "id of the piece 'a'"},
    {"/model/vocab/a", R"({"id": 0})", "id of the piece 'a'"},
    {"/model/vocab/a", "1", "same id 1"},
    {"/model/vocab/", "9", "empty piece"},
    {"/model/vocab/ab", nullptr, "needs the piece 'ab'"},
    {"/model/vocab/b", nullptr, "needs the piece 'b'"},
    {"/model/merges", nullptr, "has no 'merges'"},
    {"/model/merges", R"({"a": "b"})", "'merges' is an object"},
    {"/model/merges", "7", "'merges' is neither a list nor an object"},
    {"/model/merges", R"("a b")", "'merges' is neither a list nor an object"},
    {"/model/vocab", "true", "'vocab' is neither a list nor an object"},
    {"/model/merges", R"(["a"])", "merge 0 must be two pieces"},
    {"/model/merges", R"(["a b c"])", "merge 0 must be two pieces"},
    {"/model/merges", R"(["a  b"])", "merge 0 must be two pieces"},
    {"/model/merges", R"([" a"])", "merge 0 must be two pieces"},
    {"/model/merges", R"([["a"]])", "merge 0 must be two pieces"},
    {"/model/merges", R"([["a", "b", "a"]])", "merge 0 must be two pieces"},
    {"/model/merges", R"([["a", ["b"]]])", "merge 0 must be two pieces"},
    {"/model/merges", R"([[]])", "merge 0 must be two pieces"},
    {"/model/merges", "[7]", "a merge must be a text"},
    {"/model/merges", R"(["ab a", "a ab"])", "needs the piece 'aba'"},
    // Added tokens.
    {"/added_tokens", "{}", "'added_tokens' must be a list"},
    {"/added_tokens/0", "3", "added token is no object"},
    {"/added_tokens/0/id", nullptr, "has no 'id'"},
    {"/added_tokens/0/id", "5", "would give it 4"},
    {"/added_tokens/0/id", "-4", "id of an added token"},
    {"/added_tokens/0/content", R"("a")", "would give it 0"},
    {"/added_tokens/0/special", nullptr, "has no 'special'"},
    {"/added_tokens/0/lstrip", R"("yes")", "'lstrip' must be true or false"},
    {"/added_tokens/1", R"({"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
      "normalized": false, "special": true})",
     "two added tokens are found by '<s>'"},
    {"/model/vocab/<unk>", "4", "and the piece '<unk>' have the same id 4"},
    // Components.
    {"/normalizer/type", R"("Precompiled")", "normalizer 'Precompiled'"},
    {"/normalizer/type", R"("Nmt")", "normalizer 'Nmt'"},
    {"/normalizer/type", nullptr, "has no 'type'"},
    {"/normalizer", R"("NFC")", "normalizer is no object"},
    {"/normalizer/pattern", R"({"String": ""})", "empty text"},
    {"/normalizer/pattern", R"({"Glob": "*"})", "'String' or 'Regex'"},
    {"/normalizer/pattern", R"({"Regex": "a?"})", "replaces the empty text"},
    {"/normalizer/pattern", "{}", "'String' or 'Regex'"},
    {"/normalizer/flags", "1", "unknown member 'flags'"},
    {"/pre_tokenizer/type", R"("BertPreTokenizer")", "pre-tokenizer 'BertPreTokenizer'"},
    {"/pre_tokenizer/type", R"("UnicodeScripts")", "pre-tokenizer 'UnicodeScripts'"},
    {"/pre_tokenizer/behavior", R"("Joined")", "behavior 'Joined'"},
    {"/pre_tokenizer/invert", nullptr, "has no 'invert'"},
    {"/pre_tokenizer/pattern/Regex", R"("(a")", "'(' without ')'"},
    {"/pre_tokenizer", R"({"type": "Sequence"})", "has no 'pretokenizers'"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "must be one letter"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
     "scheme 'last'"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})",
     "'prepend_scheme' is 'always'"},
    {"/pre_tokenizer",
     R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
      {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})",
     "Metaspace with 'first'"},
    {"/post_processor/single", "[]", "0 members"},
    {"/post_processor/single/1", nullptr, "it 0 times"},
    {"/post_processor/single/2", R"({"Sequence": {"id": "B"}})", "one text has two"},
    {"/post_processor/single/0/SpecialToken/id", R"("C")", "has no 'C'"},
    {"/post_processor/special_tokens/B/ids", "[5]", "token 5 lies outside the vocabulary of 5"},
    {"/post_processor", R"({"type": "Sequence", "processors": [{"type": "BertProcessing", "sep": ["", 1],
      "cls": ["", 1]}, {"type": "RobertaProcessing", "sep": ["", 1], "cls": ["", 1]}]})",
     "two post-processors"},
    {"/post_processor/type", R"("Other")", "post-processor 'Other'"},
    {"/decoder/type", R"("WordPiece")", "decoder 'WordPiece'"},
    {"/decoder/type", R"("CTC")", "decoder 'CTC'"},
    {"/decoder/start", "-1", "'start' must be a whole number"},
    {"/decoder/content", R"("")", "must be one letter"},
};

TEST(BadTokenizerJson, EachMemberIsCheckedByName) {
  ASSERT_EQ(refusal_of(sound().dump()), "accepted");
  for (const Change& change : kChanges) {
    OrderedJson json = sound();
    const OrderedJson::json_pointer place(change.path);
    if (change.value == nullptr)
      json = json.patch({{{"op", "remove"}, {"path", change.path}}});
    else
      json[place] = json_of(change.value);
    SCOPED_TRACE(json.dump());
    const std::string what = refusal_of(json.dump());
    EXPECT_HAS(what, change.what);
    if (what != "accepted") {
      EXPECT_TRUE(what.starts_with("bad.json: ")) << what;
    }
  }
}

TEST(BadTokenizerJson, DocumentsThatAreNone) {
  EXPECT_HAS(refusal_of(""), "bad.json: is not JSON");
  EXPECT_HAS(refusal_of("[1]"), "is not a JSON object");
  EXPECT_HAS(refusal_of("{}"), "has no 'model'");
  EXPECT_HAS(refusal_of(sound().dump().substr(0, 200)), "is not JSON at byte");
  EXPECT_HAS(refusal_of(R"({"config": {"pattern": "x"}, "vocab": [], "special_tokens": []})"), "tekken.json");
  EXPECT_HAS(refusal_of(R"({"model": {"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []}})"),
             "has 'a' twice");
  EXPECT_HAS(refusal_of("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xff\": 0}, \"merges\": []}}"),
             "is not JSON");
  EXPECT_HAS(refusal_of(R"({"model": {"type": "BPE", "vocab": {"\ud800": 0}, "merges": []}})"),
             "is not JSON");
  EXPECT_HAS(refusal_of("\x7f"
                        "ELF"),
             "is not JSON");
}

TEST(BadTokenizerJson, SizesHaveLimits) {
  std::string deep = R"({"normalizer": )";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  EXPECT_HAS(refusal_of(deep), "nests deeper than");
  std::string many = R"({"added_tokens": [)";
  for (int i = 0; i < 1'000'000; ++i) many += "0,";
  EXPECT_HAS(refusal_of(many + "0]}"), "more than 1000000 values");
  EXPECT_HAS(refusal_of(std::string((size_t{64} << 20) + 1, ' ')), "at most 67108864 are accepted");
  OrderedJson json = sound();
  json["pre_tokenizer"]["pattern"]["Regex"] = std::string(70'000, 'a');
  EXPECT_HAS(refusal_of(json.dump()), "'Regex' has 70000 bytes");
  json["pre_tokenizer"]["pattern"]["Regex"] = std::string(60, '(') + std::string(60, ')');
  EXPECT_HAS(refusal_of(json.dump()), "too many groups");
  json = sound();
  for (int i = 0; i < 20; ++i)
    json["decoder"] = {{"type", "Sequence"}, {"decoders", OrderedJson::array({json["decoder"]})}};
  EXPECT_HAS(refusal_of(json.dump()), "nests deeper than");
}

TEST(BadTokenizerJson, RegularExpressionsThatMightMatchOtherwiseAreRefused) {
  for (const char* pattern :
       {"a)",         "(a",          "[a",          "[]a]",        "[a[b]]",  "[a&&b]",      "[z-a]",
        "[a-\\d]",    "[a-b-c]",     "[[:alpha:]]", "a{2}{3}",     "a**",     "*a",          "(?=a)*",
        "(a?)*",      "a{2,1}",      "a{1001}",     "a{1,2}+",     "a{2}?",   "\\b",         "\\B",
        "\\w",        "\\h",         "\\R",         "\\X",         "\\K",     "\\G",         "\\A",
        "\\1",        "\\k<a>",      "(?<n>a)",     "(?i)a",       "(?x: a)", "(?#c)",       "(?~a)",
        "\\p{Alpha}", "\\p{C}",      "\\p{Mn}",     "\\pL",        "\\xff",   "\\x{110000}", "\\ud800",
        "(?i:ss)",    "(?i:\u00df)", "(?i:[^a])",   "(?i:\\p{L})", "a]",      "a}",          "\\",
        "[\\",        "\\p{",        "\\x"})
    EXPECT_HAS(refusal([&] { Regex{pattern}; }), "the regular expression");
  EXPECT_EQ(pcre2_syntax("[^\\r\\n-]?(?i:'s|[dt])\\p{L}{1,3}|\\S+$"),
            "[^\\x{d}\\x{a}\\x{2d}]?(?i:\\x{27}s|[dt])[\\p{L}]{1,3}|[^" + std::string(kSpaceRanges) + "]+$");
}

TEST(BadTokenizerJson, RegularExpressionsThatExplodeEndWithAnError) {
  OrderedJson json = sound();
  for (const char* pattern : {"(a+)+[bc]", "(?:a|aa)+[bc]", ".*.*.*.*[bc]"}) {
    json["pre_tokenizer"]["pattern"]["Regex"] = pattern;
    const JsonTokenizer tokenizer = tokenizer_of(json);
    EXPECT_HAS(refusal([&] { ids_of(tokenizer, std::string(5'000, 'a')); }), "fails on a text");
  }
}

// The time of each search grows with the text, and so does the number of searches.
TEST(BadTokenizerJson, SearchesHaveALimitOfTime) {
  RegexScratch scratch;
  const auto search = [&](const char* pattern, const std::string& text) {
    const Regex regex(pattern);
    for (size_t at = 0; const auto found = regex.find(text, at, scratch);) at = found->end;
  };
  search("a+b|a", std::string(1'000, 'a'));
  scratch.start(0);
  EXPECT_HAS(refusal([&] { search("a+b|a", std::string(1'000, 'a')); }),
             "'a+b|a' fails on a text of 1000 bytes: it takes more than 60 s");
  EXPECT_HAS(refusal([&] { search("a+b", std::string(100'000, 'a')); }), "fails on a text of 100000 bytes");
}

// A search looks at a part of the places where a match can begin, and then at the next part.
TEST(BadTokenizerJson, ALongSearchFindsTheFirstMatch) {
  RegexScratch scratch;
  for (const size_t letters : {127, 128, 129, 255, 256, 257, 1'000}) {
    std::string text = "a";
    for (size_t i = 0; i < letters; ++i) text += "\u00e9";
    const auto found = Regex("(?<=\u00e9)x|x$").find(text + "x", 0, scratch);
    ASSERT_TRUE(found) << letters;
    EXPECT_EQ(found->begin, text.size());
    EXPECT_FALSE(Regex("x").find(text, 0, scratch));
  }
}

TEST(BadTokenizerJson, TextsThatGrowWithoutEndEndWithAnError) {
  OrderedJson json = sound();
  const OrderedJson grows = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1'000, 'a')}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {grows, grows, grows}}};
  const JsonTokenizer tokenizer = tokenizer_of(json);
  EXPECT_HAS(refusal([&] { ids_of(tokenizer, "a"); }), "the tokenizer makes more than");
  json["normalizer"]["normalizers"] = std::vector<OrderedJson>(101, {{"type", "Lowercase"}});
  EXPECT_HAS(refusal([&] { tokenizer_of(json); }), "more than 100 components");
}

TEST(BadTokenizerJson, TextsThatAreNotUtf8) {
  EXPECT_HAS(refusal([] { ids_of(tokenizer_of(sound()), "a\xff"); }), "not UTF-8 at byte 1");
}

}  // namespace
}  // namespace ripstop
