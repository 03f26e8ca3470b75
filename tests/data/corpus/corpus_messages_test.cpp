// The messages about unusable input: the fault, and the command to type.
#include <gtest/gtest.h>

#include "data/corpus/corpus_names.h"
#include "tests/data/corpus_reading.h"
#include "tests/expect_has.h"

namespace ripstop {
namespace {

// A bad first line is refused at once: the good file before it is not read to its end.
TEST(CorpusMessagesTest, TheFirstLineOfEveryFileIsLookedAtFirst) {
  ScratchDirectory scratch;
  write_bytes(scratch / "train.jsonl", "{\"document\": \"d\", \"summary\": \"s\"}\nnot json\n");
  const std::string other = "{\"id\": 1, \"article\": \"d\", \"highlights\": \"s\"}\n";
  write_bytes(scratch / "z.jsonl", other);
  const CorpusSource source = source_of({scratch / "train.jsonl", scratch / "z.jsonl"});
  expect_error(ExitCode::kInputData,
               {"z.jsonl:1: field 'document' is missing; the line has id, article, highlights"},
               [&] { resolve_source(source); });
  EXPECT_EQ(hint_for(source), "name the field: --document-field article --summary-field highlights");
  // A text with a summary is a pair: as running text it would lose its summary.
  write_bytes(scratch / "z.jsonl", "{\"text\": \"d\", \"summary\": \"s\"}\n");
  EXPECT_EQ(hint_for(source_of({scratch / "z.jsonl"})),
            "name the field: --document-field text --summary-field summary");
}

TEST(CorpusMessagesTest, ANullCountsAsEmpty) {
  ScratchDirectory scratch;
  write_bytes(
      scratch / "train.jsonl",
      "{\"document\": null, \"summary\": \"s\"}\n{\"document\": \"d\", \"summary\": null, \"id\": null}\n");
  const auto pairs = read_all(source_of({scratch / "train.jsonl"}));
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].document, "");
  EXPECT_EQ(pairs[1].summary, "");
  EXPECT_EQ(pairs[1].id, "train-2");
  write_bytes(scratch / "texts.jsonl", "{\"text\": \"t\"}\n{\"text\": null}\n");
  EXPECT_EQ(read_all(source_of({scratch / "texts.jsonl"})).at(1).document, "");
}

TEST(CorpusMessagesTest, FormatsOfOthersAreNamedWithTheWayFromThem) {
  ScratchDirectory scratch;
  for (const char* name : {"a.parquet", "a.arrow", "a.csv", "a.TSV", "train.jsonl.zst", "a.zip"})
    write_bytes(scratch / "files" / name, "?");
  const auto one = [&](const std::string& name, SourceKind kind = SourceKind::kAuto) {
    return source_of({scratch / "files" / name}, kind);
  };
  expect_error(ExitCode::kUsage, {"a.parquet: a Parquet file; prepare reads JSON lines"},
               [&] { read_all(one("a.parquet")); });
  EXPECT_HAS(hint_for(one("a.parquet")), "['train'].to_json('train.jsonl')");
  EXPECT_HAS(hint_for(one("a.arrow")), ".to_json('train.jsonl')");
  EXPECT_HAS(hint_for(one("a.csv", SourceKind::kJsonl)), "load_dataset('csv'");
  EXPECT_HAS(hint_for(one("a.TSV")), "sep='\\t'");
  EXPECT_HAS(hint_for(one("train.jsonl.zst", SourceKind::kJsonl)), "unpack it");
  EXPECT_HAS(hint_for(one("a.zip")), "unpack it");
  write_bytes(scratch / "files/x.source", "a \"b\"\nc\n");
  write_bytes(scratch / "files/x.target", "s\nt\n");
  const std::string x = (scratch / "files/x").string();
  EXPECT_EQ(hint_for(one("x.target")),
            "paste " + x + ".source " + x +
                ".target | jq -Rc 'split(\"\\t\") | {document: .[0], summary: .[1]}' > " + x +
                ".pairs.jsonl");
  ASSERT_EQ(std::system(hint_for(one("x.source")).c_str()), 0);
  const auto pairs = read_all(source_of({x + ".pairs.jsonl"}));
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].document + pairs[0].summary, "a \"b\"s");
  // With --source text, a table is read as text.
  EXPECT_EQ(read_all(one("a.csv", SourceKind::kText)).size(), 1u);
  // save_to_disk of Hugging Face datasets: the JSON files hold no examples.
  write_bytes(scratch / "saved/train/data-00000-of-00001.arrow", "?");
  write_bytes(scratch / "saved/train/dataset_info.json", "{\n}\n");
  write_bytes(scratch / "saved/train/state.json", "{\n}\n");
  write_bytes(scratch / "saved/dataset_dict.json", "{\"splits\": []}");
  EXPECT_HAS(hint_for(source_of({scratch / "saved"})), ".to_json('train.jsonl')");
}

