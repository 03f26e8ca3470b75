#include "data/corpus/corpus.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/text/utf8.h"
#include "tests/data/compressed_files.h"
#include "tests/data/corpus_reading.h"
#include "tests/test_files.h"

namespace ripstop {
namespace {

/// An article file in the form of XSum's distribution.
std::string article(const std::string& mark, const std::string& summary, const std::string& body) {
  return mark + "URL" + mark + "\nhttp://example.org/1\n\n" + mark + "TITLE" + mark + "\nA title\n\n" + mark +
         "FIRST-SENTENCE" + mark + "\n" + summary + "\n\n" + mark + "RESTBODY" + mark + "\n" + body;
}

TEST(CorpusTest, JsonlGivesItsFieldsAndSplitsByFileName) {
  ScratchDirectory scratch;
  write_bytes(scratch / "c/train.jsonl",
              "\xef\xbb\xbf{\"document\": \"d1\\nx\", \"summary\": \"s1\", \"id\": \"one\"}\r\n"
              "\n"
              "{\"id\": 7, \"summary\": \"s2\", \"document\": \"d2\", \"extra\": {\"summary\": [1, "
              "{\"document\": null}]}}\n"
              "{\"summary\": \"s3\", \"document\": \"d3\"}");
  write_gzip(scratch / "c/validation_1.jsonl.gz", "{\"document\": \"v\", \"summary\": \"sv\"}\n");
  write_bytes(scratch / "c/dev2.jsonl", "{\"document\": \"w\", \"summary\": \"sw\"}\n");
  write_bytes(scratch / "c/test-b.jsonl", "{\"document\": \"t\", \"summary\": \"st\"}\n");
  write_bytes(scratch / "c/readme.md", "not read");
  const auto examples = read_all(source_of({scratch / "c"}));
  ASSERT_EQ(examples.size(), 6u);
  std::map<std::string, CorpusExample> by_document;
  for (const auto& e : examples) by_document[e.document] = e;
  EXPECT_EQ(by_document["d1\nx"].id, "one");
  EXPECT_EQ(by_document["d1\nx"].summary, "s1");
  EXPECT_EQ(by_document["d1\nx"].split, Split::kTrain);
  EXPECT_EQ(by_document["d2"].id, "7");
  EXPECT_EQ(by_document["d2"].summary, "s2");
  EXPECT_EQ(by_document["d3"].id, "train-4");
  EXPECT_EQ(by_document["d3"].line, 4);
  EXPECT_EQ(by_document["v"].split, Split::kValidation);
  EXPECT_EQ(by_document["w"].split, Split::kValidation);
  EXPECT_EQ(by_document["t"].split, Split::kTest);
}

TEST(CorpusTest, FieldsCanBeRenamed) {
  ScratchDirectory scratch;
  write_bytes(scratch / "a.jsonl", "{\"article\": \"d\", \"highlights\": \"s\", \"document\": 1}\n");
  CorpusSource source = source_of({scratch / "a.jsonl"});
  source.document_field = "article";
  source.summary_field = "highlights";
  const auto examples = read_all(source);
  ASSERT_EQ(examples.size(), 1u);
  EXPECT_EQ(examples[0].document, "d");
  EXPECT_EQ(examples[0].summary, "s");
}

TEST(CorpusTest, AValidationFractionIsTakenByContent) {
  ScratchDirectory scratch;
  std::string lines;
  for (int i = 0; i < 2000; ++i)
    lines += fmt::format("{{\"document\": \"number {}\", \"summary\": \"s\"}}\n", i);
  write_bytes(scratch / "all.jsonl", lines);
  CorpusSource source = source_of({scratch / "all.jsonl"});
  source.validation_fraction = 0.1;
  std::set<std::string> first, second;
  for (const auto& e : read_all(source)) {
    if (e.split == Split::kValidation) first.insert(e.document);
  }
  EXPECT_NEAR(static_cast<double>(first.size()), 200, 60);
  source.validation_fraction = 0.2;
  for (const auto& e : read_all(source)) {
    if (e.split == Split::kValidation) second.insert(e.document);
  }
  // A larger fraction only adds documents: none moves from validation to train.
  for (const auto& document : first) EXPECT_TRUE(second.count(document));
}

TEST(CorpusTest, BadJsonlLinesAreNamed) {
  ScratchDirectory scratch;
  const std::string good = "{\"document\": \"d\", \"summary\": \"s\"}\n";
  std::string deep = good;
  deep.insert(deep.size() - 2, ", \"x\": " + std::string(40, '[') + std::string(40, ']'));
  std::string very_deep = "{\"x\": " + std::string(300000, '[') + "\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"document\": \"d\", \"summary\": \"s\"\n", "not JSON"},
      {"not json at all\n", "not JSON"},
      {"[1, 2]\n", "not a JSON object"},
      {"\"text\"\n", "not a JSON object"},
      {"{} {}\n", "not JSON"},
      {"{\"document\": \"d\"}\n", "'summary' is missing; the line has document"},
      {"{\"summary\": \"d\"}\n", "'document' is missing; the line has summary"},
      {"{}\n", "'document' is missing; the line has no fields"},
      {"{\"document\": 5, \"summary\": \"s\"}\n", "'document' is of type number, expected a string"},
      {"{\"document\": \"d\", \"summary\": true}\n", "'summary' is of type boolean, expected a string"},
      {"{\"document\": \"d\", \"summary\": 1.5}\n", "'summary' is of type number, expected a string"},
      {"{\"document\": \"d\", \"summary\": {\"summary\": \"s\"}}\n",
       "'summary' is of type object, expected a string"},
      {"{\"document\": [\"d\"], \"summary\": \"s\"}\n", "'document' is of type array, expected a string"},
      {"{\"document\": \"d\", \"document\": \"e\", \"summary\": \"s\"}\n", "twice"},
      {"{\"document\": \"\\ud800\", \"summary\": \"s\"}\n", "not JSON"},
      {"{\"document\": \"a\tb\", \"summary\": \"s\"}\n", "not JSON"},
      {deep, "nests deeper"},
      {very_deep, "nests deeper"},
  };
  for (const auto& [line, words] : cases) {
    write_bytes(scratch / "train.jsonl", good + "\n" + line);
    expect_error(ExitCode::kInputData, {"train.jsonl:3: ", words},
                 [&] { read_all(source_of({scratch / "train.jsonl"}, SourceKind::kJsonl)); });
  }
  write_bytes(scratch / "train.jsonl", "{\"x\": " + deep_list() + "}\n");
  expect_error(ExitCode::kInputData, {"train.jsonl:1: ", "nests deeper"},
               [&] { read_all(source_of({scratch / "train.jsonl"})); });
}

