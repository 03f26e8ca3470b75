// The lines of ripstop summarize: JSON with documents in, JSON with summaries out, and the file of --output.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "data/files/file.h"
#include "data/text/text_lines.h"

namespace ripstop {

/// One line of the input.
struct DocumentLine {
  std::string line;      ///< the text as it was read
  std::string document;  ///< the field `document`; "" if that is null

  bool operator==(const DocumentLine&) const = default;
};

/// The next object of `lines`; nullopt at the end. Skips blank lines. Throws Error(kInputData), naming file
/// and line, if a line is no JSON object with a string or null as `document`; without that field, the message
/// has the fields that are there.
std::optional<DocumentLine> next_document(TextLines& lines);

/// `line` with the field `summary` added and the other fields in their order, without a line end. If `line`
/// has a `summary` already, that becomes `reference`, unless `line` has a `reference`, too. The field
/// `cut_tokens` follows if it is above 0: the tokens that the document lost because it did not fit.
std::string with_summary(const std::string& line, const std::string& summary, int64_t cut_tokens = 0);

/// Throws Error(kUsage), with what to type instead, if summaries cannot go to `path`: its directory is not
/// there, it is no plain file, it has bytes and `replace` is false, or its name asks for gzip.
void check_summary_file(const std::filesystem::path& path, bool replace);

/// Lines that appear as the file `path` only when all of them are written: half of the summaries could be
/// taken for all of them. Until then they are in a directory PATH.partial-PID (make_partial_directory), which
/// the destructor removes. All members throw Error(kStorage).
class SummaryFile {
 public:
  /// Throws Error(kUsage) if a process of this host writes `path` now. `note` gets a text about each
  /// directory that killed processes left.
  SummaryFile(const std::filesystem::path& path, bool replace,
              const std::function<void(const std::string&)>& note = {});
  ~SummaryFile();
  SummaryFile(const SummaryFile&) = delete;
  SummaryFile& operator=(const SummaryFile&) = delete;

  /// `line` comes without its end.
  void append(const std::string& line);
  /// Gives the file its name, for good also after a power loss. Nothing may be appended after this. If
  /// `replace` is false and a file that is not empty has the name by now, the summaries become PATH.2, or .3
  /// and so on, and Error(kUsage) says so. If they cannot be renamed, they stay where they are.
  void finish();

 private:
  std::filesystem::path path_, partial_;
  bool replace_;
  std::optional<OutputFile> file_;
};

}  // namespace ripstop
