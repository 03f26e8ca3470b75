#include "train/generate/summary_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <system_error>

#include "data/files/directory.h"
#include "data/process/partial_directory.h"
#include "data/process/shell_word.h"
#include "model/core/error.h"

namespace ripstop {

namespace fs = std::filesystem;

namespace {

// Whether `path` has something to lose: not an empty file, as mktemp makes it, nor a link that leads nowhere.
bool holds_something(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !(fs::is_regular_file(path, error) && fs::file_size(path, error) == 0);
}

// Gives the file `from` the name `to`, too or instead. Returns false if `to` holds something that must not be
// replaced. Throws Error(kStorage).
bool put_in_place(const fs::path& from, const fs::path& to, bool replace) {
  // Unlike a check and a rename, a hard link is one step. Not all file systems have them.
  if (!replace && ::link(from.c_str(), to.c_str()) == 0) return true;
  if (!replace && holds_something(to)) return false;
  rename_path(posix_io(), from, to);
  return true;
}

}  // namespace

void check_summary_file(const fs::path& path, bool replace) {
  const std::string name = path.string();
  std::error_code error;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : ".";
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
  // Hours of work: from here on nothing removes them, whatever goes wrong.
  file_.reset();
  disown_partial_directory(posix_io(), partial_);
  fs::path got = path_;
  for (int64_t number = 2; !put_in_place(partial_ / path_.filename(), got, replace_); ++number)
    got = path_.string() + fmt::format(".{}", number);
  remove_tree(posix_io(), partial_);
  sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
  if (got != path_)
    throw Error(ExitCode::kUsage,
                fmt::format("--output {} was made by another process meanwhile: the summaries are in {}",
                            path_.string(), got.string()),
                fmt::format("mv {} {} replaces it", shell_word(got.string()), shell_word(path_.string())));
}

}  // namespace ripstop