TEST(CorpusTest, InvalidUtf8IsMarkedNotThrown) {
  ScratchDirectory scratch;
  write_bytes(scratch / "train.jsonl",
              "{\"document\": \"a\xff\", \"summary\": \"s\"}\n{\"document\": \"d\", \"summary\": \"s\"}\n");
  write_bytes(scratch / "a.txt", "some \xed\xa0\x80 text\n");
  auto examples = read_all(source_of({scratch / "train.jsonl"}));
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_TRUE(examples[0].invalid_utf8);
  EXPECT_EQ(examples[0].line, 1);
  EXPECT_FALSE(examples[1].invalid_utf8);
  examples = read_all(source_of({scratch / "a.txt"}));
  ASSERT_EQ(examples.size(), 1u);
  EXPECT_TRUE(examples[0].invalid_utf8);
}

TEST(CorpusTest, DamagedAndHostileFilesAreRefused) {
  ScratchDirectory scratch;
  std::string lines;
  for (int i = 0; i < 5000; ++i)
    lines += fmt::format("{{\"document\": \"document {}\", \"summary\": \"{}\"}}\n", i * 7919, i);
  write_gzip(scratch / "good.jsonl.gz", lines);
  const std::string packed = read_bytes(scratch / "good.jsonl.gz");
  write_bytes(scratch / "train.jsonl.gz", packed.substr(0, packed.size() / 2));
  expect_error(ExitCode::kInputData, {"train.jsonl.gz"},
               [&] { read_all(source_of({scratch / "train.jsonl.gz"}, SourceKind::kJsonl)); });
  // Damage in the middle, which gzip finds by a checksum or an impossible code.
  std::string broken = packed;
  for (size_t i = packed.size() / 2; i < packed.size() / 2 + 64; ++i) broken[i] = '\x55';
  write_bytes(scratch / "train.jsonl.gz", broken);
  expect_error(ExitCode::kInputData, {"train.jsonl.gz"},
               [&] { read_all(source_of({scratch / "train.jsonl.gz"}, SourceKind::kJsonl)); });
  // 40 MiB of spaces pack to 40 KiB.
  write_gzip(scratch / "bomb.jsonl.gz", std::string(size_t{40} << 20, ' '));
  expect_error(ExitCode::kInputData, {"bomb.jsonl.gz", "unpack"},
               [&] { read_all(source_of({scratch / "bomb.jsonl.gz"}, SourceKind::kJsonl)); });
  {
    std::ofstream out(scratch / "long.jsonl", std::ios::binary);
    out << "{\"document\": \"d\", \"summary\": \"s\"}\n{\"document\": \"";
    for (int i = 0; i < 70; ++i) out << std::string(size_t{1} << 20, char('a' + i % 20));
  }
  expect_error(ExitCode::kInputData, {"long.jsonl:2", "64 MiB"},
               [&] { read_all(source_of({scratch / "long.jsonl"}, SourceKind::kJsonl)); });
  write_bytes(scratch / "noise.tar.gz", std::string(3000, '\x7f'));
  expect_error(ExitCode::kInputData, {"noise.tar.gz"},
               [&] { read_all(source_of({scratch / "noise.tar.gz"})); });
  write_bytes(scratch / "empty.tar.gz", "");
  expect_error(ExitCode::kInputData, {"empty.tar.gz"},
               [&] { read_all(source_of({scratch / "empty.tar.gz"})); });
}

