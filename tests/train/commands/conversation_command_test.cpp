// Conversations, as users prepare, plan, train and evaluate them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "data/chat/chat_style.h"
#include "data/chat/conversation_json.h"
#include "data/dataset/sequence_reader.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

using Json = nlohmann::json;

class ConversationCommand : public testing::Test {
 protected:
  /// Two exchanges, of which only those in `counts` count.
  static std::string lines(int64_t first, int64_t count, const std::string& counts) {
    std::string text;
    for (int64_t i = first; i < first + count; ++i) {
      Conversation turns = {message_of("sBe brief."), message_of("uis it so"), message_of("ano"),
                            message_of("uand now"), message_of(fmt::format("ayes {}", i))};
      for (int64_t w = 0; w < i % 9; ++w) turns[1].content += " the sun";
      for (int64_t w = 0; w < i % 5; ++w) turns[3].content += " the moon";
      turns[2].counts = counts.find('1') != std::string::npos;
      turns[4].counts = counts.find('2') != std::string::npos;
      text += fmt::format("{{\"messages\": {}}}\n", text_of_conversation(turns));
    }
    return text;
  }
  void make(const std::string& data, const std::string& counts = "12", const std::string& name = "chatml") {
    write_bytes(scratch_ / (data + "-in/train.jsonl"), lines(0, 50, counts));
    write_bytes(scratch_ / (data + "-in/test.jsonl"), lines(90, 7, counts));
    const ProgramRun made = expect_success(
        run_program(fmt::format("prepare --input {} --tokenizer {} --chat-template {} --output {}",
                                file(data + "-in"), chat_.path().string(), name, file(data))));
    prepared_ = made.err;
  }
  std::string file(const std::string& name) const { return (scratch_ / name).string(); }
  /// Pairs of document and summary, without a chat template.
  void make_pairs(const std::string& data) {
    std::string text;
    for (int64_t i = 0; i < 40; ++i)
      text += fmt::format("{{\"document\": \"it is {} so\", \"summary\": \"no {}\"}}\n", i, i % 7);
    write_bytes(scratch_ / (data + "-in/train.jsonl"), text);
    write_bytes(scratch_ / (data + "-in/test.jsonl"), text.substr(0, text.find('\n', 200) + 1));
    expect_success(run_program(fmt::format("prepare --input {} --tokenizer {} --output {}",
                                           file(data + "-in"), chat_.path().string(), file(data))));
  }
  /// config() of several data sets.
  std::string mixed(const std::vector<std::string>& names, int64_t length = 80) {
    std::string list;
    for (const std::string& name : names) list += fmt::format("\"{}\",", file(name));
    std::string toml = read_bytes(config("DATA", length));
    const std::string one = fmt::format("directory = \"{}\"", file("DATA"));
    toml.replace(toml.find(one), one.size(), "directories = [" + list + "]");
    write_bytes(scratch_ / "config.toml", toml);
    return file("config.toml");
  }
  std::string config(const std::string& data, int64_t length, const std::string& more = "") {
    write_bytes(
        scratch_ / "config.toml",
        fmt::format(
            "[run]\ndirectory = \"{}\"\ndevice = \"cpu\"\n[data]\ndirectory = \"{}\"\nsequence_length = "
            "{}\n{}\n[model]\npreset = \"debug\"\n[train]\nepochs = 1\nglobal_batch_sequences = 8\n"
            "[optimizer]\nlearning_rate = 1e-3\n[precision]\ncompute = \"float32\"\n[generation]\n"
            "max_new_tokens = 5\n",
            file("run"), file(data), length, more));
    return file("config.toml");
  }
  ScratchDirectory scratch_;
  const ChatDirectory chat_;
  std::string prepared_;  ///< what prepare said
};

