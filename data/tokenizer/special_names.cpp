#include "data/tokenizer/special_names.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

// The JSON object in the file `path`; an empty object if the file is absent or damaged.
Json read_json(const std::filesystem::path& path) {
  try {
    return JsonReader(path.string(), ExitCode::kInputData)
        .parse(read_plain_file(path, kMostSmallBytes, ExitCode::kInputData));
  } catch (const Error&) {
    return Json::object();
  }
}

// Adds the names in `token`: a string, an object with the name as `content`, or an array of these.
void add(const Json& token, std::vector<std::string>& names) {
  for (const Json& each : token.is_array() ? token : Json::array({token})) {
    if (each.is_string()) names.push_back(each);
    if (each.is_object() && each.contains("content") && each["content"].is_string())
      names.push_back(each["content"]);
  }
}

}  // namespace

SpecialNames::SpecialNames(const Tokenizer& tokenizer)
    : how_read_(tokenizer.reads_special_tokens() ? "read as this token" : "encoded as text") {
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    if (TokenPiece piece = tokenizer.piece(id); piece.is_special) names_.push_back(std::move(piece.name));
  // Only for SentencePiece: the files beside a tokenizer.json also name tokens that are not special.
  const std::filesystem::path file = tokenizer.name();
  if (tokenizer.is_sentencepiece() && std::filesystem::exists(file)) {
    const Json added = read_json(file.parent_path() / "added_tokens.json");
    for (const auto& [name, id] : added.items()) names_.push_back(name);
    const Json roles = read_json(file.parent_path() / kSpecialTokensFile);
    for (const auto& [role, token] : roles.items()) add(token, names_);
    const Json config = read_json(file.parent_path() / kTokenizerConfigFile);
    const Json by_id = config.value("added_tokens_decoder", Json::object());
    for (const auto& [id, token] : by_id.items()) add(token, names_);
  }
  const auto is_word = [](const std::string& name) {
    return std::ranges::all_of(name, [](unsigned char c) { return c >= 0x80 || std::ispunct(c) == 0; });
  };
  std::erase_if(names_, [&](const std::string& name) { return name.size() < 3 || is_word(name); });
  std::ranges::sort(names_);
  names_.erase(std::ranges::unique(names_).begin(), names_.end());
  for (const std::string& name : names_)
    if (begins_.empty() || begins_.back() != name.front()) begins_ += name.front();
}

std::string SpecialNames::find(std::string_view text) const {
  for (size_t at = text.find_first_of(begins_); at != std::string_view::npos;
       at = text.find_first_of(begins_, at + 1))
    for (const std::string& name : names_)
      if (text.substr(at).starts_with(name)) return name;
  return {};
}

}  // namespace ripstop
