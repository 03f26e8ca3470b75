// Small tokenizer.json documents for tests.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/text/utf8.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/text_step.h"

namespace ripstop {

using OrderedJson = nlohmann::ordered_json;

inline OrderedJson json_of(const std::string& text) {
  return OrderedJson::parse(text);
}

/// A BPE model of `pieces`, whose ids are their places, and `merges`, such as "a b".
inline OrderedJson small_tokenizer_json(const std::vector<std::string>& pieces,
                                        const std::vector<std::string>& merges = {}) {
  OrderedJson json = json_of(R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": {}}})");
  for (size_t id = 0; id < pieces.size(); ++id) json["model"]["vocab"][pieces[id]] = id;
  json["model"]["merges"] = merges;
  return json;
}

/// The 256 letters that stand for bytes, with ids equal to the bytes.
inline std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  for (int byte = 0; byte < 256; ++byte)
    letters.push_back(utf8(letter_of_byte(static_cast<unsigned char>(byte))));
  return letters;
}

inline OrderedJson added_token_json(int id, const std::string& content, const std::string& flags = "") {
  OrderedJson token{{"id", id}, {"content", content}};
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"})
    token[flag] = flags.find(flag) != std::string::npos;
  return token;
}

inline JsonTokenizer tokenizer_of(const OrderedJson& json) {
  return JsonTokenizer(json.dump(), "small.json");
}

inline std::vector<int32_t> ids_of(const JsonTokenizer& tokenizer, const std::string& text,
                                   JsonTokenizer::Special special = JsonTokenizer::Special::kTokens) {
  std::vector<int32_t> ids;
  for (const SpannedToken& token : tokenizer.encode(text, special)) ids.push_back(token.id);
  return ids;
}

}  // namespace ripstop
