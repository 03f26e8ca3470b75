// Keys that may change when a run resumes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/train/config/small_config.h"
#include "train/config/config_keys.h"
#include "train/config/run_config.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

TEST(ConfigChanges, ResumeAcceptsTheMeshAndRefusesTheModel) {
  const RunConfig before = parsed(kSmallest);
  EXPECT_TRUE(check_resume(before, before).empty());
  const RunConfig moved =
      parsed(kSmallest, {"mesh.tensor=2", "log.every_steps=1", "checkpoint.keep=9",
                         "train.micro_batch_sequences=2", "train.recompute=full",
                         "train.reshard_after_forward=false", "train.steps=200", "data.directory=elsewhere"});
  const std::vector<ConfigDifference> accepted = check_resume(before, moved);
  EXPECT_EQ(accepted.size(), 8u);
  EXPECT_EQ(accepted[0].text(), "mesh.tensor: 1 -> 2");

  // Keys that do not affect the weights.
  EXPECT_EQ(check_resume(
                before, parsed(kSmallest, {"train.validate_every=5", "train.stop_after_validations=2",
                                           "generation.num_beams=2", "generation.length_penalty=2.0",
                                           "generation.no_repeat_ngram_size=3", "generation.max_new_tokens=7",
                                           "generation.validate_examples=9"}))
                .size(),
            7u);

  const auto refused = [&](const std::string& change) {
    return what_of([&] { check_resume(before, parsed(kSmallest, {change})); }, ExitCode::kUsage);
  };
  EXPECT_HAS(refused("train.steps=50"), "train.steps: 100 -> 50");
  EXPECT_HAS(refused("train.epochs=5"), "train.steps: 100 -> (none)");
  EXPECT_HAS(refused("optimizer.learning_rate=1e-4"), "optimizer.learning_rate: 0.001 -> 0.0001");
  EXPECT_HAS(refused("model.num_hidden_layers=7"), "model.num_hidden_layers: 6 -> 7");
  EXPECT_HAS(refused("train.global_batch_sequences=16"), "train.global_batch_sequences: 8 -> 16");
  EXPECT_HAS(refused("data.sequence_length=128"), "data.sequence_length: 256 -> 128");
  EXPECT_HAS(refused("train.validate_at_start=true"), "train.validate_at_start: false -> true");
  const auto hint = [&](const std::string& change, bool has_weights) {
    const RunConfig after = parsed(kSmallest, {change, "run.directory=my runs/a"});
    return error_of([&] { check_resume(before, after, has_weights); }).hint();
  };
  const char* way = "model.pretrained='my runs/a' run.directory=NEW";
  EXPECT_HAS(hint("optimizer.learning_rate=1e-4", true), way);
  EXPECT_HAS(hint("optimizer.learning_rate=1e-4", true), "run.continue_from='my runs/a' run.directory=NEW");
  EXPECT_EQ(
      hint("optimizer.learning_rate=1e-4", false),
      "use the old values, or --allow-changes to change this run from here on, or another run.directory "
      "for a new run");
  EXPECT_EQ(hint("run.seed=2", false), "use the old values, or another run.directory for a new run");
  EXPECT_EQ(hint("model.num_hidden_layers=7", true).find("model.pretrained"), std::string::npos)
      << "keeps its sizes";
  EXPECT_HAS(hint("train.steps=50", true), "--allow-changes");
  EXPECT_HAS(refused("run.seed=2"), "run.seed: 1 -> 2, data.shuffle_seed: 1 -> 2");
}

TEST(ConfigChanges, WhatMayChangeIfAllowed) {
  const RunConfig before = parsed(kSmallest);
  const std::vector<std::string> changed = {"optimizer.learning_rate=1e-4", "optimizer.weight_decay=0.5",
                                            "train.max_grad_norm=0.0",      "schedule.kind=wsd",
                                            "schedule.warmup_steps=3",      "schedule.minimum_ratio=0.5",
                                            "schedule.decay_ratio=0.5",     "train.steps=50"};
  EXPECT_EQ(check_resume(before, parsed(kSmallest, changed), true, true).size(), changed.size() + 1)
      << "schedule.decay, too";
  EXPECT_EQ(check_resume(before, parsed(kSmallest, {"train.epochs=1"}), true, true).size(), 2U);
  EXPECT_THROW(check_resume(before, parsed(kSmallest, {"optimizer.epsilon=1e-6"}), true, true), Error);
}

// Later changes win, and a key may come and go.
TEST(ConfigChanges, AreAppliedInTheirOrder) {
  const RunConfig first = parsed(kSmallest), wsd = parsed(kSmallest, {"schedule.kind=wsd", "train.epochs=2"}),
                  last = parsed(kSmallest, {"optimizer.learning_rate=2e-3", "train.steps=70"});
  std::vector<ConfigDifference> changes = compare(first, wsd);
  EXPECT_EQ(with_changes(first, changes), wsd);
  const std::vector<ConfigDifference> more = compare(wsd, last);
  changes.insert(changes.end(), more.begin(), more.end());
  EXPECT_EQ(with_changes(first, changes), last);
  EXPECT_EQ(with_changes(first, {}), first);
}

TEST(ConfigChanges, EveryChangeIsADifference) {
  // If compare() overlooked a key, a resumed run could go on with another meaning of its config.
  for (const ConfigKey& key : config_keys()) {
    RunConfig before = parsed(kSmallest);
    // Without adapters, keys of [lora] have no meaning and make no difference.
    if (key.section == "lora") static_cast<LoraConfig&>(before.lora) = {.rank = 8, .alpha = 16};
    if (is_of_wsd(key)) before.schedule.kind = ScheduleKind::kWsd;  // with another schedule, too
    RunConfig after = before;
    std::visit(
        [](auto field) {
          if constexpr (std::is_same_v<decltype(field), ChoiceField>)
            field.set(field.value, field.get(field.value) == 0 ? 1 : 0);
          else if constexpr (std::is_same_v<decltype(field), WordsField>)
            field.has[0] = !field.has[0];
          else if constexpr (std::is_same_v<decltype(field), bool*>)
            *field = !*field;
          else if constexpr (std::is_same_v<decltype(field), std::string*>)
            *field += "x";
          else if constexpr (std::is_same_v<decltype(field), std::array<double, 2>*>)
            (*field)[1] += 0.01;
          else if constexpr (std::is_same_v<decltype(field), std::vector<int32_t>*> ||
                             std::is_same_v<decltype(field), std::vector<double>*>)
            field->push_back(7);
          else if constexpr (std::is_same_v<decltype(field), std::vector<std::string>*>)
            field->push_back("x");
          else if constexpr (std::is_same_v<decltype(field), std::optional<int64_t>*>)
            *field = field->value_or(0) + 1;
          else if constexpr (std::is_same_v<decltype(field), std::optional<std::vector<int64_t>>*>)
            *field = {7};
          else if constexpr (std::is_same_v<decltype(field), std::optional<bool>*>)
            *field = !field->value_or(false);
          else
            *field += 1;
        },
        key.field(after));
    if (key.name == "pretrained") continue;  // removes the sizes too
    const std::vector<ConfigDifference> differences = compare(before, after);
    ASSERT_EQ(differences.size(), 1u) << key.path();
    EXPECT_EQ(differences[0].key, key.path());
    EXPECT_FALSE(before == after);
  }
}

}  // namespace
}  // namespace ripstop
