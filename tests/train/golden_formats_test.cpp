// Every format that ripstop reads again (docs/formats.md, "Versions"), in golden files of every released
// version, which the program's own readers read. tests/golden/make_formats.sh writes those of this version.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "data/prepare/prepare_json.h"
#include "tests/expect_error.h"
#include "tests/test_files.h"
#include "tests/train/golden_values.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/verify.h"
#include "train/evaluate/scores.h"
#include "train/machine/version.h"
#include "train/page/run_record.h"
#include "train/report/trace_file.h"

namespace ripstop::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kStep = "checkpoints/step_00000007";

/// Expects that `again`, which a reader and a writer made of the golden document `golden`, has every value of
/// it. A later version may write further members.
void expect_says_all(const Json& golden, const Json& again, const std::string& place) {
  if (golden.is_object() && again.is_object()) {
    for (const auto& [key, value] : golden.items()) {
      ASSERT_TRUE(again.contains(key)) << place << "/" << key << " was not read";
      expect_says_all(value, again[key], place + "/" + key);
    }
  } else if (golden.is_array() && again.is_array()) {
    ASSERT_EQ(golden.size(), again.size()) << place;
    for (size_t i = 0; i < golden.size(); ++i)
      expect_says_all(golden[i], again[i], fmt::format("{}/{}", place, i));
  } else {
    EXPECT_EQ(golden, again) << place;
  }
}

// ---- data sets

void write_data(const fs::path& root) {
  PrepareReport report;
  report.vocabulary_size = pairs_header(false).vocabulary_size;
  fs::create_directories(root / "pairs");
  for (int s = 0; s < kSplits; ++s) {
    const bool with_text = static_cast<Split>(s) != Split::kTrain;
    const std::string name = std::string(to_string(static_cast<Split>(s))) + ".h5";
    TokenDatasetWriter writer(root / "pairs" / name, pairs_header(with_text));
    const std::vector<ExampleText> texts = pair_texts();
    for (int32_t i = 0; i < std::ssize(texts); ++i)
      writer.add(pair(i), with_text ? &texts[static_cast<size_t>(i)] : nullptr);
    report.splits[static_cast<size_t>(s)].content_hash = writer.finish();
  }
  write_prepare_json(root / "pairs", {}, kTemplate, {}, report);
  fs::create_directories(root / "conversations");
  TokenDatasetWriter writer(root / "conversations/test.h5", conversations_header());
  const ExampleText text = conversation_text();
  writer.add(conversation(), &text);
  writer.finish();
}

// content_hash() covers all members but the last.
void expect_header(const TokenDatasetHeader& found, const TokenDatasetHeader& expected) {
  EXPECT_EQ(content_hash(found, {}, ""), content_hash(expected, {}, ""));
  EXPECT_EQ(found.with_text, expected.with_text);
}

void expect_example(const TokenDataset& data, int64_t example, const TokenExample& expected) {
  std::vector<int32_t> tokens(expected.tokens.size());
  ASSERT_EQ(data.example_end(example) - data.example_begin(example), std::ssize(tokens));
  data.read_tokens(data.example_begin(example), data.example_end(example), tokens.data());
  EXPECT_EQ(tokens, expected.tokens);
  EXPECT_TRUE(std::ranges::equal(data.spans(example), expected.spans));
  EXPECT_EQ(data.turns(data.example_begin(example), data.example_end(example)),
            std::ssize(expected.turn_begin));
}

void expect_text(const ExampleText& found, const ExampleText& expected) {
  EXPECT_EQ(found.id, expected.id);
  EXPECT_EQ(found.document, expected.document);
  EXPECT_EQ(found.summary, expected.summary);
  EXPECT_EQ(found.messages, expected.messages);
}