TEST(CorpusTest, WhatCannotBeTheInputIsRefusedBeforeReading) {
  ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "empty");
  write_bytes(scratch / "a.bin", "?");
  write_bytes(scratch / "a.jsonl", "{\"document\": \"d\", \"summary\": \"s\"}\n");
  write_bytes(scratch / "b.txt", "text\n");
  expect_error(ExitCode::kUsage, {"no input"}, [&] { read_all(source_of({})); });
  expect_error(ExitCode::kUsage, {"nothing in there"}, [&] { read_all(source_of({scratch / "empty"})); });
  expect_error(ExitCode::kInputData, {"no such file"},
               [&] { read_all(source_of({scratch / "absent.jsonl"})); });
  expect_error(ExitCode::kUsage, {"cannot tell"}, [&] { read_all(source_of({scratch / "a.bin"})); });
  expect_error(ExitCode::kUsage, {"a.jsonl is jsonl, ", "b.txt is text: cannot tell"}, [&] {
    read_all(source_of({scratch / "a.jsonl", scratch / "b.txt"}));
  });
  expect_error(ExitCode::kUsage, {"given twice"}, [&] {
    read_all(source_of({scratch / "a.jsonl", scratch / "a.jsonl"}));
  });
  expect_error(ExitCode::kUsage, {"no .summary"},
               [&] { read_all(source_of({scratch / "b.txt"}, SourceKind::kXsum)); });
  expect_error(ExitCode::kUsage, {"--examples"}, [&] { read_all(source_of({}, SourceKind::kSynthetic)); });
  expect_error(ExitCode::kUsage, {"no --input"},
               [&] { read_all(source_of({scratch / "b.txt"}, SourceKind::kSynthetic)); });
}

TEST(CorpusTest, AFileThatChangesWhileItIsReadIsRefused) {
  ScratchDirectory scratch;
  write_bytes(scratch / "train.jsonl", "{\"document\": \"d\", \"summary\": \"s\"}\n");
  CorpusProgress progress;
  expect_error(ExitCode::kInputData, {"train.jsonl", "changed"}, [&] {
    read_corpus(resolve_source(source_of({scratch / "train.jsonl"})), progress, [&](CorpusExample&) {
      std::ofstream(scratch / "train.jsonl", std::ios::app) << "{\"document\": \"e\", \"summary\": \"s\"}\n";
    });
  });
  write_bytes(scratch / "d/1.summary", article("[SN]", "S.", "D."));
  expect_error(ExitCode::kInputData, {"1.summary", "went away"}, [&] {
    read_corpus(resolve_source(source_of({scratch / "d"})), progress,
                [&](CorpusExample&) { std::filesystem::remove(scratch / "d/1.summary"); });
  });
  EXPECT_EQ(progress.done, 0);
}

