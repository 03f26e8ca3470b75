#include "train/generate/document_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/chat/conversation_json.h"
#include "data/files/directory.h"
#include "data/process/partial_directory.h"
#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

// The JSON library writes a value recursively, so each level takes stack. No real data is that deep.
constexpr int kDeepest = 200;

// A hint on the JSON error in a line that begins with '{'.
std::string fault_of(const std::string& line, const Json::parse_error& error) {
  // The library numbers bytes from 1. The end of the line has the number after the last byte.
  if (error.byte > line.size())
    return "the line ends within the object: it is cut, or the object goes over several lines, which jq -c . "
           "joins";
  const size_t at = character_begin(line, std::max<size_t>(error.byte, 1) - 1);
  if (std::string_view(error.what()).find("surrogate") != std::string_view::npos)
    return fmt::format(
        "up to byte {}: \\ud800 to \\udfff come in pairs, one half is no character; \\ufffd may stand for it",
        error.byte);
  return fmt::format("no JSON from byte {} on: '{}'", at + 1, begin_of(line.substr(at)));
}

// Throws an error with the start of the line and a hint. `fault`: the hint for a line that begins with '{'.
[[noreturn]] void refuse_line(const std::string& line, const TextLines& lines, const std::string& fault) {
  const char first = line[line.find_first_not_of(" \t")];
  std::string hint = "write one JSON object a line: {\"document\": \"...\"}";
  hint += first == '[' ? "; an array goes over several lines with jq -c '.[]'"
                       : "; one text: --input FILE.txt, or in a pipe jq -nc --rawfile d FILE "
                         "'{document: $d}'";
  if (first == '{' && !fault.empty()) hint = fault;
  throw Error(ExitCode::kInputData, fmt::format("{}: not a JSON object: '{}'", lines.place(), begin_of(line)),
              hint);
}

// Checks depth and keys while parsing, before any recursion. Python's NaN and Infinity become null in `line`.
Json parse_object(std::string& line, const TextLines& lines) {
  constexpr int64_t kMostKeys = 20'000;
  int64_t keys = 0;
  const auto check = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > kDeepest)
      fail(ExitCode::kInputData, "{}: nested deeper than {} levels", lines.place(), kDeepest);
    if (event == Json::parse_event_t::key && ++keys > kMostKeys)
      fail(ExitCode::kInputData, "{}: more than {} keys", lines.place(), kMostKeys);
    return true;
  };
  try {
    Json object = Json::parse(line, check);
    if (object.is_object()) return object;
  } catch (const Json::parse_error& error) {
    if (std::string nulled = with_nulls_for_nan(line); nulled != line) {
      line = std::move(nulled);
      return parse_object(line, lines);
    }
    refuse_line(line, lines, fault_of(line, error));
  } catch (const Json::exception&) {
    refuse_line(line, lines, "a number is too large for a 64-bit float");
  }
  refuse_line(line, lines, "");
}

// Throws an error with the names of the line's fields, and a hint on how to rename one to `document`.
[[noreturn]] void refuse_fields(const Json& object, const TextLines& lines, bool takes_turns) {
  std::string text;
  // The hint guesses that the first string is the document, and skips names too long to show.
  for (const auto& [name, value] : object.items())
    if (text.empty() && value.is_string() && name != "id" && name != "summary" && begin_of(name) == name)
      text = name;
  const std::string wanted = takes_turns ? "'messages', 'prompt' or 'document'" : "'document'";
  const std::string field = text.empty() ? ".NAME" : ".[" + text_of_json(text) + "]";
  throw Error(ExitCode::kInputData,
              fmt::format("{}: no field {}; the line has {}", lines.place(), wanted, shown_names(object)),
              !takes_turns && has_conversation(object)
                  ? "conversations are for models that were trained on them"
                  : fmt::format("rename the field of the text: jq -c {} IN.jsonl >OUT.jsonl",
                                shell_word(".document = " + field)));
}

// The question in `object`, as JSON.
std::string question_of(Json object, const TextLines& lines, const ChatTemplate* chat) {
  if (const auto document = object.find("document");
      document != object.end() && !has_conversation(object) && !object.contains("prompt")) {
    const Json text = document->is_null() ? Json("") : *document;
    object = chat == nullptr ? Json{{"prompt", text}}
                             : Json{{"messages", {{{"role", "user"}, {"content", text}}}}};
  }
  const ReadConversation question = read_question(JsonReader(lines.place(), ExitCode::kInputData), object);
  try {
    if (chat != nullptr && !question.is_joined) (void)chat->render(question.turns, /*prompts=*/true);
  } catch (const ConversationError& refused) {
    fail(ExitCode::kInputData, "{}: {}", lines.place(), refused.what());
  }
  if (chat == nullptr && !question.is_joined)
    throw Error(ExitCode::kInputData, lines.place() + ": turns need a chat template, and the model has none",
                "it was trained on texts: {\"prompt\": \"...\"}");
  if (question.is_joined && question.turns.front().content.empty())
    fail(ExitCode::kInputData, "{}: the prompt is empty", lines.place());
  return text_of_json(object);
}

// Whether replacing `path` would lose data. False for a dead link or an empty file (mktemp makes one).
bool holds_something(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !(fs::is_regular_file(path, error) && fs::file_size(path, error) == 0);
}

// Gives the file `from` the name `to`; the old name may stay. Returns false if `to` holds something and
// `replace` is false. Throws Error(kStorage).
bool put_in_place(const fs::path& from, const fs::path& to, bool replace) {
  // link() looks for `to` and makes it in one step, but not all file systems have hard links.
  if (!replace && ::link(from.c_str(), to.c_str()) == 0) return true;
  if (!replace && holds_something(to)) return false;
  rename_path(posix_io(), from, to);
  return true;
}

}  // namespace

