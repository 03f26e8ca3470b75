#include "train/exchange/hugging_face/generation_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

GenerationFile generation_of(const std::string& text) {
  const ScratchDirectory scratch;
  write_bytes(scratch / "generation_config.json", text);
  return read_generation_file(scratch.path());
}

std::string values_of(const GenerationFile& file) {
  std::string text;
  for (const GenerationValue& value : file.values) text += value.key + "=" + value.value + " ";
  return text;
}

TEST(GenerationFile, SettingsAreTakenAndOthersAreNamed) {
  const GenerationFile file = generation_of(
      R"({"_from_model_config": true, "bos_token_id": 1, "eos_token_id": [2, 3], "transformers_version": "5.0",)"
      R"( "num_beams": 4, "length_penalty": 2, "early_stopping": true, "no_repeat_ngram_size": 3,)"
      R"( "max_new_tokens": 33, "min_new_tokens": null, "repetition_penalty": 1.1, "max_length": 4096})");
  EXPECT_EQ(
      values_of(file),
      "num_beams=4 length_penalty=2.0 early_stopping=\"true\" no_repeat_ngram_size=3 max_new_tokens=33 ");
  ASSERT_EQ(file.ignored.size(), 2U);
  EXPECT_EQ(file.ignored[0], "repetition_penalty");
  EXPECT_HAS(file.ignored[1], "max_length (it counts the prompt");
}

// Defaults of transformers are no reason for a note.
TEST(GenerationFile, SettingsThatDoNothingAreNotNamed) {
  const GenerationFile file = generation_of(
      R"({"output_attentions": false, "output_hidden_states": false, "output_scores": true,)"
      R"( "repetition_penalty": 1.0, "typical_p": 1, "diversity_penalty": 0.5, "num_return_sequences": 1})");
  EXPECT_EQ(values_of(file), "");
  EXPECT_EQ(file.ignored, (std::vector<std::string>{"output_scores", "diversity_penalty"}));
}

// The end tokens that a directory with these two files has.
EndTokens ends_of(const std::string& generation, const std::string& config) {
  const ScratchDirectory scratch;
  if (!generation.empty()) write_bytes(scratch / "generation_config.json", generation);
  if (!config.empty()) write_bytes(scratch / "config.json", config);
  return read_end_tokens(scratch.path(), 1000);
}

TEST(EndTokens, AreThoseOfGenerationConfigThenOfConfig) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ends_of(R"({"eos_token_id": [331, 2, 331]})", R"({"eos_token_id": 7})").ids, (Ids{2, 331}));
  EXPECT_EQ(ends_of(R"({"eos_token_id": 331})", "").ids, Ids{331});
  EXPECT_EQ(ends_of("", R"({"eos_token_id": [5, 7]})").ids, (Ids{5, 7}));
  EXPECT_EQ(ends_of(R"({"eos_token_id": null})", R"({"eos_token_id": 7})").path.filename(), "config.json");
  EXPECT_EQ(ends_of(R"({"eos_token_id": []})", R"({"eos_token_id": 7})").ids, Ids{7});
  EXPECT_EQ(ends_of(R"({"eos_token_id": [-1, 999, 1000, 18446744073709551615]})", "").ids, Ids{999});
  EXPECT_TRUE(ends_of("", "").ids.empty());
  nlohmann::json many;
  for (int id = 0; id < 401; ++id) many.push_back(id);
  EXPECT_THROW((void)ends_of(nlohmann::json{{"eos_token_id", many}}.dump(), ""), Error);
  for (const char* value : {R"("</s>")", "[[2]]", "{}", "2.0", "true"}) {
    SCOPED_TRACE(value);
    expect_error([&] { (void)ends_of(fmt::format(R"({{"eos_token_id": {}}})", value), ""); },
                 ExitCode::kInputData, "eos_token_id is ");
  }
}

TEST(GenerationFile, AbsentIsNothing) {
  const ScratchDirectory scratch;
  const GenerationFile file = read_generation_file(scratch.path());
  EXPECT_TRUE(file.values.empty() && file.ignored.empty());
}

