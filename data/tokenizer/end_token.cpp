#include "data/tokenizer/end_token.h"

#include <fmt/format.h>

#include "data/text/json_reader.h"

namespace ripstop {
namespace {

/// The token that `file`, one of files.carried, names as eos_token; nullopt if it names none.
std::optional<EndToken> named_end(const TokenizerFiles& files, const char* file,
                                  const JsonTokenizer& tokenizer) {
  const std::string name = files.token_name(file, "eos_token");
  if (name.empty()) return std::nullopt;
  EndToken end{.id = find_token(tokenizer, name)};
  if (!end.id)
    end.problem =
        fmt::format("eos_token of {} is '{}', which is no token of {}", file, name, files.path.string());
  return end;
}

/// The token that eos_token_id of config.json names; nullopt if it names none.
std::optional<EndToken> end_of_model(const TokenizerFiles& files, const JsonTokenizer& tokenizer) {
  if (files.model_config.empty()) return std::nullopt;
  const JsonReader reader((files.path.parent_path() / "config.json").string(), ExitCode::kInputData);
  const JsonReader::Json json = reader.parse(files.model_config);
  const JsonReader::Json* value = reader.find(json, "eos_token_id");
  if (value == nullptr) return std::nullopt;
  if (value->is_array() && value->size() != 1)
    return EndToken{.id = {},
                    .problem = fmt::format("eos_token_id of config.json beside {} has {} ids",
                                           files.path.string(), value->size())};
  const int64_t id =
      reader.integer(value->is_array() ? JsonReader::Json{{"eos_token_id", (*value)[0]}} : json,
                     "eos_token_id", INT32_MIN, INT32_MAX);
  if (id < 0 || id >= tokenizer.vocabulary_size() || tokenizer.piece_name(static_cast<int32_t>(id)).empty())
    return EndToken{.id = {},
                    .problem = fmt::format("eos_token_id of config.json is {}, which is no token of {}", id,
                                           files.path.string())};
  return EndToken{.id = static_cast<int32_t>(id)};
}

}  // namespace

std::optional<int32_t> find_token(const JsonTokenizer& tokenizer, std::string_view name) {
  if (const std::optional<int32_t> id = tokenizer.added_token(name)) return id;
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    if (!name.empty() && tokenizer.piece_name(id) == name) return id;
  return std::nullopt;
}

EndToken find_end_token(const TokenizerFiles& files, const JsonTokenizer& tokenizer) {
  for (const char* file : {kTokenizerConfigFile, kSpecialTokensFile})
    if (std::optional<EndToken> end = named_end(files, file, tokenizer)) return *end;
  if (std::optional<EndToken> end = end_of_model(files, tokenizer)) return *end;
  EndToken usual;
  int count = 0;
  for (const char* name : {"</s>", "<|endoftext|>", "<|end_of_text|>"})
    if (const std::optional<int32_t> id = tokenizer.added_token(name); id && ++count > 0)
      usual = {.id = id,
               .note = fmt::format("no file beside {} names the end token: {} is taken, the only added "
                                   "token of a usual name",
                                   files.path.string(), name)};
  if (count == 1) return usual;
  return {
      .id = {},
      .problem = fmt::format("no file beside {} names the end token, and {} added tokens have a usual name",
                             files.path.string(), count)};
}

}  // namespace ripstop
