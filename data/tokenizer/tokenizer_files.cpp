#include "data/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kBesideJson = {kTokenizerConfigFile, kSpecialTokensFile,
                                                    kChatTemplateFile};

/// The kTokenizerChoiceFile of a directory.
struct ChoiceFile {
  explicit ChoiceFile(const fs::path& directory) : path(directory / kTokenizerChoiceFile) {
    if (is_file(path)) json = reader.parse(read_plain_file(path, kMostSmallBytes, ExitCode::kInputData));
  }
  fs::path path;
  JsonReader reader{path.string(), ExitCode::kInputData};
  JsonReader::Json json = JsonReader::Json::object();  // empty if the file is absent
};

void add_choice(const TokenizerChoice& choice, JsonReader::Json& json) {
  if (!choice.eos_token.empty()) json["eos_token"] = choice.eos_token;
  json["reads_special_tokens"] = choice.reads_special_tokens.value_or(false);
  if (choice.chat_template.value_or("").empty()) return;
  json["chat_template"] = *choice.chat_template;
  json["chat_date"] = choice.chat_date;
}

TokenizerChoice choice_of(const JsonReader& reader, const JsonReader::Json& json) {
  TokenizerChoice choice;
  if (reader.find(json, "eos_token") != nullptr)
    choice.eos_token = reader.text(json, "eos_token", kMostTokenNameBytes);
  if (reader.find(json, "reads_special_tokens") != nullptr)
    choice.reads_special_tokens = reader.flag(json, "reads_special_tokens");
  if (reader.find(json, "chat_template") != nullptr) {
    choice.chat_template = reader.text(json, "chat_template", kMostTokenNameBytes);
    choice.chat_date = reader.text(json, "chat_date", kMostTokenNameBytes);
  }
  return choice;
}

/// `path` itself, or the tokenizer in the directory `path`.
fs::path tokenizer_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) && looks_like_hub_name(path)) {
    throw Error(
        ExitCode::kInputData,
        fmt::format("{}: no such file or directory, and nothing is downloaded", path.string()),
        fmt::format("give a local directory with a tokenizer.model or tokenizer.json, such as the one that "
                    "`hf download {}` prints",
                    path.string()));
  }
  if (!fs::exists(path, ignored)) {
    throw Error(ExitCode::kInputData, fmt::format("{}: no such file or directory", path.string()),
                "give a SentencePiece model, such as LLaMA's tokenizer.model, a tokenizer.json, or a "
                "directory that has one");
  }
  if (!fs::is_directory(path, ignored)) return path;
  const fs::path file = path / tokenizer_file_name(path);
  if (fs::exists(file, ignored)) return file;
  std::string hint = hint_for_link(path / kTokenizerJsonFile) + hint_for_link(file);
  for (const char* name : {kTokenizerJsonFile, kSentencePieceFile})
    if (const auto below = find_below(path, name); hint.empty() && !below.empty())
      hint = fmt::format("there is one in {}", below.string());
  if (hint.empty() && fs::exists(path / "tekken.json", ignored))
    hint = "tekken.json is not read: give the tokenizer.json that transformers makes of it";
  throw Error(ExitCode::kInputData, fmt::format("{}: {} in this directory", path.string(), kNoTokenizer),
              !hint.empty() ? hint
                            : "give the directory of a Hugging Face model, of a data set or of a run, a "
                              ".model file or a tokenizer.json");
}

}  // namespace

const std::string* TokenizerFiles::find(std::string_view name) const {
  const auto found = std::ranges::find(carried, name, [](const auto& file) { return file.first; });
  return found == carried.end() ? nullptr : &found->second;
}

void TokenizerFiles::carry_choice() {
  JsonReader::Json json{{"file", carried.front().first}};
  add_choice(choice, json);
  if (questions) add_choice(*questions, json["questions"]);
  std::erase_if(carried, [](const auto& file) { return file.first == kTokenizerChoiceFile; });
  carried.emplace_back(kTokenizerChoiceFile, text_of_json(json, 2) + "\n");
}

