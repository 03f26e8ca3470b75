// Tokenizers with a chat template.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "data/chat/chat_template.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_json_tokenizers.h"

namespace ripstop {

/// The byte-level tokenizer of byte_level_json() with the tokens 277 <B>, 278 <E>, 279 <|im_start|>,
/// 280 <|eot_id|>.
inline nlohmann::json chat_tokenizer_json() {
  nlohmann::json json = byte_level_json();
  for (const char* name : {"<B>", "<E>", "<|im_start|>", "<|eot_id|>"})
    json["added_tokens"].push_back(added_token(static_cast<int>(json["added_tokens"].size()) + 274, name));
  return json;
}

/// chat_tokenizer_json() in a directory, with a tokenizer_config.json.
class ChatDirectory {
 public:
  explicit ChatDirectory(const std::string& tokenizer = chat_tokenizer_json().dump(),
                         nlohmann::json config = {{"bos_token", "<B>"},
                                                  {"eos_token", {{"content", "<E>"}}}}) {
    write_bytes(scratch_ / "tokenizer.json", tokenizer);
    write_bytes(scratch_ / "tokenizer_config.json", config.dump());
  }
  const std::filesystem::path& path() const { return scratch_.path(); }
  Tokenizer open(const std::string& name, const std::string& date = kDefaultChatDate) const {
    return Tokenizer(path(), {.reads_special_tokens = true, .chat_template = name, .chat_date = date});
  }

 private:
  ScratchDirectory scratch_;
};

/// The text of tokens [begin, end), with the names of special ones.
inline std::string shown(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens, int64_t begin,
                         int64_t end) {
  std::string text;
  for (int64_t i = begin; i < end; ++i) {
    const TokenPiece piece = tokenizer.piece(tokens[static_cast<size_t>(i)]);
    text += piece.is_special ? piece.name : piece.text;
  }
  return text;
}

/// A message, by the first letter of its role, then its text.
inline Message message_of(const std::string& text) {
  const Role role = text.front() == 's'   ? Role::kSystem
                    : text.front() == 'u' ? Role::kUser
                                          : Role::kAssistant;
  return {role, text.substr(1)};
}

}  // namespace ripstop
