// Two small tokenizer.json: byte-level BPE as LLaMA 3 and Qwen have it, and metaspace with byte fallback.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ripstop {

/// The letter of the byte-level alphabet that stands for `byte`. Source: GPT-2, encoder.py.
inline std::string byte_letter(int byte) {
  int moved = 0;
  for (int b = 0; b <= byte; ++b) {
    const bool kept = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    if (b == byte) {
      const int point = kept ? b : 256 + moved;
      if (point < 0x80) return std::string(1, static_cast<char>(point));
      return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
    }
    moved += !kept;
  }
  return "";
}

inline nlohmann::json added_token(int id, const std::string& content, bool special = true) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
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

/// A BPE model of `pieces` and what the merges make of them; each merge is a pair with a space between.
inline nlohmann::json bpe(const std::vector<std::string>& pieces, const std::vector<std::string>& merges) {
  nlohmann::json vocabulary;
  for (const std::string& piece : pieces) vocabulary[piece] = vocabulary.size();
  for (const std::string& merge : merges) {
    std::string whole = merge;
    whole.erase(whole.find(' '), 1);
    if (!vocabulary.contains(whole)) vocabulary[whole] = vocabulary.size();
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", vocabulary},
          {"merges", merges}};
}

/// Byte-level BPE, no BOS: the 256 bytes, then merges. ".\n\n" is one token, and so is "\n\n". Added tokens:
/// 274 <|endoftext|>, 275 <|im_end|>, both special, and 276 <think>, which is not.
inline nlohmann::json byte_level_json() {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(byte_letter(b));
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
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {added_token(274, "<|endoftext|>"), added_token(275, "<|im_end|>"),
        added_token(276, "<think>", false)}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", words}}}, {"behavior", "Isolated"}, {"invert", false}},
          byte_level(false)}}}},
      {"post_processor", byte_level(false)},
      {"decoder", byte_level(false)},
      {"model", bpe(bytes, merges)}};
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
  nlohmann::json model =
      bpe(pieces, {"t h", "th e", space + " the", "o u", "e r", "T L", "D R", space + " c", "a n"});
  model["unk_token"] = "<unk>", model["fuse_unk"] = true, model["byte_fallback"] = true;
  const nlohmann::json to_space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added_token(0, "<unk>"), added_token(1, "<s>"), added_token(2, "</s>")}},
          {"normalizer",
           {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", space}}, to_space}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", begin_template("<s>", 1)},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model", model}};
}

}  // namespace ripstop