TEST_F(ConversationCommand, ThePlanIsWhatTheRunReads) {
  make("data");
  const TokenDataset train(scratch_ / "data/train.h5");
  for (const std::string word : {"assistant", "last"}) {
    std::filesystem::remove_all(scratch_ / "run");
    const std::string toml = config("data", 80, "loss_on = \"" + word + "\"");
    const ProgramRun planned = expect_success(run_program("plan --cpus-per-task 1 --json " + toml));
    const Json data = Json::parse(planned.out).at("data");
    const SequenceReader reader(train, 80, word == "last" ? LossOn::kLast : LossOn::kAssistant);
    EXPECT_GT(data.at("cut_turns"), 0);
    EXPECT_EQ(data.at("cut_turns"), reader.cut_turns());
    EXPECT_EQ(data.at("without_targets"), 0);
    const ProgramRun trained = expect_success(run_program("train " + toml));
    EXPECT_HAS(trained.out, fmt::format("50 examples, {} turns cut to fit 80 tokens", reader.cut_turns()));
    const MetricsLog log = read_metrics(scratch_ / "run/metrics.jsonl");
    const DataUse& use = log.starts.at(0).data;
    EXPECT_EQ(use.kind, "conversation");
    EXPECT_EQ(use.cut_turns, reader.cut_turns());
    EXPECT_EQ(use.without_targets, 0);
    EXPECT_EQ(data.at("cut_tokens"), use.cut_tokens);
    EXPECT_EQ(data.at("tokens_per_epoch"), log.steps.back().tokens_seen);
  }
}

TEST_F(ConversationCommand, AnEvaluationAddsTheLossesOfItsAnswers) {
  make("data");
  make("first", "1");
  make("second", "2");
  expect_success(run_program("train " + config("data", 256)));
  const auto scores = [&](const std::string& data) {
    const ProgramRun run = expect_success(run_program(fmt::format(
        "evaluate {} --data {} --json --output {}", file("run"), file(data), file("of-" + data))));
    return Json::parse(run.out);
  };
  double sum = 0;
  int64_t targets = 0;
  for (const char* part : {"first", "second"}) {
    const Json got = scores(part);
    sum += got.at("loss").get<double>() * got.at("targets").get<double>();
    targets += got.at("targets").get<int64_t>();
  }
  const Json all = scores("data");
  EXPECT_EQ(all.at("targets"), targets);
  EXPECT_NEAR(all.at("loss").get<double>() * static_cast<double>(targets), sum, 1e-4);
  // ROUGE is of the last answer.
  const std::string predictions = read_bytes(scratch_ / "of-data/predictions.jsonl");
  const Json line = Json::parse(predictions.substr(0, predictions.find('\n')));
  EXPECT_EQ(line.at("reference"), "yes 90");
  EXPECT_EQ(line.at("document"), "Be brief.\n\nis it so\n\nno\n\nand now");
}

/// The summaries in the lines of `output`.
std::vector<std::string> summaries_of(const ProgramRun& run) {
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::vector<std::string> summaries;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);)
    summaries.push_back(Json::parse(line).value("summary", line));
  return summaries;
}

TEST_F(ConversationCommand, SummarizeAnswersAsTheEvaluationDoes) {
  make("data");
  ASSERT_EQ(run_program("train " + config("data", 80)).exit_code, 0);
  const ProgramRun scored =
      expect_success(run_program("evaluate " + file("run") + " --output " + file("scores")));
  const int64_t turns =
      SequenceReader(TokenDataset(scratch_ / "data/test.h5"), 80, LossOn::kAssistant).cut_turns();
  EXPECT_GT(turns, 0);
  EXPECT_HAS(scored.out, fmt::format("{} turns left out of the loss; documents cut to fit 80", turns));
  EXPECT_EQ(Json::parse(read_bytes(scratch_ / "scores/scores.json")).at("loss_cut_turns"), turns);
  const std::vector<std::string> expected =
      summaries_of({0, read_bytes(scratch_ / "scores/predictions.jsonl"), ""});
  ASSERT_EQ(expected.size(), 7U);
  const ProgramRun got = run_program("summarize " + file("run") + " --input " + file("data-in/test.jsonl"));
  EXPECT_EQ(summaries_of(got), expected);
  EXPECT_HAS(got.err, "6 of 7 documents cut to fit");
  EXPECT_HAS(got.out, "\"cut_tokens\":");
}

