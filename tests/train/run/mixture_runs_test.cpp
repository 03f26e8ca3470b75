// Whole runs on several data sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "tests/data/dataset/loader_steps.h"
#include "tests/train/run/small_runs.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class MixtureRuns : public SmallRuns {
 protected:
  /// Writes a data set whose example i has `first` + i % 40 as its document, in train.h5 and validation.h5.
  std::string make_set(const std::string& name, int32_t first, int64_t examples, int64_t validation = 3,
                       const std::string& model = small_model()) {
    const fs::path directory = scratch_ / name;
    fs::create_directories(directory);
    write_bytes(directory / "tokenizer.model", model);
    const Tokenizer tokenizer(model, "small");
    const TokenDatasetHeader header = header_of(tokenizer);
    const auto write = [&](const char* file, int64_t count) {
      TokenDatasetWriter writer(directory / file, header);
      for (int64_t i = 0; i < count; ++i) {
        const int32_t word = first + static_cast<int32_t>(i) % 40;
        writer.add({.tokens = {1, word, 6, 7, word, 9, word, 2}, .spans = {{5, 8, 1, 4}}});
      }
      writer.finish();
    };
    write("train.h5", examples);
    write("validation.h5", validation);
    return directory.string();
  }
  /// A config with data.directories of these names.
  RunConfig mixed(const std::string& run, const std::vector<std::string>& names,
                  std::vector<std::string> overrides = {}) const {
    std::string list;
    for (const std::string& name : names)
      list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", (scratch_ / name).string());
    overrides.push_back(fmt::format("data.directories=[{}]", list));
    overrides.insert(overrides.begin(), "train.global_batch_sequences=3");
    if (std::ranges::none_of(overrides, [](const auto& each) { return each.starts_with("train.epochs"); }))
      overrides.insert(overrides.begin(), "train.steps=12");
    return config(run, "unused", overrides);
  }
  void expect_same(const std::string& run, const std::string& other, int64_t step) const {
    EXPECT_EQ(losses(run), losses(other));
    SmallRuns::expect_same(run, other, step);
  }
};

TEST_F(MixtureRuns, AResumedRunIsTheUnbrokenOneBitForBit) {
  make_set("a", 10, 30), make_set("b", 60, 7);
  for (const std::vector<std::string>& drawn : {std::vector<std::string>{}, {"data.weights=[0.6, 0.4]"}}) {
    const std::string kind = drawn.empty() ? "all-" : "drawn-";
    ASSERT_EQ(train(mixed(kind + "whole", {"a", "b"}, drawn)), ExitCode::kOk);
    for (const char* steps : {"train.steps=1", "train.steps=4", "train.steps=7", "train.steps=12"}) {
      std::vector<std::string> overrides = drawn;
      overrides.emplace_back(steps);
      ASSERT_EQ(train(mixed(kind + "parts", {"a", "b"}, overrides)), ExitCode::kOk);
    }
    expect_same(kind + "parts", kind + "whole", 12);
  }
  const DataCursor all = state("all-whole", 12).cursor, drawn = state("drawn-whole", 12).cursor;
  EXPECT_EQ(all, (DataCursor{0, 36, all.sets}));
  EXPECT_EQ(places(all), (std::vector<SetCursor>{{0, 29}, {0, 7}})) << "37 sequences are an epoch";
  EXPECT_EQ(drawn.sequence, 36);
  EXPECT_GE(drawn.sets[1].epoch, 1) << "the small set went on while the large one did not end";
  EXPECT_EQ(drawn.sets[0].epoch, 0);
  EXPECT_EQ(drawn.sets[0].sequence + 7 * drawn.sets[1].epoch + drawn.sets[1].sequence, 36);
}

