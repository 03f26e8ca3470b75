// The program with a tokenizer.json, from prepare to an import of the export.
#include "tests/data/small_json_tokenizers.h"
#include "tests/data/small_tokenizer.h"
#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"
#include "train/exchange/write/export_files.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

using Json = nlohmann::json;

constexpr const char* kCarried[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                    "chat_template.jinja", "ripstop_tokenizer.json"};

class JsonTokenizerCommands : public testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 40; ++i) {
      const Json line{{"document", "The council said that bridge " + std::to_string(i) + " opened."},
                      {"summary", i % 2 == 0 ? "bridge opened" : "caf\u00e9 <|im_end|>"}};
      lines += line.dump() + "\n";
      if (i == 3) write_bytes(scratch_ / "input/validation.jsonl", lines);
    }
    write_bytes(scratch_ / "input/train.jsonl", lines);
    write_bytes(scratch_ / "input/test.jsonl",
                R"({"document": "The bridge is old.", "summary": "old bridge"})");
  }
  std::string path(const std::string& name) const { return (scratch_ / name).string(); }
  /// The directory of a model's tokenizer.
  void write_tokenizer(const Json& json, const std::string& eos) const {
    write_bytes(scratch_ / "model/tokenizer.json", json.dump(2));
    write_bytes(scratch_ / "model/tokenizer_config.json",
                Json{{"eos_token", eos}, {"tokenizer_class", "PreTrainedTokenizerFast"}}.dump(1) + "\r\n");
    write_bytes(scratch_ / "model/special_tokens_map.json",
                "{\"eos_token\": {\"content\": \"" + eos + "\"}}");
    write_bytes(scratch_ / "model/chat_template.jinja", "{{ messages }}");
  }
  ProgramRun prepare(const std::string& output, const std::string& options = "") const {
    return run_program("prepare --input '" + path("input") + "' --tokenizer '" + path("model") +
                       "' --output '" + path(output) + "' " + options);
  }
  ProgramRun train(const std::string& words = "") const {
    write_bytes(
        scratch_ / "run.toml",
        "[run]\ndirectory = \"" + path("run") + "\"\ndevice = \"cpu\"\n[model]\nhidden_size = 32\n" +
            "intermediate_size = 48\nnum_hidden_layers = 2\nnum_attention_heads = 4\n" +
            "num_key_value_heads = 4\n[data]\ndirectory = \"" + path("data") +
            "\"\nsequence_length = 40\n[train]\nsteps = 4\nglobal_batch_sequences = 2\n" +
            "validate_every = 2\n[optimizer]\nlearning_rate = 1e-2\n[generation]\nmax_new_tokens = 8\n");
    return run_program("train '" + path("run.toml") + "' " + words);
  }
  void expect_carried(const std::string& directory) const {
    for (const char* name : kCarried) {
      const auto& source = std::string(name) == "ripstop_tokenizer.json" ? "data" : "model";
      EXPECT_EQ(read_bytes(scratch_ / directory / name), read_bytes(scratch_ / source / name))
          << directory << '/' << name;
    }
    EXPECT_FALSE(std::filesystem::exists(scratch_ / directory / "tokenizer.model")) << directory;
  }
  /// prepare -> train -> summarize -> export -> summarize -> import -> evaluate.
  void go_round() const;

  ScratchDirectory scratch_;
};