TEST(CorpusMessagesTest, FilesOfAnotherKindBelowADirectoryArePassedOver) {
  ScratchDirectory scratch;
  write_bytes(scratch / "d/train.jsonl", "{\"document\": \"d\", \"summary\": \"s\"}\n");
  write_bytes(scratch / "d/README.txt", "About the data.\n");
  write_bytes(scratch / "d/.git/config", "?");
  write_bytes(scratch / "d/splits.json", "{\"train\": [\"11\"]}");
  write_bytes(scratch / "d/11.summary", "?");
  // The hint for a directory of several kinds works.
  const CorpusSource all = source_of({scratch / "d"});
  EXPECT_HAS(hint_for(all), "say it with --source xsum | jsonl | text");
  std::filesystem::remove(scratch / "d/splits.json");
  const CorpusSource pairs = resolve_source(source_of({scratch / "d"}, SourceKind::kJsonl));
  EXPECT_EQ(describe_passed_over(pairs.passed_over), "11.summary, README.txt");
  EXPECT_EQ(read_all(source_of({scratch / "d"}, SourceKind::kJsonl)).size(), 1u);
  write_bytes(scratch / "d/splits.json", "{\"train\": [\"11\"]}");
  CorpusSource articles = source_of({scratch / "d", scratch / "d/README.txt"}, SourceKind::kXsum);
  articles.splits = scratch / "d/splits.json";
  articles = resolve_source(articles);
  EXPECT_EQ(articles.inputs, std::vector<std::filesystem::path>{scratch / "d/11.summary"});
  EXPECT_EQ(describe_passed_over(articles.passed_over), "README.txt, train.jsonl, README.txt");
}

TEST(CorpusMessagesTest, ADirectoryWithNothingToReadSaysWhatItHas) {
  ScratchDirectory scratch;
  write_bytes(scratch / "d/a.dat", "?");
  expect_error(ExitCode::kUsage, {"d: nothing in there can be read: it has a.dat"},
               [&] { read_all(source_of({scratch / "d"})); });
  EXPECT_EQ(hint_for(source_of({scratch / "d"}, SourceKind::kJsonl)),
            "files are found by their names: .jsonl, .json, also with .gz");
}

TEST(CorpusMessagesTest, PathsThatAreNotThereSayWhatTheyMayBe) {
  ScratchDirectory scratch;
  const auto hint = [&](const std::filesystem::path& path) { return hint_for(source_of({path})); };
  EXPECT_HAS(hint("-"), "several times");
  EXPECT_HAS(hint(""), "a variable of the shell");
  EXPECT_HAS(hint(scratch / "*.jsonl"), "pattern");
  EXPECT_HAS(hint("EdinburghNLP/xsum"), "nothing is downloaded");
  write_bytes(scratch / "11.summary", "?");
  CorpusSource articles = source_of({scratch / "11.summary"});
  articles.splits = scratch / "absent.json";
  EXPECT_HAS(hint_for(articles), "without it every article is train");
}

TEST(CorpusMessagesTest, Utf16IsNamed) {
  ScratchDirectory scratch;
  write_bytes(scratch / "a.jsonl", std::string("\xff\xfe{\0\n\0", 6));
  expect_error(ExitCode::kInputData, {"a.jsonl: UTF-16, expected UTF-8"},
               [&] { resolve_source(source_of({scratch / "a.jsonl"})); });
  const std::string a = (scratch / "a").string();
  EXPECT_EQ(
      hint_for(source_of({scratch / "a.jsonl"})),
      "convert it, and give the new file: iconv -f UTF-16 -t UTF-8 " + a + ".jsonl > " + a + ".utf8.jsonl");
}

