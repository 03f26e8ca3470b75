// Gives bytes of unknown origin to JsonTokenizer as a tokenizer.json. The fuzz target and the test that
// replays its corpus share it.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/text/utf8.h"
#include "data/tokenizer/json_tokenizer.h"
#include "model/core/error.h"

namespace ripstop {

/// Encodes and decodes texts, and checks what must hold for them. Throws std::logic_error if a promise is
/// broken; any other exception that leaves it is a bug as well. Returns whether the tokenizer was accepted.
inline bool try_tokenizer_json(const std::string& bytes) {
  const auto require = [](bool promise, const char* what) {
    if (!promise) throw std::logic_error(std::string("broken: ") + what);
  };
  const auto check_refusal = [&](const Error& error) {
    const std::string what = error.what();
    require(error.code() == ExitCode::kInputData, "bad input ends with 65");
    require(!what.empty() && what.size() < 2000, "a message is short");
    require(std::ranges::none_of(what, [](unsigned char c) { return c < ' ' || c == 0x7f; }),
            "a message is one line without control characters");
  };
  try {
    const JsonTokenizer tokenizer(bytes, "tokenizer.json");
    const int64_t size = tokenizer.vocabulary_size();
    const auto is_id = [&](int32_t id) { return id >= 0 && id < size; };
    require(size > 0 && tokenizer.sha256().size() == 64, "a tokenizer has pieces and a hash");
    require(std::ranges::all_of(tokenizer.prefix(), is_id) && std::ranges::all_of(tokenizer.suffix(), is_id),
            "a post-processor adds tokens of the vocabulary");
    for (const std::string text : {"", " ", "ab", "Hello  World's 123\n\n",
                                   "caf\xc3\xa9 e\xcc\x81<s> \xe2\x96\x81\xe4\xb8\xad\xf0\x9f\x98\x80",
                                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
      for (const auto special : {JsonTokenizer::Special::kText, JsonTokenizer::Special::kTokens}) {
        std::vector<int32_t> ids;
        int64_t end = 0;
        for (const SpannedToken& token : tokenizer.encode(text, special)) {
          require(is_id(token.id), "a token is one of the vocabulary");
          require(token.end_byte >= end && token.end_byte <= std::ssize(text), "ends of tokens rise");
          end = token.end_byte;
          ids.push_back(token.id);
          tokenizer.piece_bytes(token.id);
        }
        for (const bool skip : {false, true})
          require(!invalid_utf8(tokenizer.decode(ids, skip)), "decoded text is UTF-8");
      }
    }
    return true;
  } catch (const Error& error) {
    check_refusal(error);
    return false;
  }
}

}  // namespace ripstop