void JsonTokenizerCommands::go_round() const {
  const auto ok = [](const ProgramRun& run) { ASSERT_EQ(run.exit_code, 0) << run.out << run.err; };
  ok(prepare("data"));
  expect_carried("data");
  ok(train());
  expect_carried("run");
  ok(train("train.steps=6"));
  const std::string input = path("in.jsonl");
  write_bytes(input, "{\"document\": \"The bridge opened.\"}\n");
  const ProgramRun of_run = run_program("summarize '" + path("run") + "' --input '" + input + "'");
  ok(of_run);
  const ProgramRun exported = run_program("checkpoint export '" + path("run") + "' '" + path("out") + "'");
  ok(exported);
  EXPECT_HAS(exported.out, "from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast; m = ");
  EXPECT_HAS(exported.out, "/out\", split_special_tokens=True); print(m)");
  expect_carried("out");
  EXPECT_HAS(read_bytes(scratch_ / "out/README.md"),
             "tokenizer = PreTrainedTokenizerFast.from_pretrained(directory, split_special_tokens=True)\n");
  const ProgramRun of_export = run_program("summarize '" + path("out") + "' --input '" + input + "'");
  ok(of_export);
  EXPECT_EQ(of_export.out, of_run.out);
  ok(run_program("checkpoint import '" + path("out") + "' '" + path("back") + "'"));
  expect_carried("back");
  const std::string rest = " --data '" + path("data") + "' --split test --max-new-tokens 8 --json --output '";
  const ProgramRun of_import = run_program("evaluate '" + path("back") + "'" + rest + path("scores") + "'");
  ok(of_import);
  const ProgramRun scores = run_program("evaluate '" + path("run") + "' --json");
  ok(scores);
  EXPECT_NEAR(Json::parse(of_import.out)["loss"].get<double>(), Json::parse(scores.out)["loss"].get<double>(),
              0.05);
}

TEST_F(JsonTokenizerCommands, AByteLevelTokenizerGoesRound) {
  write_tokenizer(byte_level_json(), "<|im_end|>");
  go_round();
  const Json config = Json::parse(read_bytes(scratch_ / "out/config.json"));
  EXPECT_EQ(config["eos_token_id"], 275);
  EXPECT_EQ(config["bos_token_id"], nullptr);
  const Json inspected =
      Json::parse(run_program("checkpoint inspect --json '" + path("run") + "'").out)["tokenizer"];
  EXPECT_EQ(inspected["file"], path("run/tokenizer.json"));
  EXPECT_EQ(inspected["matches"], true);
  EXPECT_EQ(inspected["pieces"], 277);
  // Every example ends with the end token; none begins with BOS, and ".\n\n" is the separator's.
  const Json shown = Json::parse(run_program("prepare --show 2 --json '" + path("data") + "'").out);
  const Json& example = shown["examples"][0];
  EXPECT_EQ(example["pieces"].front(), "T");
  EXPECT_EQ(example["ids"].back(), 275);
  EXPECT_EQ(example["ids"][example["document_tokens"].get<size_t>()], 257);
  const std::string text = run_program("prepare --show 2 '" + path("data") + "'").out;
  EXPECT_HAS(text, "[[ caf\u00e9 <|im_end|><|im_end|>]]");
  // Cut documents keep the whole separator.
  const Json cut =
      Json::parse(run_program("prepare --show 1 --sequence-length 22 --json '" + path("data") + "'").out);
  const Json& ids = cut["examples"][0]["ids"];
  EXPECT_EQ(ids.size(), 23U);
  EXPECT_EQ(ids[0], 84);
  EXPECT_EQ(std::ranges::count(ids, Json(257)), 1);
}

TEST_F(JsonTokenizerCommands, AMetaspaceTokenizerGoesRound) {
  write_tokenizer(metaspace_json(), "</s>");
  go_round();
  EXPECT_EQ(Json::parse(read_bytes(scratch_ / "out/config.json"))["bos_token_id"], 1);
}

TEST_F(JsonTokenizerCommands, SpecialTokensInDocumentsAreReadIfAskedFor) {
  write_tokenizer(byte_level_json(), "<|endoftext|>");
  const ProgramRun plain = expect_success(prepare("plain"));
  EXPECT_HAS(
      plain.err,
      "20 summaries and 0 documents have the name of a special token in them, which is encoded as text");
  const ProgramRun read = expect_success(prepare("data", "--read-special-tokens --eos-token '<|im_end|>'"));
  EXPECT_HAS(read.err, "which is read as this token");
  const auto ids = [&](const std::string& data) {
    return Json::parse(run_program("prepare --show 2 --json '" + path(data) + "'").out)["examples"][1]["ids"];
  };
  EXPECT_EQ(std::ranges::count(ids("plain"), Json(275)), 0);
  EXPECT_EQ(std::ranges::count(ids("data"), Json(275)), 2);
  const Json arguments = Json::parse(read_bytes(scratch_ / "data/prepare.json"))["arguments"];
  EXPECT_EQ(arguments["eos_token"], "<|im_end|>");
  EXPECT_EQ(arguments["read_special_tokens"], true);
  // Training and summarize read the choice in the data set and in the run.
  ASSERT_EQ(train().exit_code, 0);
  EXPECT_EQ(read_bytes(scratch_ / "run/ripstop_tokenizer.json"),
            read_bytes(scratch_ / "data/ripstop_tokenizer.json"));
  std::filesystem::remove(scratch_ / "data/ripstop_tokenizer.json");
  expect_exit(train(), 65, "put the ripstop_tokenizer.json back");
}

