// The file of `ripstop summarize --output`.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "data/file.h"

namespace ripstop {

/// Throws Error(kUsage), with what to type instead, if summaries cannot go to `path`: its directory is not
/// there, it is no plain file, it has bytes and `replace` is false, or its name asks for gzip.
void check_summary_file(const std::filesystem::path& path, bool replace);

/// Lines that appear as the file `path` only when all of them are written: half of the summaries could be
/// taken for all of them. Until then they are in PATH.partial, which the destructor removes. All members
/// throw Error(kStorage).
class SummaryFile {
 public:
  explicit SummaryFile(const std::filesystem::path& path);
  ~SummaryFile();
  SummaryFile(const SummaryFile&) = delete;
  SummaryFile& operator=(const SummaryFile&) = delete;

  /// `line` comes without its end.
  void append(const std::string& line);
  /// Gives the file its name. Nothing may be appended after this.
  void finish();

 private:
  std::filesystem::path path_, beside_;
  std::optional<OutputFile> file_;
};

}  // namespace ripstop