std::optional<DocumentLine> next_document(TextLines& lines, const Questions* questions) {
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const Json object = parse_object(line, lines);
    const auto document = object.find("document");
    const bool has_turns = questions != nullptr && (has_conversation(object) || object.contains("prompt"));
    if (document == object.end() && !has_turns) refuse_fields(object, lines, questions != nullptr);
    if (!has_turns && !document->is_null() && !document->is_string())
      fail(ExitCode::kInputData, "{}: 'document' is of type {}, expected a string", lines.place(),
           document->type_name());
    if (has_turns || (questions != nullptr && questions->takes_documents))
      return DocumentLine{line, question_of(object, lines, questions->chat), true};
    // A null is an empty document, as in `prepare`.
    return DocumentLine{line, document->is_null() ? "" : document->get<std::string>()};
  }
  return std::nullopt;
}

bool is_plain_text(const fs::path& path) {
  const fs::path name = path.extension() == ".gz" ? path.stem() : path;
  if (name.extension() != ".txt" && name.extension() != ".text" && name.extension() != ".md") return false;
  TextLines lines(path.string());
  for (std::string line; lines.next(line);)
    if (const size_t first = line.find_first_not_of(" \t"); first != line.npos) return line[first] != '{';
  return true;
}

DocumentLine whole_document(TextLines& lines, const Questions* questions) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  std::string document;
  for (std::string line; lines.next(line);) {
    document += (document.empty() ? "" : "\n") + line;
    if (document.size() > kMostBytes)
      fail(ExitCode::kInputData, "{}: one document of more than {} MiB", lines.name(), kMostBytes >> 20);
  }
  const Json object{{"document", document}};
  if (questions == nullptr || !questions->takes_documents) return {text_of_json(object), document};
  return {text_of_json(object), question_of(object, lines, questions->chat), true};
}

std::string with_summary(const std::string& line, const std::string& summary, int64_t cut_tokens) {
  auto members = members_of(line);
  const std::string text = text_of_json(summary), cut = fmt::format("{}", cut_tokens);
  std::string_view old;
  bool has_reference = false;
  for (const auto& [name, value] : members) {
    if (name == "summary") old = value;
    if (name == "reference") has_reference = true;
  }
  // The input may be the output of an earlier call, with its summary and cut_tokens.
  std::erase_if(members,
                [](const auto& each) { return each.first == "summary" || each.first == "cut_tokens"; });
  // Keeps the old summary, which a person may have written, because scoring needs it.
  if (!old.empty() && !has_reference) members.emplace_back("reference", old);
  members.emplace_back("summary", text);
  if (cut_tokens > 0) members.emplace_back("cut_tokens", cut);
  std::string joined;
  for (const auto& [name, value] : members)
    joined += fmt::format("{}{}:{}", joined.empty() ? "{" : ",", text_of_json(name), value);
  return joined + "}";
}

void check_summary_file(const fs::path& path, bool replace) {
  const std::string name = path.string();
  std::error_code error;
  const fs::path directory = folder_of(path);
  if (!fs::is_directory(directory, error))
    throw Error(ExitCode::kUsage,
                fmt::format("--output {}: there is no directory {}", name, directory.string()),
                fmt::format("mkdir -p {}", shell_word(directory.string())));
  if (path.extension() == ".gz")
    throw Error(ExitCode::kUsage, fmt::format("--output {}: summaries are written as plain text", name),
                fmt::format("leave --output out and add | gzip >{}", shell_word(name)));
  if (!fs::exists(path, error)) return;
  if (fs::is_directory(path, error))
    throw Error(
        ExitCode::kUsage, fmt::format("--output {} is a directory, expected a file", name),
        fmt::format("--output {}", shell_word((path / "summaries.jsonl").lexically_normal().string())));
  if (!fs::is_regular_file(path, error))
    throw Error(ExitCode::kUsage, fmt::format("--output {} is no plain file", name),
                fmt::format("leave --output out and add >{}", shell_word(name)));
  if (!replace && fs::file_size(path, error) > 0)
    throw Error(ExitCode::kUsage, fmt::format("--output {} exists already", name),
                "give another name, or --force to replace it");
}

SummaryFile::SummaryFile(const fs::path& path, bool replace,
                         const std::function<void(const std::string&)>& note)
    : path_(path), partial_(make_partial_directory(posix_io(), path, note)), replace_(replace) {
  try {
    file_.emplace(partial_ / path_.filename());
  } catch (...) {
    remove_tree(posix_io(), partial_);
    throw;
  }
}

SummaryFile::~SummaryFile() {
  if (file_) remove_tree(posix_io(), partial_);
}

void SummaryFile::append(const std::string& line) {
  file_->append(line.data(), std::ssize(line));
  file_->append("\n", 1);
}

void SummaryFile::finish() {
  file_->sync();
  file_->close();
  // The summaries may have taken hours, so from here on no error removes them.
  file_.reset();
  disown_partial_directory(posix_io(), partial_);
  fs::path got = path_;
  for (int64_t number = 2; !put_in_place(partial_ / path_.filename(), got, replace_); ++number)
    got = path_.string() + fmt::format(".{}", number);
  remove_tree(posix_io(), partial_);
  sync_directory(posix_io(), folder_of(path_));
  if (got != path_)
    throw Error(ExitCode::kUsage,
                fmt::format("--output {} was made by another process meanwhile: the summaries are in {}",
                            path_.string(), got.string()),
                fmt::format("mv {} {} replaces it", shell_word(got.string()), shell_word(path_.string())));
}

}  // namespace ripstop