// UTF-16 shows in the first bytes. Without the check, each of its lines would be skipped.
TEST(CorpusMessagesTest, Utf16IsNamedInTexts) {
  ScratchDirectory scratch;
  write_bytes(scratch / "val.txt", std::string("\xfe\xff\0a\0\n", 6));
  write_bytes(scratch / "table.csv", std::string("\xff\xfe"
                                                 "a\0\n\0",
                                                 6));
  const std::string val = (scratch / "val").string(), table = (scratch / "table").string();
  EXPECT_EQ(
      hint_for(source_of({scratch / "val.txt"})),
      "convert it, and give the new file: iconv -f UTF-16 -t UTF-8 " + val + ".txt > " + val + ".utf8.txt");
  EXPECT_EQ(hint_for(source_of({scratch / "table.csv"}, SourceKind::kText)),
            "convert it, and give the new file: iconv -f UTF-16 -t UTF-8 " + table + ".csv > " + table +
                ".utf8.csv");
}

// A command in a hint must not overwrite any file when it is typed.
TEST(CorpusMessagesTest, CommandsThatConvertOverwriteNothing) {
  ScratchDirectory scratch;
  const std::string train = (scratch / "train").string();
  EXPECT_EQ(conversion_command(train + ".jsonl", "jq -c .", "lines"),
            "jq -c . " + train + ".jsonl > " + train + ".lines.jsonl");
  write_bytes(train + ".lines.jsonl", "");
  EXPECT_EQ(conversion_command(train + ".json", "jq -c .", "lines", ".jsonl"),
            "jq -c . " + train + ".json > " + train + ".lines.2.jsonl");
  for (const char* name : {"d/english_val", "d/val_english", "d/development"})
    for (const char* mark : {".lines.jsonl", ".utf8.jsonl", ".pairs.2.jsonl"})
      EXPECT_EQ(named_split(std::string(name) + mark, {}), Split::kValidation) << name << mark;
  EXPECT_EQ(conversion_command("d/test.jsonl.gz", "iconv", "utf8"),
            "zcat d/test.jsonl.gz | iconv > d/test.utf8.jsonl");
  EXPECT_EQ(conversion_command("my data/a.txt", "iconv", "utf8"),
            "iconv 'my data/a.txt' > 'my data/a.utf8.txt'");
}

TEST(CorpusMessagesTest, AnArrayAndAnObjectOnManyLinesAreToldFromJsonLines) {
  ScratchDirectory scratch;
  write_bytes(scratch / "x.json", "[\n {\"document\": \"d\", \"summary\": \"s\"}\n]\n");
  const std::string x = (scratch / "x").string();
  EXPECT_EQ(hint_for(source_of({scratch / "x.json"})),
            "one object a line is expected, and this may be an array: jq -c '.[]' " + x + ".json > " + x +
                ".lines.jsonl");
  write_bytes(scratch / "x.json", "{\n \"document\": \"d\",\n \"summary\": \"s\"\n}\n");
  EXPECT_EQ(hint_for(source_of({scratch / "x.json"})),
            "one object a line is expected, and this one may take several: jq -c . " + x + ".json > " + x +
                ".lines.jsonl");
}

// Python's json.dumps writes NaN for a missing number or text.
TEST(CorpusMessagesTest, PythonsNaNIsANull) {
  ScratchDirectory scratch;
  write_bytes(scratch / "train.jsonl",
              "{\"document\": \"a NaN\", \"summary\": NaN}\n"
              "{\"id\": \"b\", \"document\": \"-Infinity \\\"NaN\\\"\", \"summary\": \"s\", \"x\": "
              "[-Infinity, Infinity]}\n");
  const auto pairs = read_all(source_of({scratch / "train.jsonl"}));
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].document, "a NaN");
  EXPECT_EQ(pairs[0].summary, "");
  EXPECT_EQ(pairs[1].document, "-Infinity \"NaN\"");
  write_bytes(scratch / "texts.jsonl", "{\"text\": \"t\", \"n\": NaN}\n");
  EXPECT_EQ(read_all(source_of({scratch / "texts.jsonl"})).at(0).document, "t");
}