// A list of one data set, also with a weight or beside sets that are never drawn, trains as the set alone.
TEST_F(MixtureRuns, OneSetTrainsAsEver) {
  make_set("a", 10, 5), make_set("b", 60, 7);
  ASSERT_EQ(
      train(config("alone", (scratch_ / "a").string(), {"train.steps=12", "train.global_batch_sequences=3"})),
      ExitCode::kOk);
  ASSERT_EQ(train(mixed("list", {"a"})), ExitCode::kOk);
  ASSERT_EQ(train(mixed("weighted", {"a"}, {"data.weights=[0.5]"})), ExitCode::kOk);
  ASSERT_EQ(train(mixed("zero", {"a", "b"}, {"data.weights=[2, 0]"})), ExitCode::kOk);
  expect_same("list", "alone", 12);
  expect_same("weighted", "alone", 12);
  EXPECT_TRUE(state("alone", 12).cursor.sets.empty());
  EXPECT_EQ(losses("zero"), losses("alone"));
  EXPECT_EQ(read_bytes(checkpoint("zero", 12) / "rank_00000.h5"),
            read_bytes(checkpoint("alone", 12) / "rank_00000.h5"));
  EXPECT_EQ(places(state("zero", 12).cursor), (std::vector<SetCursor>{{7, 1}, {0, 0}}));
}

TEST_F(MixtureRuns, OtherWeightsApplyFromTheNextSequenceIfAllowed) {
  make_set("a", 10, 30), make_set("b", 60, 30);
  ASSERT_EQ(train(mixed("run", {"a", "b"}, {"data.weights=[1, 0]", "train.steps=4"})), ExitCode::kOk);
  const std::vector<std::string> other = {"data.weights=[0, 1]", "train.steps=8"};
  expect_error(refusal(mixed("run", {"a", "b"}, other)), ExitCode::kUsage,
               "data.weights: [1.0, 0.0] -> [0.0, 1.0]", "--allow-changes");
  allow_changes_ = true;
  ASSERT_EQ(train(mixed("run", {"a", "b"}, other)), ExitCode::kOk);
  EXPECT_HAS(said(), "data.weights: [1.0, 0.0] -> [0.0, 1.0], from step 5 on");
  EXPECT_HAS(said(),
             "/a: 30 examples, none is cut; 30 sequences an epoch, 0% of those after step 4, about 0.4 "
             "epochs\n");
  EXPECT_HAS(said(), "30 sequences an epoch, 100% of those after step 4, about 0.4 epochs\n");
  EXPECT_HAS(said(), "run: 8 steps, about 168 tokens\n");
  EXPECT_EQ(state("run", 8).cursor, (DataCursor{0, 24, {{0, 12, 84}, {0, 12, 84}}}));
  allow_changes_ = false;  // the new weights are stored
  ASSERT_EQ(train(mixed("run", {"a", "b"}, {"data.weights=[0, 1]", "train.steps=9"})), ExitCode::kOk);
  EXPECT_EQ(state("run", 9).cursor, (DataCursor{0, 27, {{0, 12, 84}, {0, 15, 105}}}));

  // A run cannot cease to have weights, and one that continues it may have others.
  allow_changes_ = true;
  EXPECT_HAS(refusal(mixed("run", {"a", "b"}, {"train.steps=12"})).what(),
             "data.weights: [0.0, 1.0] -> (none)");
  allow_changes_ = false;
  ASSERT_EQ(train(mixed("next", {"a", "b"},
                        {"data.weights=[1, 0]", "run.continue_from=" + (scratch_ / "run").string()})),
            ExitCode::kOk);
  EXPECT_EQ(state("next", 12).cursor, (DataCursor{0, 36, {{0, 21, 147}, {0, 15, 105}}}));
}