TEST_F(ConversationCommand, SummarizeTakesEveryFormOfAQuestion) {
  make("data");
  ASSERT_EQ(run_program("train " + config("data", 80)).exit_code, 0);
  const auto answers = [&](const std::string& name, const std::string& bytes) {
    write_bytes(scratch_ / name, bytes);
    return run_program("summarize " + file("run") + " --input " + file(name));
  };
  const std::string user = R"({"role": "user", "content": "is it so"})";
  const std::string expected = answers("in.jsonl", R"({"messages": [)" + user + "]}").out;
  const std::vector<std::string> first = {Json::parse(expected).at("summary")};
  EXPECT_EQ(summaries_of(answers("in.txt", "is it so\n")), first);
  const ProgramRun exported = expect_success(
      run_program("checkpoint export --dtype float32 " + file("run") + " " + file("exported")));
  EXPECT_HAS(exported.err, "chat_template.jinja is written for the chat template chatml of the training");
  EXPECT_EQ(own_chat_template(read_tokenizer_files(scratch_ / "exported")), "chatml");
  const std::string readme = read_bytes(scratch_ / "exported/README.md");
  EXPECT_HAS(readme, "| chat template | chatml |");
  EXPECT_HAS(readme,
             R"(prompt = "<|im_start|>user\n{document}<|im_end|>\n<|im_start|>assistant\n".replace()");
  EXPECT_HAS(readme, R"(return_tensors="pt", add_special_tokens=False))");
  EXPECT_EQ(summaries_of(run_program("summarize " + file("exported") + " --input " + file("in.txt"))), first);
  for (const std::string& line :
       {R"({"document": "is it so"})" + std::string(), R"({"prompt": [)" + user + "]}",
        R"({"prompt": [)" + user + R"(], "completion": [{"role": "assistant", "content": "no"}]})",
        R"({"conversations": [{"from": "human", "value": "is it so"}, {"from": "gpt", "value": "no"}]})" +
            std::string()})
    EXPECT_EQ(summaries_of(answers("in.jsonl", line)), first) << line;
  EXPECT_NE(summaries_of(answers("in.jsonl", R"({"prompt": "is it so"})")), first) << "without a template";
  for (const auto& [line, why] :
       {std::pair(R"({"text": "a"})",
                  "in.jsonl:1: no field 'messages', 'prompt' or 'document'; the line has"),
        std::pair(R"({"messages": [{"role": "system", "content": "a"}]})", "in.jsonl:1: no turn of the user"),
        std::pair(R"({"messages": [{"role": "tool", "content": "a"}]})", "in.jsonl:1: tools and parts")}) {
    expect_exit(answers("in.jsonl", line), 65, why);
  }
}

// Each line is asked as the set of its kind was trained on, of whichever set is the first.
TEST_F(ConversationCommand, AMixtureAnswersMessagesByItsConversations) {
  make("chats");
  make_pairs("pairs");
  ASSERT_EQ(run_program("train " + mixed({"pairs", "chats"})).exit_code, 0);
  const auto evaluated = [&](const std::string& set) {
    expect_success(run_program(
        fmt::format("evaluate {} --data {} --output {}", file("run"), file(set), file("scores-" + set))));
    return summaries_of({0, read_bytes(scratch_ / ("scores-" + set) / "predictions.jsonl"), ""});
  };
  const std::vector<std::string> pairs = evaluated("pairs"), chats = evaluated("chats");
  std::vector<std::string> all = pairs;
  all.insert(all.end(), chats.begin(), chats.end());
  EXPECT_NE(pairs.front(), chats.front());
  write_bytes(scratch_ / "in.jsonl",
              read_bytes(scratch_ / "pairs-in/test.jsonl") + read_bytes(scratch_ / "chats-in/test.jsonl"));
  const auto answered = [&](const std::string& model) {
    return summaries_of(run_program("summarize " + file(model) + " --input " + file("in.jsonl")));
  };
  EXPECT_EQ(answered("run"), all);

  const ProgramRun exported = expect_success(
      run_program("checkpoint export --dtype float32 " + file("run") + " " + file("exported")));
  EXPECT_HAS(exported.err, "chat_template.jinja is written for the chat template chatml of the training");
  EXPECT_EQ(answered("exported"), all);
  EXPECT_EQ(own_chat_template(read_tokenizer_files(scratch_ / "exported")), "chatml");
  const Json ends = Json::parse(read_bytes(scratch_ / "exported/generation_config.json")).at("eos_token_id");
  EXPECT_EQ(ends.size(), 2u) << ends;
  const std::string readme = read_bytes(scratch_ / "exported/README.md");
  EXPECT_HAS(readme, R"(before, separator = "", "\n\nTL;DR:")");
  EXPECT_HAS(readme, "| chat template of conversations | chatml |");
  EXPECT_HAS(readme, R"("<|im_start|>user\n{document}<|im_end|>\n<|im_start|>assistant\n")");
  // A data set that takes the tokenizer takes nothing of the questions with it.
  const ProgramRun next = expect_success(run_program(fmt::format(
      "prepare --input {} --tokenizer {} --output {}", file("pairs-in"), file("exported"), file("next"))));
  EXPECT_FALSE(read_question_choice(scratch_ / "next"));

  std::filesystem::remove_all(scratch_ / "run");
  ASSERT_EQ(run_program("train " + mixed({"chats", "pairs"})).exit_code, 0);
  EXPECT_FALSE(read_question_choice(scratch_ / "run")) << "the run's own choice";
}

