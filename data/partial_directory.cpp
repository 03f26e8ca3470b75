#include "data/partial_directory.h"

#include <unistd.h>

#include "data/directory.h"
#include "model/core/error.h"

namespace ripstop {

PartialDirectory::PartialDirectory(const std::filesystem::path& output) : output_(output.lexically_normal()) {
  if (!output_.has_filename()) output_ = output_.parent_path();  // "out/" names the same directory as "out"
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(output_, error)) &&
      !(std::filesystem::is_directory(output_, error) && std::filesystem::is_empty(output_, error))) {
    throw Error(ExitCode::kUsage, fmt::format("{}: exists already", output_.string()),
                "name a new directory, or remove this one");
  }
  if (output_.has_parent_path()) std::filesystem::create_directories(output_.parent_path(), error);
  // With the process id: two prepares with one --output do not write into each other's files.
  partial_ = output_.string() + fmt::format(".partial-{}", getpid());
  if (!std::filesystem::create_directory(partial_, error)) {
    fail(ExitCode::kStorage, "{}: cannot make this directory: {}", partial_.string(),
         error ? error.message() : "it exists");
  }
}

PartialDirectory::~PartialDirectory() {
  std::error_code ignored;
  if (!partial_.empty()) std::filesystem::remove_all(partial_, ignored);
}

void PartialDirectory::rename_to_output() {
  // The entries must be on the disk before the name is: a power loss must not leave an empty data set.
  sync_directory(partial_);
  std::error_code error;
  std::filesystem::rename(partial_, output_, error);  // replaces an empty directory
  if (error) fail(ExitCode::kStorage, "{}: cannot be put in place: {}", output_.string(), error.message());
  partial_.clear();
  sync_directory(output_.has_parent_path() ? output_.parent_path() : ".");
}

}  // namespace ripstop