// In transformers an absent top_k is 50.
TEST(GenerationFile, SamplingIsThatOfTransformers) {
  EXPECT_EQ(values_of(generation_of(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9})")),
            "do_sample=true temperature=0.6 top_p=0.9 top_k=50 ");
  EXPECT_EQ(values_of(generation_of(R"({"do_sample": true, "top_k": 0})")), "do_sample=true top_k=0 ");
  const GenerationFile both = generation_of(R"({"do_sample": true, "num_beams": 2})");
  EXPECT_EQ(values_of(both), "num_beams=2 ");
  ASSERT_EQ(both.ignored.size(), 1U);
  EXPECT_HAS(both.ignored[0], "do_sample");
}

TEST(GenerationFile, ValuesThatDoNotFitAreNamed) {
  const GenerationFile file = generation_of(
      R"({"num_beams": "4", "temperature": 0, "top_p": 2, "early_stopping": "soon", "top_k": 1.5})");
  EXPECT_EQ(values_of(file), "");
  ASSERT_EQ(file.ignored.size(), 5U);
  EXPECT_HAS(file.ignored[0], "num_beams: 'generation.num_beams' must be an integer");
  EXPECT_HAS(file.ignored[1], "'generation.temperature' must be above 0");
}

TEST(GenerationFile, WhatIsNoJsonIsRefused) {
  for (const char* text : {"", "[]", "{", R"({"top_k": 1, "top_k": 2})"}) {
    SCOPED_TRACE(text);
    expect_error([&] { (void)generation_of(text); }, ExitCode::kInputData, "generation_config.json");
  }
}

TEST(WrittenGenerationFile, HasNoIdsWithoutATokenizer) {
  const auto generation = nlohmann::json::parse(generation_config_json({}, {}));
  EXPECT_TRUE(generation["eos_token_id"].is_null() && generation["pad_token_id"].is_null());
}

TEST(WrittenGenerationFile, HasAllEndTokens) {
  const auto ends = [](const SpecialIds& ids) {
    return nlohmann::json::parse(generation_config_json({}, ids))["eos_token_id"];
  };
  EXPECT_EQ(ends({.bos = 1, .eos = 2, .ends = {2}}), 2);
  EXPECT_EQ(ends({.bos = 1, .eos = 2, .ends = {7, 331}}), nlohmann::json({2, 7, 331}));
  EXPECT_EQ(ends({.bos = {}, .eos = {}, .ends = {7}}), 7);
}

TEST(WrittenGenerationFile, HasTheSettingsOfTheRun) {
  GenerationSection generation;
  generation.max_new_tokens = 33;
  generation.no_repeat_ngram_size = 3;
  generation.length_penalty = 2.0;
  auto json = nlohmann::json::parse(generation_config_json(generation, {.bos = 1, .eos = 2}));
  EXPECT_EQ(json["max_new_tokens"], 33);
  EXPECT_EQ(json["no_repeat_ngram_size"], 3);
  EXPECT_EQ(json["pad_token_id"], 2);
  EXPECT_FALSE(json.contains("length_penalty")) << "transformers warns of it without beams";
  generation.num_beams = 4;
  json = nlohmann::json::parse(generation_config_json(generation, {.bos = 1, .eos = 2}));
  EXPECT_EQ(json["length_penalty"], 2.0);
  EXPECT_EQ(json["early_stopping"], false);
  EXPECT_FALSE(json.contains("do_sample") || json.contains("min_new_tokens"));
  generation = {};
  generation.do_sample = true;
  generation.temperature = 0.5;
  generation.min_new_tokens = 4;
  json = nlohmann::json::parse(generation_config_json(generation, {.bos = 1, .eos = 2}));
  EXPECT_EQ(json["do_sample"], true);
  EXPECT_EQ(json["temperature"], 0.5);
  EXPECT_EQ(json["top_k"], 0) << "absent would be 50 there";
  EXPECT_EQ(json["top_p"], 1.0);
  EXPECT_EQ(json["min_new_tokens"], 4);
}

}  // namespace
}  // namespace ripstop