TEST_F(ConversationCommand, AfterRunningTextEveryLineIsAQuestion) {
  make("chats");
  std::string text;
  for (int64_t i = 0; i < 40; ++i) text += fmt::format("{{\"text\": \"it is {} so\"}}\n", i);
  write_bytes(scratch_ / "text-in/train.jsonl", text);
  expect_success(run_program(fmt::format("prepare --source text --input {} --tokenizer {} --output {}",
                                         file("text-in"), chat_.path().string(), file("text"))));
  ASSERT_EQ(run_program("train " + mixed({"text", "chats"})).exit_code, 0);
  ASSERT_EQ(
      run_program("checkpoint export --dtype float32 " + file("run") + " " + file("exported")).exit_code, 0);
  expect_success(run_program(
      fmt::format("evaluate {} --data {} --output {}", file("run"), file("chats"), file("scores"))));
  const std::vector<std::string> expected =
      summaries_of({0, read_bytes(scratch_ / "scores/predictions.jsonl"), ""});
  write_bytes(scratch_ / "in.txt", "is it so\n");
  write_bytes(scratch_ / "in.jsonl", R"({"messages": [{"role": "user", "content": "is it so"}]})");
  std::vector<std::string> turns;
  for (const char* model : {"run", "exported"}) {
    const auto answered = [&](const std::string& input) {
      return summaries_of(run_program(fmt::format("summarize {} --input {}", file(model), file(input))));
    };
    EXPECT_EQ(answered("chats-in/test.jsonl"), expected) << model;
    for (const char* input : {"in.txt", "in.jsonl"}) turns.push_back(answered(input).at(0));
  }
  EXPECT_EQ(turns, std::vector<std::string>(4, turns.front()));
  EXPECT_HAS(read_bytes(scratch_ / "exported/README.md"), "split_special_tokens=False)");
}

TEST_F(ConversationCommand, OfTwoChatTemplatesTheFirstIsNamedAndUsed) {
  make("chats");
  make("llama", "12", "llama3");
  make_pairs("pairs");
  const std::string toml = mixed({"pairs", "llama", "chats"}, 256);
  const std::string note = fmt::format(
      "{} has the chat template chatml of 26 Jul 2024; summarize and exports of this model answer "
      "messages by {}, the chat template llama3 of 26 Jul 2024",
      file("chats/train.h5"), file("llama/train.h5"));
  EXPECT_HAS(run_program("plan --cpus-per-task 1 " + toml).out, "note: " + note);
  const ProgramRun trained = expect_success(run_program("train " + toml));
  EXPECT_HAS(trained.out, note);
  EXPECT_EQ(read_question_choice(scratch_ / "run").value().chat_template, "llama3");
}