TEST_F(JsonTokenizerCommands, PrepareNamesTheOptionIfNoEndIsKnown) {
  Json json = byte_level_json();
  json["added_tokens"] = Json::array({added_token(274, "<pad>")});
  write_bytes(scratch_ / "model/tokenizer.json", json.dump());
  expect_exit(prepare("data"), 65, "ripstop prepare --eos-token");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "data"));
  EXPECT_EQ(prepare("data", "--eos-token '<eos>'").exit_code, 65);
  EXPECT_EQ(prepare("data", "--eos-token '<pad>'").exit_code, 0);
  expect_exit(
      run_program("prepare --source synthetic --vocab-size 400 --eos-token x --output '" + path("no") + "'"),
      64, "are for a tokenizer that is given");
}

TEST_F(JsonTokenizerCommands, OfBothFilesADifferenceIsTold) {
  const Tokenizer model(small_model(), "small");
  for (const auto& [name, bytes] : exported_tokenizer(model, 128).texts)
    if (name != "ripstop_tokenizer.json") write_bytes(scratch_ / "model" / name, bytes);
  const ProgramRun same = expect_success(prepare("same"));
  EXPECT_EQ(same.err.find("beside it gives other ids"), std::string::npos) << same.err;
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "same/tokenizer.json"));
  write_tokenizer(metaspace_json(), "</s>");
  const ProgramRun other = expect_success(prepare("other"));
  EXPECT_HAS(other.err,
             "tokenizer.json is read, as AutoTokenizer does; tokenizer.model beside it gives other ids, as "
             "for \"The");
}

TEST_F(JsonTokenizerCommands, EveryVerbSaysTheNotesOfTheTokenizer) {
  write_tokenizer(byte_level_json(), "<|im_end|>");
  write_bytes(scratch_ / "model/tokenizer_config.json",
              R"({"eos_token": "<|im_end|>", "add_bos_token": true})");
  const std::string input = path("in.jsonl");
  write_bytes(input, "{\"document\": \"The bridge opened.\"}\n");
  const auto says = [](const ProgramRun& run) {
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_HAS(run.out + run.err, "an example begins with no token, as the post-processor of ");
  };
  says(prepare("data"));
  says(train());
  says(run_program("plan '" + path("run.toml") + "' run.directory=other"));
  says(run_program("evaluate '" + path("run") + "' --limit 1"));
  says(run_program("summarize '" + path("run") + "' --input '" + input + "'"));
  says(run_program("checkpoint export '" + path("run") + "' '" + path("out") + "'"));
  says(run_program("checkpoint import '" + path("out") + "' '" + path("back") + "'"));
  says(run_program("checkpoint inspect '" + path("out") + "'"));
}

