#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "data/chat/chat_template.h"
#include "data/files/file.h"
#include "data/text/text_lines.h"

namespace ripstop {

struct DocumentLine {
  std::string line;      ///< the JSON object, with null for NaN; of plain text, made from it
  std::string document;  ///< the field `document`, "" for null; for a question, JSON for read_question()
  bool is_question = false;

  bool operator==(const DocumentLine&) const = default;
};

/// Settings to read lines as questions, for a model that was trained on conversations.
struct Questions {
  const ChatTemplate* chat = nullptr;  ///< borrowed; null: a question is a text `prompt`, not turns
  bool takes_documents = true;         ///< whether a `document` is a question, too
};

/// The next object of `lines`; nullopt at the end. Skips blank lines. A line must be a JSON object with a
/// string or null as `document`, or, with `questions`, a `prompt` or conversation that they accept. Throws
/// Error(kInputData) with file and line for other lines; the message lists the fields if none fits.
std::optional<DocumentLine> next_document(TextLines& lines, const Questions* questions = nullptr);

/// Whether the file is one document of plain text: its name ends with .txt, .text or .md, perhaps with .gz
/// behind, and its text does not begin with {. Throws Error(kInputData) like TextLines.
bool is_plain_text(const std::filesystem::path& path);

/// All of `lines` as one document. Throws Error(kInputData) above 64 MiB, and for a refused question.
DocumentLine whole_document(TextLines& lines, const Questions* questions = nullptr);

/// `line` with the field `summary`, and without a line end; other values stay as they are written. An old
/// `summary` becomes `reference`, unless `line` has one. An old `cut_tokens` is left out. If `cut_tokens`
/// is above 0, adds it: the tokens that the document lost because it was too long.
std::string with_summary(const std::string& line, const std::string& summary, int64_t cut_tokens = 0);

/// Throws Error(kUsage) if summaries cannot be written to `path`: its directory is absent, or `path`
/// is no plain file, has bytes while `replace` is false, or ends with .gz.
void check_summary_file(const std::filesystem::path& path, bool replace);

/// A file that appears at `path` only when it is complete, so that nobody mistakes a part of the summaries
/// for the whole. Until then the lines are in the directory PATH.partial-PID, which the destructor removes.
/// The constructor, append() and finish() throw Error(kStorage).
class SummaryFile {
 public:
  /// Throws Error(kUsage) if another process on this host is writing `path`. Calls `note` as
  /// make_partial_directory() does.
  SummaryFile(const std::filesystem::path& path, bool replace,
              const std::function<void(const std::string&)>& note = {});
  ~SummaryFile();
  SummaryFile(const SummaryFile&) = delete;
  SummaryFile& operator=(const SummaryFile&) = delete;

  void append(const std::string& line);
  /// Syncs the file and moves it to `path`. No append() may follow. If `replace` is false and another process
  /// has made a non-empty `path` meanwhile, moves the file to PATH.2, PATH.3 or so on, and throws
  /// Error(kUsage) with that name. If renaming fails, the file stays in PATH.partial-PID.
  void finish();

 private:
  std::filesystem::path path_, partial_;
  bool replace_;
  std::optional<OutputFile> file_;
};

}  // namespace ripstop