TEST_F(ConversationCommand, AnEvaluationOfAMixtureSaysWhichSetItScores) {
  make("chats");
  make_pairs("pairs");
  ASSERT_EQ(run_program("train " + mixed({"pairs", "chats"})).exit_code, 0);
  const auto scored = [&](const std::string& options) {
    ProgramRun run = run_program("evaluate " + file("run") + " --output " + file("scores") + options);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const Json scores = Json::parse(read_bytes(scratch_ / "scores/scores.json"));
    EXPECT_EQ(scores.at("data_sets"), Json({file("pairs"), file("chats")}));
    std::filesystem::remove_all(scratch_ / "scores");
    return std::pair(run, scores.at("data").get<std::string>());
  };
  const auto [first, data] = scored("");
  EXPECT_EQ(data, file("pairs"));
  EXPECT_HAS(first.out, fmt::format("scores {}, the first of the run's 2 data sets: --data chooses {}\n",
                                    file("pairs"), file("chats")));
  const auto [other, chosen] = scored(" --json --data " + file("chats"));
  EXPECT_EQ(chosen, file("chats"));
  EXPECT_EQ(other.err.find("--data chooses"), std::string::npos);
  EXPECT_HAS(other.err, "scores " + file("chats") + "\n");
  EXPECT_HAS(run_program("evaluate " + file("run") + " --data chts").err,
             "did you mean --data " + file("chats") + "?");

  std::filesystem::remove_all(scratch_ / "run");
  ASSERT_EQ(run_program("train " + mixed({"pairs"})).exit_code, 0);
  const ProgramRun alone = run_program("evaluate --json " + file("run"));
  EXPECT_FALSE(Json::parse(alone.out).contains("data"));
  EXPECT_EQ(alone.err.find("scores "), std::string::npos);
}

TEST_F(ConversationCommand, ShowMarksAnswersAndCuts) {
  make("data");
  const auto show = [&](const std::string& options) {
    const ProgramRun run = expect_success(run_program("prepare --show 1 " + options + " " + file("data")));
    return run.out;
  };
  const std::string first = "<|im_start|>assistant\n[[no<|im_end|>\n]]", second = "[[yes 0<|im_end|>\n]]";
  const std::string all = show("");
  EXPECT_HAS(all, first);
  EXPECT_HAS(all, second);
  EXPECT_EQ(show("--loss-on all").substr(all.find("<|im_start|>")), all.substr(all.find("<|im_start|>")));
  EXPECT_EQ(Json::parse(show("--loss-on all --json")).at("loss_on"), "assistant");
  EXPECT_HAS(run_program("plan --cpus-per-task 1 " + config("data", 80, "loss_on = \"all\"")).out,
             "note: data.loss_on \"all\" counts all turns of the assistant");
  const std::string last = show("--loss-on last");
  EXPECT_EQ(last.find(first), std::string::npos) << last;
  EXPECT_HAS(last, second);
  const Json whole = Json::parse(show("--json")).at("examples").at(0);
  const auto tokens = whole.at("ids").size();
  EXPECT_EQ(whole.at("turns"), 4);
  EXPECT_HAS(show(fmt::format("--sequence-length {}", tokens - 2)), first + "<2 turns, ");
  EXPECT_HAS(show(fmt::format("--loss-on last --sequence-length {}", tokens - 2)), "<2 turns, ");
  expect_exit(run_program("prepare --show 1 --loss-on summary " + file("data")), 64, "has conversations");
}

TEST_F(ConversationCommand, NothingToLearnIsRefused) {
  make("data");
  const std::string toml = config("data", 12);
  for (const char* verb : {"plan --cpus-per-task 1 ", "train "}) {
    expect_exit(run_program(verb + toml), 65,
                "nothing to learn: with data.sequence_length 12 none of the 50 examples");
  }
  EXPECT_HAS(run_program("plan --cpus-per-task 1 " + toml + " data.loss_on=last").err,
             "all last answers fit");
  EXPECT_EQ(prepared_.find("data.loss_on"), std::string::npos) << prepared_;
  make("qwen", "12", "qwen3");
  EXPECT_HAS(prepared_, "answers in another way once others follow: runs need data.loss_on = \"last\"");
  expect_exit(run_program("plan --cpus-per-task 1 " + config("qwen", 256)), 64,
              "train.h5: the chat template qwen3");
  EXPECT_EQ(run_program("plan --cpus-per-task 1 " + config("qwen", 256, "loss_on = \"last\"")).exit_code, 0);
}

}  // namespace
}  // namespace ripstop