// Texts of a model whose config.json alone has end tokens end at these.
TEST_F(JsonTokenizerCommands, ZeroShotNeedsNoNameOfAnEndToken) {
  write_tokenizer(byte_level_json(), "<|im_end|>");
  ASSERT_EQ(prepare("data").exit_code, 0);
  ASSERT_EQ(train().exit_code, 0);
  EXPECT_HAS(run_program("checkpoint inspect '" + path("run") + "'").out, "texts end   at the ids 275\n");
  ASSERT_EQ(run_program("checkpoint export '" + path("run") + "' '" + path("out") + "'").exit_code, 0);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "ripstop_tokenizer.json",
                           "generation_config.json"})
    std::filesystem::remove(scratch_ / "out" / name);
  Json config = Json::parse(read_bytes(scratch_ / "out/config.json"));
  config["eos_token_id"] = {275, 276};
  write_bytes(scratch_ / "out/config.json", config.dump());
  write_bytes(scratch_ / "in.jsonl", "{\"document\": \"The bridge opened.\"}\n");
  const std::string summarize =
      "summarize '" + path("out") + "' --max-new-tokens 8 --input '" + path("in.jsonl") + "'";
  const ProgramRun written = expect_success(run_program(summarize));
  EXPECT_HAS(written.err, "config.json: texts end at the tokens 275 <|im_end|>, 276 <think>\n");
  expect_exit(run_program(summarize + " 'generation.eos_token_id=[]'"), 65, "has 2 ids");
}

// Tokenizers whose data sets could not be opened.
TEST_F(JsonTokenizerCommands, PrepareRefusesWhatNothingOpens) {
  Json json = byte_level_json();
  json["post_processor"] = begin_template("<|endoftext|>", 274);
  Json& ids = json["post_processor"]["special_tokens"]["<|endoftext|>"]["ids"];
  const auto prepared = [&](size_t count) {
    ids = std::vector<int>(count, 274);
    write_tokenizer(json, "<|im_end|>");
    return prepare("data");
  };
  expect_exit(prepared(17), 65, "each text would begin with 17 tokens, at most 16 are accepted");
  EXPECT_EQ(prepared(16).exit_code, 0);
  EXPECT_EQ(run_program("prepare --show 1 '" + path("data") + "'").exit_code, 0);
}

TEST_F(JsonTokenizerCommands, ATemplateNeedsATokenBesideTheDocument) {
  Json json = byte_level_json();
  json["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  write_tokenizer(json, "<|im_end|>");
  expect_exit(prepare("data", "--template '{document}\\n'"), 64, "the template '{document}");
  EXPECT_EQ(prepare("words", "--template 'Text: {document}\\n'").exit_code, 0);
  json["post_processor"] = begin_template("<|endoftext|>", 274);
  write_tokenizer(json, "<|im_end|>");
  expect_success(prepare("begun", "--template '{document}\\n'"));
}

TEST_F(JsonTokenizerCommands, BadFilesEndIn65) {
  write_tokenizer(byte_level_json(), "<|im_end|>");
  for (const char* bad : {"{", "[]", "{}", R"({"model": {"type": "WordPiece", "vocab": {}}})"}) {
    write_bytes(scratch_ / "model/tokenizer.json", bad);
    expect_exit(prepare("data"), 65, "tokenizer.json");
  }
  write_tokenizer(byte_level_json(), "<|im_end|>");
  write_bytes(scratch_ / "model/tokenizer_config.json", "{\"eos_token\": ");
  EXPECT_EQ(prepare("data").exit_code, 65);
  std::filesystem::remove(scratch_ / "model/tokenizer.json");
  write_bytes(scratch_ / "model/tekken.json", "{}");
  EXPECT_HAS(prepare("data").err, "tekken.json is not read");
}

// A data set of another tokenizer.json than the run's is refused; a copy by another version is the same one.
TEST_F(JsonTokenizerCommands, TheIdentityIsNotTheBytes) {
  write_tokenizer(byte_level_json(), "<|im_end|>");
  ASSERT_EQ(prepare("data").exit_code, 0);
  ASSERT_EQ(train().exit_code, 0);
  Json json = byte_level_json();
  json["version"] = "1.0",
  json["padding"] = {
      {"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_to_multiple_of", nullptr}, {"pad_id", 0},
      {"pad_type_id", 0},           {"pad_token", "!"}};
  write_bytes(scratch_ / "data/tokenizer.json", json.dump());
  expect_success(train("train.steps=6"));
  json["model"]["merges"].erase(5);
  write_bytes(scratch_ / "data/tokenizer.json", json.dump());
  expect_exit(train("train.steps=8"), 65, "was made with another tokenizer");
}

}  // namespace
}  // namespace ripstop