TEST(CorpusTest, PlainTextIsOneDocumentAFileWithItsLineEndsNormal) {
  ScratchDirectory scratch;
  write_bytes(scratch / "a.txt", "\xef\xbb\xbfone\r\n\r\ntwo\r\n");
  write_bytes(scratch / "test_b.txt", "three");
  const auto examples = read_all(source_of({scratch.path()}));
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].document, "one\n\ntwo\n");
  EXPECT_EQ(examples[0].id, "a");
  EXPECT_EQ(examples[1].document, "three\n");
  EXPECT_EQ(examples[1].split, Split::kTest);
}

TEST(CorpusTest, AHugePlainFileComesInPartsThatLoseNothing) {
  ScratchDirectory scratch;
  std::string text;
  while (text.size() < 3'000'000) text += "a line of text that is not very long\n";
  write_bytes(scratch / "a.txt", text);
  std::string together;
  const auto examples = read_all(source_of({scratch / "a.txt"}));
  EXPECT_EQ(examples.size(), 3u);
  for (const auto& e : examples) together += e.document;
  EXPECT_EQ(together, text);
}

TEST(CorpusTest, TextJsonlIsToldFromPairs) {
  ScratchDirectory scratch;
  write_bytes(scratch / "train.jsonl", "{\"text\": \"running\"}\n{\"text\": \"on\", \"id\": \"x\"}\n");
  const auto source = resolve_source(source_of({scratch / "train.jsonl"}));
  EXPECT_EQ(source.kind, SourceKind::kText);
  const auto examples = read_all(source);
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].document, "running");
  EXPECT_EQ(examples[1].id, "x");
  write_bytes(scratch / "train.jsonl", "{\"text\": \"no UTF-8: \xff\"}\n{\"text\": \"on\"}\n");
  const auto after_damage = read_all(source_of({scratch / "train.jsonl"}));
  ASSERT_EQ(after_damage.size(), 2u);
  EXPECT_TRUE(after_damage[0].invalid_utf8);
  EXPECT_EQ(after_damage[1].document, "on");
  write_bytes(scratch / "train.jsonl", "{\"text\": \"running\"}\n{\"other\": \"on\"}\n");
  expect_error(ExitCode::kInputData, {"train.jsonl:2"},
               [&] { read_all(source_of({scratch / "train.jsonl"})); });
}

TEST(CorpusTest, XsumArticlesInBothSpellingsFromDirectoryAndArchive) {
  ScratchDirectory scratch;
  const std::string body =
      "Share this with\nEmail\nFacebook\nThe first line.\n\n  \nThe second line.\r\nCopy this link\n"
      "These are external links and will open in a new window\nEmail me\nThe end.\n";
  write_bytes(scratch / "d/11.summary", article("[SN]", " The summary. ", body));
  write_bytes(scratch / "d/22.summary", article("[XSUM]", "Other.", "Body.\n"));
  write_bytes(scratch / "d/33.summary", article("[SN]", "Unlisted.", "Body.\n"));
  write_bytes(scratch / "splits.json", R"({"test": ["22"], "validation": ["99"], "train": ["11", "44"]})");
  write_tar_gzip(scratch / "d.tar.gz", {{"x/11.summary", read_bytes(scratch / "d/11.summary")},
                                        {"x/._11.summary", "junk"},
                                        {"x/readme", "junk"},
                                        {"x/22.summary", read_bytes(scratch / "d/22.summary")},
                                        {"x/33.summary", read_bytes(scratch / "d/33.summary")}});
  write_gzip(scratch / "splits.json.gz", read_bytes(scratch / "splits.json"));
  for (const auto& [input, splits] : {std::pair{"d", "splits.json"}, {"d.tar.gz", "splits.json.gz"}}) {
    CorpusSource source = source_of({scratch / input});
    source.splits = scratch / splits;
    CorpusCounts counts;
    const auto examples = read_all(source, &counts);
    ASSERT_EQ(examples.size(), 2u) << input;
    EXPECT_EQ(examples[0].id, "11");
    EXPECT_EQ(examples[0].split, Split::kTrain);
    EXPECT_EQ(examples[0].summary, "The summary.");
    // "Email" alone is a line of the web page around the article, "Email me" is text.
    EXPECT_EQ(examples[0].document, "The first line.\nThe second line.\nEmail me\nThe end.");
    EXPECT_EQ(examples[1].split, Split::kTest);
    EXPECT_EQ(examples[1].document, "Body.");
    EXPECT_EQ(counts.absent_ids, 2);
    EXPECT_EQ(counts.unlisted, 1);
  }
}

