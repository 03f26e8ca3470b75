// Two small tokenizer.json: byte-level BPE as LLaMA 3 and Qwen have it, and metaspace with byte fallback.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/data/tokenizer/small_tokenizer_json.h"

namespace ripstop {

inline std::string byte_letter(int byte) {
  return byte_letters()[static_cast<size_t>(byte)];
}

inline nlohmann::json added_token(int id, const std::string& content, bool special = true) {
  return added_token_json(id, content, special ? "special" : "");
}

/// Puts `token` before each text.
inline nlohmann::json begin_template(const std::string& token, int id) {
  return {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair",
       {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
      {"special_tokens", {{token, {{"id", token}, {"ids", {id}}, {"tokens", {token}}}}}}};
}

/// BPE of `pieces` and what the merges make of them; each merge is a pair with a space between.
inline nlohmann::json bpe(std::vector<std::string> pieces, const std::vector<std::string>& merges) {
  for (std::string whole : merges) {
    whole.erase(whole.find(' '), 1);
    if (std::ranges::count(pieces, whole) == 0) pieces.push_back(whole);
  }
  return small_tokenizer_json(pieces, merges);
}

/// Byte-level BPE, no BOS: the 256 bytes, then merges. ".\n\n" is one token, and so is "\n\n". Added tokens:
/// 274 <|endoftext|>, 275 <|im_end|>, both special, and 276 <think>, which is not.
inline nlohmann::json byte_level_json() {
  const std::string space = byte_letter(' '), line = byte_letter('\n');
  const std::vector<std::string> merges = {line + " " + line,
                                           ". " + line + line,
                                           "t h",
                                           "th e",
                                           space + " the",
                                           space + " t",
                                           "o u",
                                           "e r",
                                           "r e",
                                           "i n",
                                           space + " s",
                                           "T L",
                                           "D R",
                                           "TL ;",
                                           "c o",
                                           "a n",
                                           "o l",
                                           "b r"};
  const auto byte_level = [](bool regex) {
    return nlohmann::json{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", regex}};
  };
  const char* words =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  nlohmann::json json = bpe(byte_letters(), merges);
  json["added_tokens"] = {added_token(274, "<|endoftext|>"), added_token(275, "<|im_end|>"),
                          added_token(276, "<think>", false)};
  json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", words}}}, {"behavior", "Isolated"}, {"invert", false}},
        byte_level(false)}}};
  json["post_processor"] = json["decoder"] = byte_level(false);
  return json;
}

/// Metaspace with byte fallback, as of LLaMA 2: 0 <unk>, 1 <s>, which begins a text, 2 </s>, then the bytes.
inline nlohmann::json metaspace_json() {
  const std::string space = "\u2581";
  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  constexpr const char* kDigits = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b)
    pieces.push_back(std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">");
  pieces.push_back(space);
  for (char c = 'a'; c <= 'z'; ++c) pieces.emplace_back(1, c);
  for (const char* more : {"T", "L", "D", "R", ";", ":", "."}) pieces.emplace_back(more);
  nlohmann::json json =
      bpe(pieces, {"t h", "th e", space + " the", "o u", "e r", "T L", "D R", space + " c", "a n"});
  nlohmann::json& model = json["model"];
  model["unk_token"] = "<unk>", model["fuse_unk"] = true, model["byte_fallback"] = true;
  const nlohmann::json to_space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}};
  json["added_tokens"] = {added_token(0, "<unk>"), added_token(1, "<s>"), added_token(2, "</s>")};
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "Prepend"}, {"prepend", space}}, to_space}}};
  json["post_processor"] = begin_template("<s>", 1);
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return json;
}

}  // namespace ripstop