// No command is advised that cannot mend the line.
TEST(CorpusMessagesTest, WhatPythonWritesIsNamed) {
  ScratchDirectory scratch;
  const auto hint = [&](const std::string& line) {
    write_bytes(scratch / "x.jsonl", line + "\n");
    return hint_for(source_of({scratch / "x.jsonl"}));
  };
  EXPECT_EQ(hint("{'document': 'd', 'summary': 's'}"),
            "this is Python's print of an object: write each one with json.dumps");
  EXPECT_EQ(hint(R"({"document": "d\ud800", "summary": "s"})"),
            R"(\ud800 to \udfff come in pairs, and one half is no character: \ufffd may stand for it)");
  EXPECT_EQ(hint(R"({"document": "d", "summary": NaNs})").find("jq"), std::string::npos);
}

TEST(CorpusMessagesTest, OptionsOfAnotherSourceAreRefused) {
  ScratchDirectory scratch;
  write_bytes(scratch / "a.jsonl", "{\"document\": \"d\", \"summary\": \"s\"}\n");
  CorpusSource source = source_of({scratch / "a.jsonl"});
  source.splits = scratch / "splits.json";
  expect_error(ExitCode::kUsage, {"--splits is for XSum's articles, the source is jsonl"},
               [&] { resolve_source(source); });
  source.splits.clear();
  source.examples = 10;
  expect_error(ExitCode::kUsage, {"--examples is for --source synthetic, the source is jsonl"},
               [&] { resolve_source(source); });
}

TEST(CorpusMessagesTest, NamesTellSplits) {
  EXPECT_EQ(split_of_file("a/Validation_1.jsonl.gz"), Split::kValidation);
  EXPECT_EQ(split_of_file("dev/train.jsonl"), Split::kTrain);
  EXPECT_EQ(describe_splits(source_of({"d/test_x.jsonl.gz", "dev.jsonl"})),
            "test_x.jsonl.gz counts as test, dev.jsonl as validation");
  EXPECT_EQ(describe_splits(source_of({"a", "b", "c", "d", "e", "f"})),
            "a counts as train, b as train, c as train, d as train, and 2 more files");
  EXPECT_EQ(describe_passed_over({{"d/a.csv"}, {"notes.md"}, {"c", "hidden"}, {"d"}, {"e"}, {"f"}}),
            "a.csv (a CSV file), notes.md, c (hidden), d and 2 more");
  EXPECT_EQ(renamed_to_train("d/test_x.jsonl.gz"), "d/train_x.jsonl.gz");
  EXPECT_EQ(renamed_to_train("Validation.txt"), "train.txt");
}

// Names of files of DialogSum, XL-Sum, BillSum and WMT, and others that people use.
TEST(CorpusMessagesTest, WordsInsideNamesTellSplits) {
  const auto expect = [](std::optional<Split> split, const std::vector<std::filesystem::path>& files) {
    for (const auto& file : files) EXPECT_EQ(named_split(file), split) << file;
  };
  expect(Split::kTrain,
         {"dialogsum.train.jsonl", "us_train_data_final_OFFICIAL.jsonl", "train-00000-of-00002.json",
          "trainingset.txt", "XSumTrain.jsonl", "train_without_test.jsonl", "test/train.jsonl"});
  expect(Split::kValidation,
         {"dialogsum.dev.jsonl", "xsum.dev.en.jsonl", "cnn_val_v2.jsonl", "x-valid-00000-of-00001.json",
          "english_val.jsonl", "x.valid.json.gz", "DEV2.jsonl", "devset.txt", "myValidationData.jsonl",
          "valsmall.jsonl", "vals.txt", "devel.jsonl", "development.jsonl", "a/b/validation/x.jsonl",
          "dev-2/x.txt"});
  expect(Split::kTest, {"english_test.jsonl", "us_test_data_final_OFFICIAL.jsonl", "eval.jsonl",
                        "evaluation_1.txt", "xsumTest.jsonl", "TESTSET.jsonl", "test/x.jsonl",
                        "Test_Data/x.jsonl", "testing.jsonl", "testsmall.jsonl", "testa.jsonl"});
  expect(std::nullopt, {"articles.jsonl",
                        "latest.jsonl",
                        "contest.txt",
                        "invalid.jsonl",
                        "retrieval.jsonl",
                        "medieval.txt",
                        "my-test-7/x.jsonl",
                        "software_testing.jsonl",
                        "evaluation_of_policy.txt",
                        "a-dev-blog.jsonl",
                        "test/x/y.jsonl",
                        "set.jsonl",
                        "/dev/shm/x.jsonl",
                        "validity.jsonl",
                        "values.jsonl",
                        "valley_news.txt",
                        "valve.txt",
                        "development_notes.jsonl",
                        "device.jsonl",
                        "testimony.txt",
                        "Testaments.jsonl"});
  // Folders count up to the input that holds the file.
  EXPECT_EQ(named_split("test/x/y.jsonl", {"other", "test"}), Split::kTest);
  EXPECT_EQ(named_split("test/x/y.jsonl", {"test/"}), std::nullopt) << "a folder of all splits";
  EXPECT_EQ(named_split("testdata/y.jsonl", {"testdata/y.jsonl"}), std::nullopt);
  EXPECT_EQ(named_split("test/x/y.jsonl", {"test/x"}), std::nullopt);
  EXPECT_EQ(named_split("test/dev/x/y.jsonl", {"test"}), Split::kValidation);
  EXPECT_EQ(split_of_file("test/x/y.jsonl", {"test/x/y.jsonl"}), Split::kTrain);
}