// Weights of the same shares are no change, in a run with a checkpoint and without.
TEST_F(MixtureRuns, EqualSharesAreNoChange) {
  make_set("a", 10, 30), make_set("b", 60, 30), make_set("c", 100, 30);
  const std::vector<std::string> validating = {"train.validate_every=2", "checkpoint.keep_best=loss"};
  const auto weighted = [&](const char* weights, const char* steps) {
    std::vector<std::string> overrides = validating;
    overrides.insert(overrides.end(), {weights, steps});
    return mixed("run", {"a", "b", "c"}, overrides);
  };
  ASSERT_EQ(train(weighted("data.weights=[6, 3, 1]", "train.steps=2")), ExitCode::kOk);
  const BestSoFar best = state("run", 2).best.value();
  // The shares 6 / 10 and 0.6 / (0.6 + 0.3 + 0.1) are not equal bit by bit.
  ASSERT_EQ(train(weighted("data.weights=[0.6, 0.3, 0.1]", "train.steps=3")), ExitCode::kOk);
  EXPECT_EQ(said().find("data.weights"), std::string::npos) << said();
  EXPECT_EQ(state("run", 3).validated_step, 3);
  EXPECT_TRUE(state("run", 3).best->step == best.step || state("run", 3).best->value < best.value)
      << "the best score began anew";
  fs::remove_all(scratch_ / "run/checkpoints");
  ASSERT_EQ(train(weighted("data.weights=[60, 30, 10]", "train.steps=3")), ExitCode::kOk);
  EXPECT_EQ(said().find("data.weights"), std::string::npos) << said();
}

TEST_F(MixtureRuns, OtherDataSetsAreRefusedByTheirCause) {
  make_set("a", 10, 30), make_set("b", 60, 30), make_set("c", 100, 30), make_set("d", 140, 30);
  const auto path = [&](const char* name) { return (scratch_ / name).string(); };
  const auto quoted = [&](const char* name) { return "'" + path(name) + "'"; };
  ASSERT_EQ(train(mixed("run", {"a", "b"}, {"train.steps=2"})), ExitCode::kOk);
  const auto refused = [&](const std::string& run, const std::vector<std::string>& names,
                           const std::vector<std::string>& overrides = {}) {
    const Error error = refusal(mixed(run, names, overrides));
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return fmt::format("{}: {}", error.what(), error.hint());
  };
  const std::string fresh =
      "begin a new run with its weights on other data: model.pretrained=" + path("run") +
      " run.directory=NEW";
  EXPECT_EQ(refused("run", {"a", "c"}),
            "the data set in " + path("c") +
                " is not the one this run began with: give all sets of the run, or " + fresh);
  EXPECT_EQ(
      refused("run", {"b", "a"}),
      fmt::format("the order of data.directories changed: {0}, {1} -> {1}, {0}: give each set its place: "
                  "'data.directories=[\"{2}\", \"{3}\"]'",
                  quoted("a"), quoted("b"), path("a"), path("b")));
  EXPECT_EQ(refused("run", {"a"}),
            quoted("b") + " is gone from data.directories: give all sets of the run, or " + fresh);
  EXPECT_EQ(refused("run", {"a", "b", "c", "d"}),
            quoted("c") + ", " + quoted("d") + " are new in data.directories: " + fresh);
  EXPECT_HAS(refused("run", {"c"}), quoted("a") + ", " + quoted("b") +
                                        " are gone from data.directories, and " + quoted("c") + " is new");
  fs::rename(scratch_ / "b", scratch_ / "moved");
  ASSERT_EQ(train(mixed("run", {"a", "moved"}, {"train.steps=3"})), ExitCode::kOk)
      << "content counts, not paths";
  EXPECT_HAS(refused("run", {"moved", "a"}),
             fmt::format("{0}, {1} -> {1}, {0}", quoted("a"), quoted("moved")));

  // The weights of other sets are other weights, but not the cause.
  ASSERT_EQ(train(mixed("drawn", {"a", "c", "d"}, {"data.weights=[6, 3, 1]", "train.steps=2"})),
            ExitCode::kOk);
  EXPECT_HAS(refused("drawn", {"c", "a", "d"}, {"data.weights=[3, 6, 1]"}),
             fmt::format("'data.directories=[\"{}\", \"{}\", \"{}\"]' 'data.weights=[6.0, 3.0, 1.0]'",
                         path("a"), path("c"), path("d")));
  EXPECT_HAS(
      refused("drawn", {"a", "c"}, {"data.weights=[6, 3]"}),
      quoted("d") +
          " is gone from data.directories: give all sets of the run, of weight 0 in data.weights to draw");
  EXPECT_HAS(refused("next", {"a", "c"}, {"data.weights=[6, 3]", "run.continue_from=" + path("drawn")}),
             "run.continue_from: " + quoted("d") + " is gone from data.directories");
}