void expect_data(const fs::path& root) {
  const std::vector<ExampleText> texts = pair_texts();
  const Json prepared = Json::parse(read_text(root / "pairs/prepare.json"));
  for (const char* split : {"train", "validation", "test"}) {
    const TokenDataset data(root / "pairs" / (std::string(split) + ".h5"));
    const bool with_text = split != std::string("train");
    expect_header(data.header(), pairs_header(with_text));
    EXPECT_EQ(Json(data.content_hash()), prepared["files"][std::string(split) + ".h5"]["content_hash"]);
    ASSERT_EQ(data.examples(), std::ssize(texts));
    for (int32_t i = 0; i < data.examples(); ++i) {
      expect_example(data, i, pair(i));
      if (with_text) expect_text(data.text(i, 1).front(), texts[static_cast<size_t>(i)]);
    }
  }
  const TokenDataset data(root / "conversations/test.h5");
  expect_header(data.header(), conversations_header());
  ASSERT_EQ(data.examples(), 1);
  expect_example(data, 0, conversation());
  EXPECT_EQ(data.head(0), conversation().turn_begin.front());
  expect_text(data.text(0, 1).front(), conversation_text());
}

// The entry of a file whose hash differs is refused, so prepare.json is read, too.
void expect_prepare_json(const fs::path& root) {
  const ScratchDirectory scratch;
  fs::copy(root / "pairs/test.h5", scratch / "test.h5");
  Json prepared = Json::parse(read_text(root / "pairs/prepare.json"));
  prepared["files"]["test.h5"]["hash_outside_tokens"] = std::string(32, '0');
  write_bytes(scratch / "prepare.json", prepared.dump());
  expect_error([&] { const TokenDataset data(scratch / "test.h5"); }, ExitCode::kInputData,
               "in prepare.json");
}

// ---- a run

void write_config(const fs::path& root) {
  write_bytes(root / "run/config.toml", to_toml(config()));
}

/// Expects of a stored config that the golden values, given again, change nothing.
void expect_golden_config(const std::string& toml) {
  EXPECT_EQ(compare(parse_run_config(toml, "stored"), parse_run_config(toml, "stored", kConfig)),
            std::vector<ConfigDifference>{});
}

void expect_config(const fs::path& root) {
  expect_golden_config(read_text(root / "run/config.toml"));
}

void write_events(const fs::path& path, const std::vector<MetricsEvent>& events) {
  fs::create_directories(path.parent_path());
  MetricsFile file(path);
  for (const MetricsEvent& event : events) file.write(event);
  file.sync();
}
void write_metrics(const fs::path& root) {
  write_events(root / "run/metrics.jsonl", events());
}
void expect_metrics(const fs::path& root) {
  const ScratchDirectory scratch;
  std::vector<MetricsEvent> read;
  EXPECT_EQ(read_events(root / "run/metrics.jsonl", [&](const auto& event) { read.push_back(event); }), "");
  write_events(scratch / "again", read);
  write_events(scratch / "expected", events());
  std::istringstream golden(read_text(root / "run/metrics.jsonl")), again(read_text(scratch / "again"));
  std::istringstream expected(read_text(scratch / "expected"));
  int lines = 0;
  for (std::string line, same, chosen; std::getline(golden, line); ++lines) {
    ASSERT_TRUE(std::getline(again, same) && std::getline(expected, chosen));
    expect_says_all(Json::parse(line), Json::parse(same), fmt::format("line {}", lines + 1));
    expect_says_all(Json::parse(line), Json::parse(chosen), fmt::format("values, line {}", lines + 1));
  }
  EXPECT_EQ(lines, 8);
}

void write_checkpoint(const fs::path& root) {
  Io io;
  SmallRun run(tiny_model(), {2, 1, 1, 2}, DType::kBFloat16);
  run.fill(7);
  fs::create_directories(root / "run");
  for (const std::optional<Error>& error : run.save(io, root / "run/checkpoints", state()))
    ASSERT_FALSE(error) << error->what();
}
void write_adapters(const fs::path& root) {
  Io io;
  const CheckpointState state = adapters_state();
  SmallRun run(tiny_model(), {1, 2, 2}, DType::kFloat32, state.adapted->lora);
  run.fill(7);
  fs::create_directories(root / "adapters");
  for (const std::optional<Error>& error : run.save(io, root / "adapters/checkpoints", state))
    ASSERT_FALSE(error) << error->what();
}

