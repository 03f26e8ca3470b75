#include "train/exchange/write/export_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/train/exchange/exported_model.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

TEST(ExportFiles, TheConfigIsReadBackEqual) {
  const std::string text =
      pretrained_config_json(exported_model(), ExportDType::kBFloat16, {.bos = 1, .eos = 2});
  EXPECT_EQ(parse_pretrained_config(text, "config.json"), exported_model());
  const auto json = nlohmann::json::parse(text);
  // Each in the spelling of transformers 4 and of 5.
  EXPECT_EQ(json["rope_theta"], 500000.0);
  EXPECT_EQ(json["rope_parameters"]["rope_theta"], 500000.0);
  EXPECT_EQ(json["dtype"], "bfloat16");
  EXPECT_EQ(json["torch_dtype"], "bfloat16");
  EXPECT_EQ(json["bos_token_id"], 1);
  EXPECT_EQ(json["eos_token_id"], 2);
}

TEST(ExportFiles, WithoutATokenizerNoIdIsInvented) {
  const auto config =
      nlohmann::json::parse(pretrained_config_json(exported_model(), ExportDType::kFloat32, {}));
  EXPECT_TRUE(config["bos_token_id"].is_null() && config["eos_token_id"].is_null());
  const auto generation = nlohmann::json::parse(generation_config_json({}, {}));
  EXPECT_TRUE(generation["eos_token_id"].is_null() && generation["pad_token_id"].is_null());
}

TEST(ExportFiles, GenerationIsThatOfTheRun) {
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