// The first run ends with a part of a step. The second goes on with whole steps, and every example comes once
// more; a stop in it changes nothing.
TEST_F(MixtureRuns, MoreEpochsGoOnBehindAPartOfAStep) {
  make_set("a", 10, 7), make_set("b", 60, 4);
  const auto epochs = [&](int64_t count) {
    return mixed("run", {"a", "b"},
                 {fmt::format("train.epochs={}", count), "train.global_batch_sequences=5",
                  "schedule.kind=linear", "log.every_steps=1"});
  };
  ASSERT_EQ(train(epochs(1)), ExitCode::kOk);
  EXPECT_EQ(state("run", 3).cursor, (DataCursor{1, 0, {{1, 0, 49}, {1, 0, 28}}})) << "11 sequences, 5 a step";
  bool stops = false;
  on_line_ = [&](const std::string& line) { stops |= line.starts_with("step 4/"); };
  ASSERT_EQ(train(epochs(2), [&] { return stops; }), ExitCode::kRequeue);
  on_line_ = {};
  EXPECT_HAS(said(), "run: 2 epochs, 6 steps, 154 tokens\n");
  EXPECT_HAS(said(), "linear: down to 0 of the rate after step 6\n");
  EXPECT_HAS(said(),
             "more steps stretch the schedule: the learning rate was 3.33e-03 in step 3 and is 5.00e-03 "
             "in step 4");
  ASSERT_EQ(train(epochs(2)), ExitCode::kOk);
  EXPECT_HAS(said(), " of 6; watch");
  EXPECT_EQ(state("run", 6).cursor, (DataCursor{2, 0, {{2, 0, 98}, {2, 0, 56}}}));
  const MetricsLog log = metrics("run");
  ASSERT_EQ(log.steps.size(), 6u);
  EXPECT_DOUBLE_EQ(log.steps[5].learning_rate, 1e-2 / 6);
  EXPECT_EQ(log.starts.back().steps, 6);
  std::vector<int64_t> tokens;
  for (const StepMetrics& step : log.steps) tokens.push_back(step.tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{35, 35, 7, 35, 35, 7}));
  ASSERT_EQ(train(epochs(2)), ExitCode::kOk);
  EXPECT_HAS(said(), "was done already: give more train.epochs");
  allow_changes_ = true;
  EXPECT_HAS(refusal(epochs(1)).what(), "the run has done 6 steps and is in epoch 2, train.epochs is 1");
}

TEST_F(MixtureRuns, SetsThatDoNotFitAreRefused) {
  make_set("a", 10, 30), make_set("empty", 60, 0), make_set("other", 60, 30, 3, small_model_with({"zzz"}));
  expect_error(refusal(mixed("run", {"a", "other"})), ExitCode::kInputData,
               (scratch_ / "other/train.h5").string() + " has the tokenizer ",
               "prepare them again with the same --tokenizer");
  for (const std::vector<std::string>& weights : {std::vector<std::string>{}, {"data.weights=[1, 0]"}}) {
    expect_error(refusal(mixed("run", {"a", "empty"}, weights)), ExitCode::kInputData,
                 (scratch_ / "empty/train.h5").string() + ": has no examples");
  }
  expect_error(refusal(mixed("run", {"a", "absent"})), ExitCode::kInputData,
               (scratch_ / "absent").string() + ": there is no such directory");
  expect_error(refusal(mixed("run", {"a"}, {"data.loss_on=last"})), ExitCode::kUsage,
               (scratch_ / "a/train.h5").string() + " has no conversations");
  EXPECT_FALSE(fs::exists(scratch_ / "run"));
}