TEST(CorpusMessagesTest, NotesTellTheSplitOfEveryFile) {
  EXPECT_EQ(
      notes_on_splits(source_of({"a.dev.jsonl", "b.jsonl", "train.jsonl", "val/c.jsonl"})),
      (std::vector<std::string>{"train: train.jsonl", "validation: a.dev.jsonl, val/c.jsonl",
                                "train: b.jsonl, as no word of the name says train, validation, dev, test or "
                                "eval"}));
  EXPECT_HAS(notes_on_splits(source_of(std::vector<std::filesystem::path>(22, "test.txt"))).at(0),
             ", test.txt and 2 more");
}

TEST(CorpusMessagesTest, FilesBelowADirectoryThatAreNoDataAreNamed) {
  ScratchDirectory scratch;
  const std::string line = "{\"document\": \"d\", \"summary\": \"s\"}\n";
  for (const char* name : {"d/train.jsonl", "d/.ipynb_checkpoints/train-checkpoint.jsonl", "d/.hidden.jsonl",
                           "d/__MACOSX/train.jsonl", "away/test/x.jsonl"})
    write_bytes(scratch / name, line);
  for (const char* name : {"d/dataset_infos.json", "d/config.json", "d/README_en.txt", "d/x/LICENSE.txt",
                           "d/model.safetensors.index.json", "d/.git/HEAD", "d/.gitattributes"})
    write_bytes(scratch / name, "{}\n");
  std::filesystem::create_directory_symlink(scratch / "away/test", scratch / "d/test");
  std::filesystem::create_directory_symlink(scratch / "d", scratch / "d/loop");
  std::filesystem::create_symlink(scratch / "absent", scratch / "d/dangling.jsonl");
  std::filesystem::create_symlink(scratch / "d/train.jsonl", scratch / "d/a_test.jsonl");
  std::filesystem::create_symlink(scratch / "away/test/x.jsonl", scratch / "d/z_dev.jsonl");
  const CorpusSource source = resolve_source(source_of({scratch / "d"}));
  EXPECT_EQ(source.inputs,
            (std::vector<std::filesystem::path>{scratch / "d/test/x.jsonl", scratch / "d/train.jsonl"}));
  std::string all;
  for (const PassedOver& file : source.passed_over)
    all += file.path.lexically_relative(scratch / "d").string() + " (" + file.why + ")\n";
  EXPECT_EQ(
      all,
      ".hidden.jsonl (hidden)\n.ipynb_checkpoints/train-checkpoint.jsonl (hidden)\nREADME_en.txt (no data)\n"
      "__MACOSX/train.jsonl (hidden)\nconfig.json (no data)\ndangling.jsonl (a link to nothing)\n"
      "dataset_infos.json (no data)\nloop (a link to a folder that is read)\n"
      "model.safetensors.index.json (no data)\nx/LICENSE.txt (no data)\n"
      "a_test.jsonl (another name of a file that is read)\nz_dev.jsonl (another name of a file that is "
      "read)\n");
  EXPECT_EQ(split_of_file(source.inputs.at(0), source.given), Split::kTest);
  // Files that are named are read.
  EXPECT_EQ(read_all(source_of({scratch / "d/.hidden.jsonl"})).size(), 1u);
}

}  // namespace
}  // namespace ripstop