void expect_saved(const fs::path& directory, const CheckpointState& expected, DType moments) {
  Io io;
  EXPECT_TRUE(verify_checkpoint(io, directory).empty());
  const Manifest manifest = read_manifest(io, directory);
  const std::string text = read_text(directory / Manifest::kFileName);
  expect_says_all(Json::parse(text)["units"], Json::parse(manifest_text(manifest))["units"], "units");
  expect_golden_config(manifest.state.config);
  CheckpointState state = manifest.state;
  state.config = expected.config;
  EXPECT_EQ(state, expected);
  const LoraConfig lora = expected.adapted ? expected.adapted->lora : LoraConfig{};
  for (const MeshSizes& mesh : {MeshSizes{1, 1, 1}, MeshSizes{1, 3, 1}, MeshSizes{2, 2, 2, 2}}) {
    SmallRun run(tiny_model(), mesh, moments, lora);
    run.read(io, directory);
    EXPECT_TRUE(run.is_at(7));
  }
}
void expect_checkpoint(const fs::path& root) {
  expect_saved(root / "run" / kStep, state(), DType::kBFloat16);
}
void expect_adapters(const fs::path& root) {
  expect_saved(root / "adapters" / kStep, adapters_state(), DType::kFloat32);
}

void write_takeovers(const fs::path& root) {
  Io io;
  Takeovers all;
  for (const Takeover& takeover : takeovers()) all.restore(takeover);
  all.write(io, root / "run/checkpoints");
}
void expect_takeovers(const fs::path& root) {
  Io io;
  const Takeovers found = Takeovers::read(io, root / "run/checkpoints");
  EXPECT_EQ(found.problem(), "");
  EXPECT_EQ(found.all(), takeovers());
}

// A lock that was made here says whose machine this is, so other facts take their places.
void write_lock(const fs::path& root) {
  const std::map<std::string, std::string> facts = lock_facts();
  const ScratchDirectory scratch;
  std::string text;
  {
    Io io;
    const RunLock lock(io, scratch.path());
    text = read_text(scratch / "LOCK");
  }
  std::istringstream lines(text);
  text.clear();
  for (std::string line; std::getline(lines, line);) {
    const std::string key = line.substr(0, line.find(' '));
    text += (facts.contains(key) ? key + " " + facts.at(key) : line) + "\n";
  }
  write_bytes(root / "lock/LOCK", text);
}
void expect_lock(const fs::path& root) {
  Io io;
  const RunOwner owner = find_run_owner(io, root / "lock");
  EXPECT_NE(owner.state, RunOwner::State::kNone);
  EXPECT_EQ(owner.who, "process 4711 on node7 (job 42)");
}

void write_traces(const fs::path& root) {
  Io io;
  RangeRecorder recorder;
  const RangeRecorder::Time begin = RangeRecorder::now();
  recorder.start();
  recorder.open("forward", begin + std::chrono::seconds(1));
  recorder.close(begin + std::chrono::seconds(3));
  recorder.end(recorder.begin("fsdp", "fsdp all_gather"), 4096);
  recorder.stop();
  const TraceFacts facts{.rank = 0,
                         .ranks = 1,
                         .process = "rank 0 (node7)",
                         .device = "cpu",
                         .first_step = 6,
                         .last_step = 7,
                         .started_ns = RangeRecorder::nanoseconds(begin),
                         .clock_error_us = 0.5};
  remove_traces(io, root / "run/trace");
  write_trace(io, root / "run/trace", facts, recorder, NodeClock({BarrierTimes{}}, {BarrierTimes{}}, 0));
}
void expect_traces(const fs::path& root) {
  Io io;
  const ScratchDirectory scratch;
  const MergedTraces merged = merge_traces(io, root / "run/trace", scratch / "merged.json");
  EXPECT_EQ(merged.problems, std::vector<std::string>{});
  EXPECT_EQ(merged.ranks, 1);
  EXPECT_EQ(merged.facts.process, "rank 0 (node7)");
  EXPECT_EQ(merged.facts.last_step, 7);
  EXPECT_EQ(merged.facts.clock_error_us, 0.5);
  const std::string text = read_text(scratch / "merged.json");
  EXPECT_HAS(text, R"("name":"forward","ph":"X","ts":1000000,"dur":2000000)");
  EXPECT_HAS(text, R"("args":{"axis":"fsdp","operation":"all_gather","bytes":4096})");
}