std::string TokenizerFiles::token_name(const char* file, const char* key) const {
  const std::string* bytes = find(file);
  if (bytes == nullptr) return "";
  const JsonReader reader((path.parent_path() / file).string(), ExitCode::kInputData);
  const JsonReader::Json json = reader.parse(*bytes);
  const JsonReader::Json* const value = reader.find(json, key);
  if (value == nullptr) return "";
  return value->is_object() ? reader.text(*value, "content", kMostTokenNameBytes)
                            : reader.text(json, key, kMostTokenNameBytes);
}

std::string tokenizer_file_name(const fs::path& directory) {
  const auto& [path, reader, json] = ChoiceFile(directory);
  if (reader.find(json, "file") != nullptr) {
    std::string name = reader.text(json, "file", kMostTokenNameBytes);
    if (name != kSentencePieceFile && name != kTokenizerJsonFile)
      reader.refuse("'file' is '{}', {} or {} was expected", name, kSentencePieceFile, kTokenizerJsonFile);
    if (is_file(directory / name)) return name;
  }
  std::error_code ignored;
  return fs::exists(directory / kTokenizerJsonFile, ignored) ? kTokenizerJsonFile : kSentencePieceFile;
}

TokenizerChoice read_tokenizer_choice(const fs::path& directory) {
  const ChoiceFile file(directory);
  return choice_of(file.reader, file.json);
}

std::optional<TokenizerChoice> read_question_choice(const fs::path& directory) {
  const auto& [path, reader, json] = ChoiceFile(directory);
  if (reader.find(json, "questions") == nullptr) return std::nullopt;
  TokenizerChoice choice = choice_of(reader, reader.member(json, "questions"));
  if (!choice.chat_template) choice.chat_template = "";  // none, not the documents' template
  return choice;
}

bool has_tokenizer(const fs::path& directory) {
  return path_exists(posix_io(), directory / kTokenizerJsonFile) ||
         path_exists(posix_io(), directory / kSentencePieceFile);
}

bool is_tokenizer_file(std::string_view name) {
  return name == kSentencePieceFile || name == kTokenizerJsonFile || name == kTokenizerChoiceFile ||
         std::ranges::find(kBesideJson, name) != kBesideJson.end();
}

TokenizerFiles tokenizer_files_of(std::string bytes, const fs::path& name) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && bytes[first] == '{';
  return {.path = name, .carried = {{is_json ? kTokenizerJsonFile : kSentencePieceFile, std::move(bytes)}}};
}

TokenizerFiles read_tokenizer_files(const fs::path& path) {
  TokenizerFiles files{.path = tokenizer_file(path)};
  const fs::path name = files.path.filename(), directory = files.path.parent_path();
  // A file with a usual name must be a plain file: nobody would write to a pipe there. A pipe such as <(...)
  // has another name, and nothing beside it belongs to it.
  const bool has_usual_name = name == kSentencePieceFile || name == kTokenizerJsonFile;
  std::string bytes = has_usual_name ? read_plain_file(files.path, kMostTokenizerBytes, ExitCode::kInputData)
                                     : read_whole_file(files.path, kMostTokenizerBytes, ExitCode::kInputData);
  if (name == kTokenizerJsonFile)  // also a pointer of Git LFS, which the JSON reader reports
    files.carried = {{kTokenizerJsonFile, std::move(bytes)}};
  else
    files.carried = tokenizer_files_of(std::move(bytes), files.path).carried;
  if (!has_usual_name) return files;
  files.choice = read_tokenizer_choice(directory);
  files.questions = read_question_choice(directory);
  if (!files.is_json()) return files;
  for (const char* beside : kBesideJson)
    if (const fs::path file = directory / beside; is_file(file))
      files.carried.emplace_back(beside, read_plain_file(file, kMostSmallBytes, ExitCode::kInputData));
  if (const fs::path file = directory / "config.json"; is_file(file))
    files.model_config = read_plain_file(file, kMostSmallBytes, ExitCode::kInputData);
  return files;
}

bool looks_like_hub_name(const fs::path& path) {
  const std::string text = path.string();
  for (const char* own : {"models/", "runs/", "exported/", "imported/"})
    if (text.starts_with(own)) return false;
  return std::count(text.begin(), text.end(), '/') == 1 && text.front() != '.' && text.front() != '/' &&
         text.front() != '~' && text.back() != '/' && !text.ends_with(".model");
}

}  // namespace ripstop