// The parts of the sets make up the step, whether or not a micro-batch holds several; a resume counts on.
TEST_F(MixtureRuns, EachSetHasTokensAndLossOfEachStep) {
  make_set("a", 10, 30), make_set("b", 60, 30);
  std::vector<std::array<double, 2>> losses_of_sets;
  for (const char* micro : {"1", "3"}) {
    const std::string run = std::string("micro") + micro;
    for (const char* steps : {"train.steps=5", "train.steps=12"})
      ASSERT_EQ(train(mixed(
                    run, {"a", "b"},
                    {"data.weights=[0.6, 0.4]", std::string("train.micro_batch_sequences=") + micro, steps})),
                ExitCode::kOk);
    const MetricsLog log = metrics(run);
    ASSERT_EQ(log.steps.size(), 12u);
    std::array<int64_t, 2> seen{};
    bool is_mixed = false;
    for (const StepMetrics& step : log.steps) {
      ASSERT_EQ(step.sets.value().size(), 2u);
      const auto& sets = *step.sets;
      double loss = 0;
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(sets[i].tokens_seen, seen[i] += sets[i].tokens);
        EXPECT_EQ(std::isnan(sets[i].loss), sets[i].tokens == 0);
        // Targets are as many of the tokens in both sets.
        if (sets[i].tokens > 0) loss += sets[i].loss * static_cast<double>(sets[i].tokens);
      }
      EXPECT_EQ(sets[0].tokens + sets[1].tokens, step.tokens);
      EXPECT_NEAR(loss / static_cast<double>(step.tokens), step.loss, 1e-6);
      is_mixed |= std::abs(sets[0].loss - sets[1].loss) > 1e-4;
      losses_of_sets.push_back({sets[0].loss, sets[1].loss});
    }
    EXPECT_TRUE(is_mixed);
    EXPECT_EQ(seen[0] + seen[1], log.steps.back().tokens_seen);
    EXPECT_EQ(log.ends.back().planned.memory.total(), log.ends.back().measured.memory.total());
  }
  for (size_t s = 0; s < 12; ++s)
    for (size_t i = 0; i < 2; ++i) {
      const double one = losses_of_sets[s][i], three = losses_of_sets[s + 12][i];
      EXPECT_TRUE(std::isnan(one) ? std::isnan(three) : std::abs(one - three) < 1e-5) << s;
    }
}

// The loss is the mean of the sets' by weight, else over all targets; the best checkpoint has the lowest.
TEST_F(MixtureRuns, EachSetIsValidated) {
  make_set("a", 10, 30, 5), make_set("b", 60, 30, 2), make_set("c", 100, 30, 0);
  const auto validation_of = [&](const std::string& run) {
    const MetricsLog log = metrics(run);
    EXPECT_EQ(log.validations.size(), 1u);
    const ValidationEvent event = log.validations.at(0);
    EXPECT_EQ(event.sets.value().size(), 3u);
    EXPECT_EQ(event.sets->at(0).target_count, 15);
    EXPECT_EQ(event.sets->at(1).target_count, 6);
    EXPECT_TRUE(std::isnan(event.sets->at(2).loss));
    EXPECT_EQ(event.target_count, 21);
    EXPECT_EQ(state(run, 12).best.value().value, event.loss);
    return event;
  };
  const std::vector<std::string> validating = {"train.validate_every=12"};
  ASSERT_EQ(train(mixed("all", {"a", "b", "c"}, validating)), ExitCode::kOk);
  EXPECT_HAS(said(),
             "note: train.validate_every: " + (scratch_ / "c/validation.h5").string() +
                 " has no examples (ripstop prepare --validation-fraction 0.05 takes some of train): this "
                 "set is not validated\n");
  EXPECT_HAS(said(), (scratch_ / "c").string() + "  not validated\n");
  const ValidationEvent all = validation_of("all");
  EXPECT_NEAR(all.loss, (15 * all.sets->at(0).loss + 6 * all.sets->at(1).loss) / 21, 1e-12);
  EXPECT_NE(all.sets->at(0).loss, all.sets->at(1).loss);

  ASSERT_EQ(train(mixed("drawn", {"a", "b", "c"}, {"train.validate_every=12", "data.weights=[1, 3, 4]"})),
            ExitCode::kOk);
  const ValidationEvent drawn = validation_of("drawn");
  EXPECT_NEAR(drawn.loss, (drawn.sets->at(0).loss + 3 * drawn.sets->at(1).loss) / 4, 1e-12);
  ASSERT_EQ(train(mixed("zero", {"a", "b", "c"}, {"train.validate_every=12", "data.weights=[0, 3, 4]"})),
            ExitCode::kOk);
  const ValidationEvent zero = validation_of("zero");
  EXPECT_DOUBLE_EQ(zero.loss, zero.sets->at(1).loss) << "a set of weight 0 is shown, but not in the mean";
}