// ---- an evaluation

fs::path evaluation(const fs::path& root) {
  return root / "run/evaluation/step_00000007-test";
}

void write_evaluation(const fs::path& root) {
  const fs::path directory = evaluation(root);
  fs::create_directories(directory);
  const EvaluationClaim claim(directory, evaluation_settings());
  PredictionFile file(directory);
  for (const Prediction& prediction : predictions()) file.append(prediction);
  write_partial_loss(directory, {2, false, {.loss = 10.5, .target_count = 6}});
  EvaluationScores scores{.step = 7, .checkpoint = "runs/golden", .split = "test", .data = "data/a"};
  scores.data_sets = {"data/a", "data/b"};
  scores.examples = scores.split_examples = 3;
  scores.loss = {.loss = 18, .target_count = 9};
  write_bytes(directory / "scores.jsonl", score_predictions(file.predictions(), scores));
  write_bytes(directory / "scores.json", to_json(scores));
}
void expect_evaluation(const fs::path& root) {
  const FoundPredictions found =
      find_predictions(root / "run/evaluation", root / "elsewhere", evaluation_settings());
  EXPECT_EQ(found.directory, evaluation(root)) << "settings.json says what was evaluated";
  const std::vector<Prediction> expected = predictions();
  ASSERT_EQ(found.predictions.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found.predictions[i].id, expected[i].id);
    EXPECT_EQ(found.predictions[i].summary, expected[i].summary);
    EXPECT_EQ(found.predictions[i].reference, expected[i].reference);
    EXPECT_EQ(found.predictions[i].document, expected[i].document);
    EXPECT_EQ(found.predictions[i].at_limit, expected[i].at_limit);
  }
  const LossSoFar loss = read_partial_loss(evaluation(root));
  EXPECT_EQ(loss.sequences, 2);
  EXPECT_FALSE(loss.complete);
  EXPECT_EQ(loss.sum.loss, 10.5);
  EXPECT_EQ(loss.sum.target_count, 6);
}
void expect_scores(const fs::path& root) {
  Io io;
  const RunRecord run = read_run(io, root / "run", 10, /*with_texts=*/true);
  EXPECT_EQ(run.notes, std::vector<std::string>{});
  ASSERT_EQ(run.evaluations.size(), 1U);
  const EvaluationRecord& record = run.evaluations.front();
  EXPECT_EQ(record.split + " " + record.data, "test data/a");
  EXPECT_EQ(record.step, 7);
  EXPECT_EQ(record.examples, 3);
  EXPECT_EQ(record.loss, 2);
  for (const double rouge : record.rouge) EXPECT_GT(rouge, 0);
  EXPECT_EQ(record.rouge[0], 2.0 / 3) << "of three summaries two are the references, and one is empty";
  EXPECT_EQ(record.at_limit, 1.0 / 3);
  EXPECT_EQ(record.empty, 1.0 / 3);
  EXPECT_EQ(record.repeats, 0);
  EXPECT_EQ(record.copies, 0);
  ASSERT_TRUE(record.intervals) << "scores.jsonl has a line for each example";
  EXPECT_EQ((*record.intervals)[0].high, 1);
}

// ---- an export, rates

void write_export(const fs::path& root) {
  write_bytes(root / "export" / kPromptFile, prompt_json(prompt()));
  TokenizerFiles files = tokenizer_files();
  files.carry_choice();
  write_bytes(root / "export" / kTokenizerChoiceFile, *files.find(kTokenizerChoiceFile));
}
void expect_choice(const TokenizerChoice& found, const TokenizerChoice& expected) {
  EXPECT_EQ(found.eos_token, expected.eos_token);
  EXPECT_EQ(found.reads_special_tokens, expected.reads_special_tokens);
  EXPECT_EQ(found.chat_template, expected.chat_template);
  EXPECT_EQ(found.chat_date, expected.chat_date);
}
void expect_export(const fs::path& root) {
  EXPECT_EQ(read_prompt_json(root / "export"), prompt());
  expect_choice(read_tokenizer_choice(root / "export"), tokenizer_files().choice);
  const std::optional<TokenizerChoice> questions = read_question_choice(root / "export");
  ASSERT_TRUE(questions);
  expect_choice(*questions, *tokenizer_files().questions);
}