TEST(CorpusTest, IdsThatAreNoTextsKeepTheirText) {
  ScratchDirectory scratch;
  const auto id_of = [&](const std::string& id) {
    write_bytes(scratch / "train.jsonl",
                "{\"document\": \"\\\"id\\\": 5, d\", \"summary\": \"id\", \"x\": {\"id\": 6}, " + id +
                    "\"y\": [\"id\", 7]}\n");
    return read_all(source_of({scratch / "train.jsonl"})).at(0).id;
  };
  for (const char* id : {"12", "12.0", "-0", "1e3", "0.1000", "123456789012345678901234567890", "true",
                         R"({"$oid": "5f}\"", "n": [1, {"id": 2}]})", "[1, 2]"})
    EXPECT_EQ(id_of(std::string("\"id\" : ") + id + " , "), id);
  EXPECT_EQ(id_of(R"("id": "a b", )"), "a b");
  for (const char* none : {"", R"("id": null, )", R"("id": "", )"}) EXPECT_EQ(id_of(none), "train-1") << none;
}

TEST(CorpusTest, ArticlesBehindLinksOfAnArchiveAreRead) {
  ScratchDirectory scratch;
  const std::filesystem::path d = scratch / "d";
  for (const char* id : {"3", "5"})
    write_bytes(d / "a" / (std::string(id) + ".summary"), article("[SN]", "S.", id));
  std::filesystem::create_hard_link(d / "a/5.summary", d / "1.summary");
  std::filesystem::create_symlink("a/3.summary", d / "2.summary");
  std::filesystem::create_symlink("../2.summary", d / "a/6.summary");
  for (const auto& [name, to] :
       {std::pair{"7", "absent.summary"}, {"8", "8.summary"}, {"9", "../../x/9.summary"}})
    std::filesystem::create_symlink(to, d / (std::string(name) + ".summary"));
  std::filesystem::create_symlink("a/3.summary", d / "readme");
  const std::string tar =
      "cd '" + d.string() +
      "' && tar czf ../d.tar.gz ./2.summary a 1.summary 7.summary 8.summary 9.summary readme";
  ASSERT_EQ(std::system(tar.c_str()), 0);
  CorpusCounts counts;
  std::map<std::string, std::string> found;
  for (const CorpusExample& example : read_all(source_of({scratch / "d.tar.gz"}), &counts))
    found[example.id] = example.document;
  EXPECT_EQ(found,
            (std::map<std::string, std::string>{{"1", "5"}, {"2", "3"}, {"3", "3"}, {"5", "5"}, {"6", "3"}}));
  EXPECT_EQ(counts.lost_links, 3);
}

TEST(CorpusTest, BadXsumInputsAreNamed) {
  ScratchDirectory scratch;
  write_bytes(scratch / "d/11.summary", "no marks in here\n");
  expect_error(ExitCode::kInputData, {"11.summary", "XSum"}, [&] { read_all(source_of({scratch / "d"})); });
  write_bytes(scratch / "d/11.summary", article("[SN]", "Summary.", "Body.\n"));
  const auto with_splits = [&](const std::string& json) {
    write_bytes(scratch / "splits.json", json);
    CorpusSource source = source_of({scratch / "d"});
    source.splits = scratch / "splits.json";
    return read_all(source);
  };
  EXPECT_EQ(with_splits(R"({"train": ["11"]})").size(), 1u);
  expect_error(ExitCode::kInputData, {"splits.json"}, [&] { with_splits("{"); });
  expect_error(ExitCode::kInputData, {"splits.json"}, [&] { with_splits("[]"); });
  expect_error(ExitCode::kInputData, {"splits.json"}, [&] { with_splits(R"({"train": [11]})"); });
  expect_error(ExitCode::kInputData, {"splits.json", "arrays"},
               [&] { with_splits(R"({"train": {"a": "b"}})"); });
  expect_error(ExitCode::kInputData, {"splits.json", "'dev'"}, [&] { with_splits(R"({"dev": ["11"]})"); });
  expect_error(ExitCode::kInputData, {"splits.json", "twice"},
               [&] { with_splits(R"({"train": ["1"], "test": ["1"]})"); });
  expect_error(ExitCode::kInputData, {"splits.json", "no ids"}, [&] { with_splits("{}"); });
  CorpusSource source = source_of({scratch / "d"});
  source.splits = scratch / "absent.json";
  expect_error(ExitCode::kInputData, {"absent.json"}, [&] { read_all(source); });
}