// One note names the sets that are not validated, each with its cause.
TEST_F(MixtureRuns, SetsWithoutAValidationAreNamedOnce) {
  make_set("a", 10, 30), make_set("b", 60, 30, 0), make_set("c", 100, 30, 0), make_set("cut", 140, 30);
  for (const char* name : {"c", "cut"}) fs::remove(scratch_ / name / "validation.h5");
  write_examples(scratch_ / "cut/validation.h5", 0, 2);
  const auto notes = [&](const std::vector<std::string>& names) {
    EXPECT_EQ(train(mixed("run-" + names.back() + std::to_string(names.size()), names,
                          {"train.validate_every=9", "train.steps=1"})),
              ExitCode::kOk);
    std::string found;
    for (size_t at = 0; (at = said().find("train.validate_every: ", at)) != std::string::npos; ++at)
      found += said().substr(at, said().find('\n', at) - at) + "\n";
    for (size_t at = 0; (at = found.find(scratch_.path().string() + "/", at)) != std::string::npos;)
      found.erase(at, scratch_.path().string().size() + 1);
    return found;
  };
  const std::string hint = " (ripstop prepare --validation-fraction 0.05 takes some of train)";
  const std::string cut =
      "no example of cut/validation.h5 keeps a token whose prediction counts (raise data.sequence_length)";
  EXPECT_EQ(notes({"a"}), "");
  EXPECT_EQ(notes({"b"}),
            "train.validate_every: b/validation.h5 has no examples" + hint + ": nothing is validated\n");
  EXPECT_EQ(notes({"cut", "b", "a", "c"}),
            "train.validate_every: b/validation.h5, c/validation.h5 have no examples" + hint + "; " + cut +
                ": these sets are not validated\n");
  EXPECT_EQ(notes({"cut", "b"}), "train.validate_every: b/validation.h5 has no examples" + hint + "; " + cut +
                                     ": nothing is validated\n");
  EXPECT_EQ(notes({"a", "cut"}), "train.validate_every: " + cut + ": this set is not validated\n");
}

// A mean by other weights is another metric: set b, which is not trained here, is worse than set a was.
TEST_F(MixtureRuns, OtherWeightsBeginTheBestScoreAnew) {
  make_set("a", 10, 30), make_set("b", 60, 30);
  const auto drawn = [&](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {"train.validate_every=6", "checkpoint.keep_best=loss"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return mixed("run", {"a", "b"}, overrides);
  };
  ASSERT_EQ(train(drawn({"data.weights=[1, 0]", "train.steps=6"})), ExitCode::kOk);
  const double before = state("run", 6).best.value().value;
  allow_changes_ = true;
  ASSERT_EQ(train(drawn({"data.weights=[0, 1]", "optimizer.learning_rate=1e-9"})), ExitCode::kOk);
  EXPECT_EQ(state("run", 12).best.value().step, 12);
  EXPECT_GT(state("run", 12).best->value, before);
}

}  // namespace
}  // namespace ripstop