void write_rates(const fs::path& root) {
  write_bytes(root / "rates.json", rates_document(rates()));
}
void expect_rates(const fs::path& root) {
  const Rates found = read_rates(root / "rates.json");
  expect_says_all(Json::parse(read_text(root / "rates.json")), Json::parse(rates_document(found)), "rates");
  EXPECT_EQ(rates_document(found), rates_document(rates()));
}

// ---- all of them

struct Format {
  std::vector<std::string> files;
  void (*write)(const fs::path& root);  // null: another format's has written them
  void (*expect)(const fs::path& root);
};

/// The files of a checkpoint in which these ranks store something.
std::vector<std::string> saved(const std::string& run, const std::vector<int64_t>& ranks) {
  std::vector<std::string> files = {fmt::format("{}/{}/{}", run, kStep, Manifest::kFileName)};
  for (const int64_t rank : ranks)
    for (const std::string& name : {rank_file_name(rank), sidecar_file_name(rank)})
      files.push_back(fmt::format("{}/{}/{}", run, kStep, name));
  return files;
}

const std::vector<Format> kFormats = {
    {{"pairs/train.h5", "pairs/validation.h5", "pairs/test.h5", "conversations/test.h5"},
     write_data,
     expect_data},
    {{"pairs/prepare.json"}, nullptr, expect_prepare_json},
    {{"run/config.toml"}, write_config, expect_config},
    {{"run/metrics.jsonl"}, write_metrics, expect_metrics},
    {saved("run", {0, 1, 2}), write_checkpoint, expect_checkpoint},
    {saved("adapters", {0, 2, 3}), write_adapters, expect_adapters},
    {{"run/checkpoints/takeovers.json"}, write_takeovers, expect_takeovers},
    {{"lock/LOCK"}, write_lock, expect_lock},
    {{"run/trace/rank_00000.json"}, write_traces, expect_traces},
    {{"run/evaluation/step_00000007-test/settings.json",
      "run/evaluation/step_00000007-test/predictions.jsonl", "run/evaluation/step_00000007-test/loss.json"},
     write_evaluation,
     expect_evaluation},
    {{"run/evaluation/step_00000007-test/scores.json", "run/evaluation/step_00000007-test/scores.jsonl"},
     nullptr,
     expect_scores},
    {{"export/ripstop_prompt.json", "export/ripstop_tokenizer.json"}, write_export, expect_export},
    {{"rates.json"}, write_rates, expect_rates},
};

std::vector<std::string> golden_versions() {
  std::vector<std::string> versions;
  for (const auto& entry : fs::directory_iterator(golden_file("")))
    if (const std::string name = entry.path().filename(); '0' <= name[0] && name[0] <= '9')
      versions.push_back(name);
  return versions;
}

TEST(GoldenFormats, DISABLED_Write) {
  for (const Format& format : kFormats)
    if (format.write != nullptr) format.write(golden_file(std::string(version())));
}

TEST(GoldenFormats, EveryReleasedVersionIsRead) {
  EXPECT_EQ(std::ranges::count(golden_versions(), "0.2.0"), 1);
  for (const std::string& version : golden_versions())
    for (const Format& format : kFormats) {
      SCOPED_TRACE(version + " " + format.files.front());
      EXPECT_NO_THROW(format.expect(golden_file(version)));
    }
}

TEST(GoldenFormats, EveryFormatOfThisVersionHasItsFiles) {
  std::set<std::string> listed, there;
  for (const Format& format : kFormats) listed.insert(format.files.begin(), format.files.end());
  const fs::path root = golden_file(std::string(version()));
  ASSERT_TRUE(fs::exists(root)) << "run tests/golden/make_formats.sh";
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file()) there.insert(entry.path().lexically_relative(root));
  EXPECT_EQ(there, listed);
}

}  // namespace
}  // namespace ripstop::golden