/// The runs of letters and digits in `text`.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

TEST(CorpusTest, SyntheticKeepsNamesPlacesAndFiguresOfTheSplitsApart) {
  CorpusSource source = source_of({}, SourceKind::kSynthetic);
  source.examples = 20000;
  std::map<Split, std::set<std::string>> invented;
  std::map<int, int> key_sentence;
  int64_t counts[3] = {};
  for (const auto& e : read_all(source)) {
    ++counts[static_cast<int>(e.split)];
    for (const auto& word : words_of(e.document)) {
      const bool name =
          std::isupper(static_cast<unsigned char>(word[0])) &&
          (word.ends_with("rd") || word.ends_with("ville") || (word.ends_with("n") && word.size() == 5));
      if (name || std::isdigit(static_cast<unsigned char>(word[0]))) invented[e.split].insert(word);
    }
    // The summary is in the document word for word, once, and never in the first sentence.
    const size_t at = e.document.find(e.summary);
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(e.document.find(e.summary, at + 1), std::string::npos);
    ++key_sentence[static_cast<int>(
        std::count(e.document.begin(), e.document.begin() + static_cast<ptrdiff_t>(at), '.'))];
  }
  EXPECT_EQ(counts[0], 19600);
  EXPECT_EQ(counts[1], 200);
  EXPECT_EQ(counts[2], 200);
  EXPECT_EQ(key_sentence.count(0), 0u);
  // The summary is any of the other sentences, so its position does not tell it.
  for (const auto& [sentence, count] : key_sentence) EXPECT_GT(count, 5000) << sentence;
  EXPECT_GT(invented[Split::kTest].size(), 400u);
  for (const Split held_out : {Split::kValidation, Split::kTest}) {
    for (const auto& word : invented[held_out]) EXPECT_EQ(invented[Split::kTrain].count(word), 0u) << word;
  }
}

TEST(CorpusTest, SyntheticDependsOnItsSeedAlone) {
  CorpusSource source = source_of({}, SourceKind::kSynthetic);
  source.examples = 50;
  const auto first = read_all(source), again = read_all(source);
  source.seed = 1;
  const auto other = read_all(source);
  int same = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].document, again[i].document);
    same += first[i].document == other[i].document;
  }
  EXPECT_EQ(same, 0);
}

// Real text, if the checkout has it: XSum's official form gives the same pairs as the JSONL of them.
TEST(CorpusTest, OfficialXsumFilesGiveThePairsById) {
  const auto official = shared_file("data/xsum/dev/sn_reconstructed.tar.gz");
  if (!official) GTEST_SKIP() << "../shared is absent";
  const std::filesystem::path xsum = official->parent_path();
  std::map<std::string, std::pair<std::string, std::string>> expected[3];
  for (const char* file : {"train.jsonl.gz", "test_public.jsonl.gz"}) {
    for (const auto& e : read_all(source_of({xsum / file})))
      expected[static_cast<int>(e.split)][e.id] = {e.document, e.summary};
  }
  CorpusSource source = source_of({*official});
  source.splits = xsum / "split_subset.json";
  CorpusCounts counts;
  std::map<std::string, std::pair<std::string, std::string>> found[3];
  for (const auto& e : read_all(source, &counts))
    found[static_cast<int>(e.split)][e.id] = {e.document, e.summary};
  EXPECT_EQ(found[0].size(), 1000u);
  EXPECT_EQ(found[2].size(), 1003u);
  EXPECT_EQ(found[0], expected[0]);
  EXPECT_EQ(found[2], expected[2]);
  EXPECT_EQ(counts.absent_ids, 1);  // the validation id
}

}  // namespace
}  // namespace ripstop
