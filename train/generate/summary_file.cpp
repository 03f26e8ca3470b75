#include "train/generate/summary_file.h"

#include <fmt/format.h>

#include <system_error>

#include "data/directory.h"
#include "model/core/error.h"

namespace ripstop {

namespace fs = std::filesystem;

void check_summary_file(const fs::path& path, bool replace) {
  const std::string name = path.string();
  std::error_code error;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : ".";
  if (!fs::is_directory(directory, error))
    throw Error(ExitCode::kUsage,
                fmt::format("--output {}: there is no directory {}", name, directory.string()),
                fmt::format("mkdir -p {}", directory.string()));
  if (path.extension() == ".gz")
    throw Error(ExitCode::kUsage, fmt::format("--output {}: summaries are written as plain text", name),
                fmt::format("leave --output out and add | gzip >{}", name));
  if (!fs::exists(path, error)) return;
  if (fs::is_directory(path, error))
    throw Error(ExitCode::kUsage, fmt::format("--output {} is a directory, expected a file", name),
                fmt::format("--output {}", (path / "summaries.jsonl").lexically_normal().string()));
  if (!fs::is_regular_file(path, error))
    throw Error(ExitCode::kUsage, fmt::format("--output {} is no plain file", name),
                fmt::format("leave --output out and add >{}", name));
  if (!replace && fs::file_size(path, error) > 0)
    throw Error(ExitCode::kUsage, fmt::format("--output {} exists already", name),
                "give another name, or --force to replace it");
}

SummaryFile::SummaryFile(const fs::path& path) : path_(path), beside_(path.string() + ".partial") {
  std::error_code ignored;
  fs::remove(beside_, ignored);  // of a call that was killed
  file_.emplace(beside_);
}

SummaryFile::~SummaryFile() {
  std::error_code ignored;
  if (file_) fs::remove(beside_, ignored);
}

void SummaryFile::append(const std::string& line) {
  file_->append(line.data(), std::ssize(line));
  file_->append("\n", 1);
}

void SummaryFile::finish() {
  file_->close();
  rename_path(posix_io(), beside_, path_);
  file_.reset();
}

}  // namespace ripstop
